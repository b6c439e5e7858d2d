// Any bytes given as a tokenizer of a Hugging Face folder are a vocabulary that a tokenizer can be made of,
// or an Error. The first byte chooses the file: SentencePiece model, tokenizer.json, config.json.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "convert/family.hpp"
#include "convert/tokenizer/sentencepiece.hpp"
#include "convert/tokenizer/special_tokens.hpp"
#include "convert/tokenizer/vocabulary.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "text/tokenizer.hpp"

namespace {

using namespace quipu;

constexpr std::size_t kRows = 512;

void finish(convert::Vocabulary& vocabulary, const convert::JsonFile* tokenizer) {
  const auto config = convert::JsonFile::parse("{}", "config.json");
  gguf::Metadata metadata;
  std::vector<std::string> warnings;
  convert::place_added_tokens(vocabulary, tokenizer, nullptr, nullptr);
  convert::add_special_tokens({tokenizer, nullptr, nullptr, nullptr, config}, vocabulary, metadata, warnings);
  vocabulary.fill();
  vocabulary.write(metadata);
  const auto made = text::Tokenizer::from_metadata(metadata);
  if (made->size() != kRows) std::abort();
  made->decode(made->encode("a <s>word 12\n"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  log::set_level(log::Level::off);
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    convert::Vocabulary vocabulary(kRows);
    if (data[0] % 3 == 0) {
      const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(text.data()), text.size());
      convert::read_sentencepiece(convert::parse_sentencepiece(bytes, "fuzz"), "fuzz", vocabulary);
      finish(vocabulary, nullptr);
    } else if (data[0] % 3 == 1) {
      const auto tokenizer = convert::JsonFile::parse(text, "fuzz");
      convert::read_tokenizer_json(tokenizer, "", "llama", vocabulary);
      finish(vocabulary, &tokenizer);
    } else {
      auto config = convert::JsonFile::parse(text, "fuzz");
      for (const convert::Family& family : convert::families()) try {
          if (family.defaults != nullptr) family.defaults(config);
          convert::Sizes sizes = convert::Sizes::read(config);
          if (sizes[convert::Dim::head_dim] > 4096 || sizes[convert::Dim::layers] > 4096) return 0;
          gguf::Metadata metadata;
          std::vector<convert::TensorSource> tensors;
          std::vector<std::string> warnings;
          const safetensors::File weights;
          convert::Job job{config, sizes, family.name, metadata, tensors, warnings, weights};
          convert::add_settings(job, family);
        } catch (const Error&) {
        }
    }
  } catch (const Error& error) {
    if (error.message().empty()) std::abort();
  }
  return 0;
}
