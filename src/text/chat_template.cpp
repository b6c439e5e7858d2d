#include "text/chat_template.hpp"

#include <array>
#include <ctime>

#include "core/log.hpp"
#include "text/chat_styles.hpp"

namespace quipu::text {

namespace {

constexpr std::string_view kKey = "tokenizer.chat_template";

/// strftime("%d %b %Y") in the C locale, local time.
std::string today() {
  constexpr std::array<const char*, 12> months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) return "01 Jan 1970";
  return fmt::format("{:02} {} {}", local.tm_mday, months[static_cast<std::size_t>(local.tm_mon)],
                     local.tm_year + 1900);
}

std::string token_text(const gguf::Metadata& metadata, std::string_view id_key) {
  const std::optional<std::uint64_t> id = metadata.try_uint(id_key);
  const std::vector<std::string>* tokens = metadata.try_strings("tokenizer.ggml.tokens");
  if (!id || tokens == nullptr || *id >= tokens->size()) return {};
  return (*tokens)[*id];
}

}  // namespace

std::unique_ptr<ChatTemplate> ChatTemplate::from_metadata(const gguf::Metadata& metadata) {
  const gguf::Value* value = metadata.find(kKey);
  if (value == nullptr) return nullptr;
  const std::string* source = std::get_if<std::string>(&value->data);
  if (source == nullptr) {
    log::warning("{}: {} is of type {}, expected a string; the model is used without a chat template",
                 metadata.origin(), kKey, gguf::to_string(value->type));
    return nullptr;
  }
  return recognize_chat_template(*source, {token_text(metadata, "tokenizer.ggml.bos_token_id"),
                                           token_text(metadata, "tokenizer.ggml.eos_token_id"), today});
}

}  // namespace quipu::text
