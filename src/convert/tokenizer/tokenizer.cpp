#include "convert/tokenizer/tokenizer.hpp"

#include <system_error>

#include "convert/tokenizer/sentencepiece.hpp"
#include "convert/tokenizer/special_tokens.hpp"
#include "convert/tokenizer/vocabulary.hpp"
#include "core/error.hpp"
#include "core/mapped_file.hpp"
#include "text/pretokenizer.hpp"
#include "text/unicode.hpp"

namespace quipu::convert {
namespace {

namespace fs = std::filesystem;
using text::kSpaceMark;
using text::TokenType;

std::string read_text(const fs::path& path) {
  constexpr std::size_t longest = std::size_t{64} << 20;
  const MappedFile file(path, MappedFile::Mode::read);
  if (file.bytes().size() > longest)
    fail(ErrorCode::bad_file, "{}: {} bytes, expected at most {}", printable(path.string(), 1000),
         file.bytes().size(), longest);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

template <class Visit>
void for_each_line(const std::string& text, const Visit& visit) {
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    if (end == text.npos) end = text.size();
    std::string_view line(text.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(line);
    begin = end + 1;
  }
}

/// The files of tokenizers before tokenizer.json: they say nothing of how the text is cut.
void read_vocab_and_merges(const fs::path& folder, const std::string& pre, Vocabulary& vocabulary) {
  const JsonFile vocab = JsonFile::open(folder / "vocab.json");
  vocabulary.model = "gpt2";
  for (const auto& [text, id] : vocab.root().get_object()) {
    if (!id.is_int64() || id.get_int64() < 0) vocab.reject("an entry", kind_of(id), "an id of at least 0");
    vocabulary.place(static_cast<std::uint64_t>(id.get_int64()), std::string_view(text), TokenType::normal, 0,
                     vocab.name());
  }
  for_each_line(read_text(folder / "merges.txt"), [&](std::string_view line) {
    if (!line.empty() && !line.starts_with("#version")) vocabulary.merges.emplace_back(line);
  });
  if (pre.empty())
    fail(ErrorCode::unsupported,
         "{}: vocab.json and merges.txt do not say how text is cut into words, expected a tokenizer.json; or "
         "name the pre-tokenizer with --pre ({})",
         printable(folder.string(), 1000), text::known_pretokenizer_names());
  vocabulary.pre = pre;
}

void read_vocab_txt(const fs::path& path, Vocabulary& vocabulary) {
  vocabulary.model = "bert";
  vocabulary.pre = "jina-v2-en";
  std::uint64_t id = 0;
  for_each_line(read_text(path), [&](std::string_view line) {
    const bool special = line.starts_with("[") && line.ends_with("]") && line.size() > 3;
    vocabulary.place(id++, line, special ? TokenType::control : TokenType::normal, 0, path.string());
  });
}

/// GGUF marks the pieces that begin a word, WordPiece those that go on.
void mark_beginnings(Vocabulary& vocabulary) {
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    if (vocabulary.type(i) == TokenType::control) continue;
    const std::string& text = vocabulary.text(i);
    vocabulary.set_text(i, text.starts_with("##") ? text.substr(2) : std::string(kSpaceMark) + text);
  }
}

/// `normalizer` of WordPiece: whether letters are made small and accents dropped.
void add_normalizer(const JsonFile* tokenizer, const JsonFile* tokenizer_config, gguf::Metadata& metadata) {
  for (const char* flag : {"lowercase", "strip_accents"}) {
    std::optional<bool> value;
    if (tokenizer != nullptr)
      value = tokenizer->try_flag(std::string("normalizer.") + flag);
    else if (tokenizer_config != nullptr)
      value = tokenizer_config->try_flag(std::string(flag) == "lowercase" ? "do_lower_case" : flag);
    if (value) metadata.set(std::string("tokenizer.ggml.normalizer.") + flag, gguf::Value::of_bool(*value));
  }
}

/// Rows without tokens pad many a model. Where they are most of them, and the end of a text is among them,
/// the tokenizer is another model's.
void refuse_foreign(const JsonFile& config, std::size_t tokens, std::size_t rows, const std::string& name) {
  const boost::json::value* end = config.find("eos_token_id");
  if (end == nullptr || !end->is_int64() || end->get_int64() < 0) return;
  const auto id = static_cast<std::uint64_t>(end->get_int64());
  if (tokens * 2 >= rows || id < tokens || id >= rows) return;
  fail(ErrorCode::bad_file,
       "{}: found {} tokens for the {} rows of the embedding, and none with the id {}, which is eos_token_id "
       "in "
       "config.json: the tokenizer is not this model's",
       printable(name, 1000), tokens, rows, id);
}

}  // namespace

void add_tokenizer(const fs::path& folder, const JsonFile& config, std::size_t rows,
                   const TokenizerNames& names, gguf::Metadata& metadata,
                   std::vector<std::string>& warnings) {
  const std::string& pre = names.pre;
  if (!pre.empty() && text::find_pretokenizer_rule(pre) == nullptr)
    fail(ErrorCode::invalid_argument, "--pre is \"{}\", expected one of {}", printable(pre),
         text::known_pretokenizer_names());
  const auto tokenizer = JsonFile::try_open(folder / "tokenizer.json");
  const auto tokenizer_config = JsonFile::try_open(folder / "tokenizer_config.json");
  const auto added_tokens = JsonFile::try_open(folder / "added_tokens.json");
  const auto special_tokens_map = JsonFile::try_open(folder / "special_tokens_map.json");
  const auto generation_config = JsonFile::try_open(folder / "generation_config.json");
  const auto pointer = [](const auto& file) { return file ? &*file : nullptr; };
  const auto has = [&](const char* name) {
    std::error_code error;
    return fs::exists(folder / name, error);
  };

  Vocabulary vocabulary(rows);
  if (tokenizer) read_tokenizer_json(*tokenizer, pre, names.plain_bpe, vocabulary);
  // Where both are there, the SentencePiece model has the scores that tokenizer.json was made from.
  if (has("tokenizer.model") && (!tokenizer || vocabulary.model == "llama")) {
    const fs::path path = folder / "tokenizer.model";
    const MappedFile file(path, MappedFile::Mode::read);
    const SentencePieceModel model = parse_sentencepiece(file.bytes(), path.string());
    const std::optional<bool> prefix = vocabulary.add_space_prefix;
    vocabulary = Vocabulary(rows);
    read_sentencepiece(model, path.string(), vocabulary);
    if (prefix) vocabulary.add_space_prefix = prefix;
  } else if (!tokenizer && has("vocab.json") && has("merges.txt")) {
    read_vocab_and_merges(folder, pre, vocabulary);
  } else if (!tokenizer && has("vocab.txt")) {
    read_vocab_txt(folder / "vocab.txt", vocabulary);
  } else if (!tokenizer) {
    fail(ErrorCode::not_found,
         "{}: found no tokenizer: expected tokenizer.json, tokenizer.model or vocab.txt{}",
         printable(folder.string(), 1000),
         has("tekken.json") || has("tiktoken.model") || has("qwen.tiktoken")
             ? " (tiktoken's format is not read)"
             : "");
  }
  place_added_tokens(vocabulary, pointer(tokenizer), pointer(tokenizer_config), pointer(added_tokens));
  refuse_foreign(config, vocabulary.size(), rows, tokenizer ? tokenizer->name() : folder.string());
  add_special_tokens({pointer(tokenizer), pointer(tokenizer_config), pointer(special_tokens_map),
                      pointer(generation_config), config},
                     vocabulary, metadata, warnings);
  if (vocabulary.model == "bert") {
    mark_beginnings(vocabulary);
    add_normalizer(pointer(tokenizer), pointer(tokenizer_config), metadata);
  }
  vocabulary.fill();
  vocabulary.write(metadata);
  add_chat_template(folder, pointer(tokenizer_config), metadata);
}

}  // namespace quipu::convert
