#include "sha256.hpp"

#include <openssl/evp.h>

#include "core/error.hpp"

namespace quipu::app {
namespace {

EVP_MD_CTX* as_context(void* pointer) { return static_cast<EVP_MD_CTX*>(pointer); }

void require(int result) {
  if (result != 1) fail(ErrorCode::internal, "OpenSSL cannot compute SHA-256");
}

}  // namespace

void Sha256::Deleter::operator()(void* context) const { EVP_MD_CTX_free(as_context(context)); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  require(EVP_DigestInit_ex(as_context(context_.get()), EVP_sha256(), nullptr));
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(const void* data, std::size_t size) {
  require(EVP_DigestUpdate(as_context(context_.get()), data, size));
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  require(EVP_DigestFinal_ex(as_context(context_.get()), digest, &size));
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

}  // namespace quipu::app
