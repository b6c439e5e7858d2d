// Tokenizers of Hugging Face folders: quipu's ids against those of the tokenizers library
// (tools/goldens/make_convert_tokenizers.py), and which pre-tokenizer is recognised.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "convert/tokenizer/pretokenizer_finder.hpp"
#include "convert/tokenizer/sentencepiece.hpp"
#include "convert/tokenizer/tokenizer.hpp"
#include "convert_folder.hpp"
#include "core/error.hpp"
#include "core/mapped_file.hpp"
#include "text/pretokenizer.hpp"
#include "text/tokenizer.hpp"

namespace quipu {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

class Folder {
 public:
  explicit Folder(const std::string& name) {
    for (const auto& entry : fs::directory_iterator(test::convert_golden("tokenizers") / name))
      fs::copy(entry.path(), folder / entry.path().filename().string());
  }
  gguf::Metadata metadata(std::size_t rows, const std::string& pre = "") const {
    const auto config = convert::JsonFile::parse("{}", "config.json");
    gguf::Metadata result;
    std::vector<std::string> warnings;
    convert::add_tokenizer(folder.path(), config, rows, {pre, "llama"}, result, warnings);
    EXPECT_TRUE(warnings.empty());
    return result;
  }
  std::string refusal(std::size_t rows, const std::string& pre = "") const {
    try {
      metadata(rows, pre);
    } catch (const Error& error) {
      return error.message();
    }
    return "accepted";
  }
  test::TemporaryFolder folder;
};

#define EXPECT_SAYS(message, words) EXPECT_NE((message).find(words), std::string::npos) << (message)

void expect_ids(const Folder& folder, std::size_t rows) {
  const auto tokenizer = text::Tokenizer::from_metadata(folder.metadata(rows));
  EXPECT_EQ(tokenizer->size(), rows);
  const json::value cases = json::parse(test::read_text(folder.folder / "ids.json"));
  EXPECT_GE(cases.get_array().size(), 10u);
  for (const json::value& item : cases.get_array()) {
    const std::string text(item.at("text").get_string());
    std::vector<text::Token> ids;
    for (const json::value& id : item.at("ids").get_array()) ids.push_back(id.to_number<text::Token>());
    EXPECT_EQ(tokenizer->encode(text), ids) << "\"" << text << "\"";
  }
}

TEST(ConvertedTokenizer, GivesTheIdsOfByteLevelBpe) {
  expect_ids(Folder("bpe"), 284);
  expect_ids(Folder("bpe_qwen2"), 290);  // rows that no token has are filled up
  expect_ids(Folder("bpe_gpt2"), 284);
}

TEST(ConvertedTokenizer, GivesTheIdsOfASentencePieceModel) {
  const Folder folder("spm");
  expect_ids(folder, 360);
  EXPECT_EQ(folder.metadata(360).get_string("tokenizer.ggml.model"), "llama");
}

TEST(ConvertedTokenizer, GivesTheIdsOfASentencePieceModelFromTokenizerJsonAlone) {
  const Folder folder("spm");
  fs::remove(folder.folder / "tokenizer.model");
  expect_ids(folder, 360);
}

TEST(ConvertedTokenizer, GivesTheIdsOfUnigram) { expect_ids(Folder("unigram"), 200); }
TEST(ConvertedTokenizer, GivesTheIdsOfWordPiece) { expect_ids(Folder("wordpiece"), 128); }

TEST(ConvertedTokenizer, KnowsItsSpecialTokensAndTemplate) {
  const gguf::Metadata metadata = Folder("bpe").metadata(284);
  EXPECT_EQ(metadata.get_string("tokenizer.ggml.pre"), "llama-bpe");
  EXPECT_EQ(metadata.get_uint("tokenizer.ggml.bos_token_id"), 280u);
  EXPECT_EQ(metadata.get_uint("tokenizer.ggml.eos_token_id"), 281u);
  EXPECT_TRUE(metadata.get_bool("tokenizer.ggml.add_bos_token"));
  EXPECT_NE(metadata.get_string("tokenizer.chat_template").find("<|turn|>"), std::string::npos);
  const auto types = *metadata.try_ints("tokenizer.ggml.token_type");
  EXPECT_EQ(types[281], 3);  // special
  EXPECT_EQ(types[282], 4);  // "<mark>": added, not special
  EXPECT_EQ(types[283], 3);  // "<|turn|>" only looks special
}

TEST(ConvertedTokenizer, TakesTheChatTemplateFromEachOfItsPlaces) {
  const Folder folder("bpe");
  const auto found = [&] { return folder.metadata(284).get_string("tokenizer.chat_template"); };
  folder.folder.write(
      "tokenizer_config.json",
      R"({"chat_template":[{"name":"default","template":"one"},{"name":"tool use","template":"two"}]})");
  EXPECT_EQ(found(), "one");
  EXPECT_EQ(folder.metadata(284).get_string("tokenizer.chat_template.tool_use"), "two");
  folder.folder.write("tokenizer_config.json", "{}");
  folder.folder.write("chat_template.json", R"({"chat_template":"three"})");
  EXPECT_EQ(found(), "three");
  folder.folder.write("chat_template.jinja", "four");
  EXPECT_EQ(found(), "four");
}

TEST(ConvertedTokenizer, ThatHasMoreTokensThanTheEmbeddingIsRefused) {
  const std::string message = Folder("bpe").refusal(282);
  EXPECT_SAYS(message, "has the id 282, but the embedding has 282 rows");
  EXPECT_SAYS(message, "tokenizer.json");
}

TEST(ConvertedTokenizer, WithoutItsFilesIsRefused) {
  const Folder folder("bpe");
  fs::remove(folder.folder / "tokenizer.json");
  EXPECT_SAYS(folder.refusal(284), "found no tokenizer");
  folder.folder.write("vocab.json", R"({"a":0})");
  folder.folder.write("merges.txt", "#version: 0.2\n");
  EXPECT_SAYS(folder.refusal(284), "--pre");
  EXPECT_EQ(folder.metadata(284, "gpt-2").get_string("tokenizer.ggml.pre"), "gpt-2");
}

TEST(ConvertedTokenizer, WithPartsThatGgufHasNoPlaceForIsRefused) {
  Folder folder("bpe_gpt2");
  const std::string text = test::read_text(folder.folder / "tokenizer.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, changed.npos);
    folder.folder.write("tokenizer.json", changed.replace(at, from.size(), to));
    return folder.refusal(284);
  };
  const std::string byte_level = R"("type":"ByteLevel","add_prefix_space":false)";
  EXPECT_SAYS(with(byte_level, R"("type":"ByteLevel","add_prefix_space":true)"), "add_prefix_space");
  EXPECT_SAYS(with("{" + byte_level,
                   R"({"type":"Split","pattern":{"Regex":"[aeiou]"},"behavior":"Isolated"},{)" + byte_level),
              "none that quipu knows: [aeiou]");
  EXPECT_SAYS(with("{" + byte_level, R"({"type":"CharDelimiterSplit"},{)" + byte_level),
              "CharDelimiterSplit");
  EXPECT_SAYS(with(R"("type":"BPE")", R"("type":"Magic")"), "model.type is \"Magic\"");
  EXPECT_SAYS(folder.refusal(284, "gpt-9"), "--pre is \"gpt-9\"");
}

// The expressions of the published tokenizer.json files.
TEST(PretokenizerFinder, RecognisesHowModelsWriteTheirExpressions) {
  const auto name = [](const char* list, bool ignore_merges = false) {
    return convert::find_pretokenizer_name(convert::pretokenizer_steps(json::parse(list), "x"),
                                           ignore_merges);
  };
  const std::string byte_level = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  const auto split = [&](const std::string& pattern, const std::string& more = "") {
    json::value regex = json::value(pattern);
    return R"({"type":"Sequence","pretokenizers":[)" + more + R"({"type":"Split","pattern":{"Regex":)" +
           json::serialize(regex) + R"(},"behavior":"Isolated","invert":false},)" + byte_level + "]}";
  };
  const char* llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(name(split(llama3).c_str(), true), "llama-bpe");
  EXPECT_EQ(name(split(llama3).c_str(), false), "dbrx");
  EXPECT_EQ(
      name(
          split(
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")
              .c_str()),
      "qwen2");
  EXPECT_EQ(
      name(
          split(
              R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)")
              .c_str()),
      "gpt-4o");
  EXPECT_EQ(
      name(
          split(
              R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)")
              .c_str(),
          true),
      "tekken");
  EXPECT_EQ(name(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})"), "gpt-2");
  // StarCoder and SmolLM: digits one by one, then GPT-2's.
  EXPECT_EQ(name(R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
                     {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]})"),
            "smollm");
  // DeepSeek-V3.
  const std::string first =
      R"({"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},"behavior":"Isolated","invert":false},
      {"type":"Split","pattern":{"Regex":"[一-龥぀-ゟ゠-ヿ]+"},"behavior":"Isolated","invert":false},)";
  EXPECT_EQ(name(split(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
                       "\r\n"
                       R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
                       "\r\n"
                       R"(]*|\s*[)"
                       "\r\n"
                       R"(]+|\s+(?!\S)|\s+)",
                       first)
                     .c_str()),
            "deepseek-v3");
}

TEST(PretokenizerFinder, TellsEveryRuleOfTheTableFromTheOthers) {
  const auto rules = text::pretokenizer_rules();
  for (const auto& named : rules) {
    if (!named.rule->byte_level) continue;
    std::vector<std::string> steps;
    bool has_regex_only = true;
    for (const std::string_view step : named.rule->steps) {
      steps.emplace_back(step);
      has_regex_only =
          has_regex_only && step != text::kDigitsFromRight && step != text::kDigitsFromRightAtBoundary;
    }
    if (!has_regex_only) continue;  // no tokenizer.json says these
    const std::string first(named.names.substr(0, named.names.find(' ')));
    // Its possessive form of qwen2's expression cuts the same everywhere.
    const std::string expected = first == "bailingmoe" ? "qwen2" : first;
    EXPECT_EQ(convert::find_pretokenizer_name(steps, named.rule->ignore_merges), expected);
  }
}

TEST(SentencePiece, ReadsTheModelOfItsOwnLibrary) {
  const fs::path path = test::convert_golden("tokenizers/spm/tokenizer.model");
  const MappedFile file(path);
  const auto model = convert::parse_sentencepiece(file.bytes(), path.string());
  ASSERT_EQ(model.pieces.size(), 360u);
  EXPECT_EQ(model.kind, convert::SentencePieceModel::Kind::bpe);
  EXPECT_TRUE(model.add_dummy_prefix);
  EXPECT_FALSE(model.remove_extra_whitespaces);
  EXPECT_EQ(model.pieces[0].text, "<unk>");
  EXPECT_EQ(model.pieces[0].type, 2u);
  EXPECT_EQ(model.pieces[1].type, 3u);
  EXPECT_EQ(model.pieces[3].text, "<0x00>");
  EXPECT_EQ(model.pieces[3].type, 6u);
  EXPECT_EQ(model.pieces[260].score, -1.0f);  // BPE pieces count down from 0 in the order of their merges
}

TEST(SentencePiece, RefusesWhatIsNoModel) {
  const auto refusal = [](const std::string& text) {
    try {
      convert::parse_sentencepiece({reinterpret_cast<const std::byte*>(text.data()), text.size()}, "x.model");
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  EXPECT_SAYS(refusal(""), "it has no pieces");
  EXPECT_SAYS(refusal("\x0a\x7f"), "longer than the file");
  EXPECT_SAYS(refusal("\x0a"), "the end inside of a number");
  EXPECT_SAYS(refusal("\x0b"), "unknown wire type");
  EXPECT_SAYS(refusal(std::string("\x0a\x04\x0a\x00\x18\x01", 6)), "piece 0 has the text \"\"");
  EXPECT_SAYS(refusal(std::string("\x0a\x05\x0a\x01x\x18\x09", 7)), "type 9, expected 1 to 6");
  EXPECT_SAYS(refusal("\x0a\x03\x0a\x01x\x08\x01"), "another wire type");
}

}  // namespace
}  // namespace quipu
