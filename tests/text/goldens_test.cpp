// Small vocabularies of each family against Hugging Face tokenizers and SentencePiece; split rules against
// Hugging Face pre-tokenizers; replacement of invalid UTF-8 against Python.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "small_vocabulary.hpp"
#include "text/pretokenizer.hpp"
#include "text/unicode.hpp"

namespace quipu {
namespace {

void expect_ids(const std::string& golden, const text::EncodeOptions& options) {
  const auto tokenizer = test::small_tokenizer(golden);
  const std::vector<test::Case> cases = test::small_cases(golden);
  ASSERT_GE(cases.size(), 25u);
  for (const test::Case& item : cases)
    EXPECT_EQ(tokenizer->encode(item.text, options), item.ids)
        << golden << ": " << testing::PrintToString(item.text);
}

void expect_round_trip(const std::string& golden) {
  const auto tokenizer = test::small_tokenizer(golden);
  for (const test::Case& item : test::small_cases(golden)) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(item.text, {false, true}), true), item.text) << golden;
    EXPECT_EQ(tokenizer->decode(item.ids, true), item.text) << golden;
  }
}

TEST(SmallVocabularies, ByteLevelBpeMatchesHuggingFace) {
  expect_ids("bpe_gpt2.json", {false, true});
  expect_ids("bpe_llama3.json", {false, true});
  expect_ids("bpe_smollm.json", {false, true});
}

TEST(SmallVocabularies, PlainBpeWithByteFallbackMatchesHuggingFace) {
  expect_ids("plain_bpe.json", {false, true});
}

/// The vocabulary with token `order[i]` at i, ids changed with it.
gguf::Metadata rearranged(gguf::Metadata metadata, const std::vector<std::size_t>& order,
                          const std::vector<text::Token>& places) {
  const std::vector<std::string> texts = metadata.try_strings("tokenizer.ggml.tokens")->strings();
  const std::vector<std::int64_t> types = metadata.try_ints("tokenizer.ggml.token_type").value();
  std::vector<std::string> new_texts;
  std::vector<std::int64_t> new_types;
  for (const std::size_t i : order) {
    new_texts.push_back(texts[i]);
    new_types.push_back(types[i]);
  }
  for (const auto& entry : std::vector(metadata.entries()))
    if (entry.key.ends_with("_token_id")) {
      const auto id = static_cast<std::size_t>(metadata.get_uint(entry.key));
      metadata.set(entry.key, test::uint_value(static_cast<std::uint64_t>(places[id])));
    }
  metadata.set("tokenizer.ggml.tokens", test::strings_value(new_texts));
  metadata.set("tokenizer.ggml.token_type", test::ints_value(new_types));
  return metadata;
}

// Tokens are expected to stand in the order of the merges that make them; ids must not depend on it. Of equal
// tokens the first one is meant.
TEST(SmallVocabularies, TokensMayStandInAnyOrderAndTwice) {
  for (const char* golden : {"bpe_gpt2.json", "bpe_llama3.json", "plain_bpe.json"}) {
    const gguf::Metadata metadata = test::small_metadata(test::read_golden(golden));
    const std::size_t count = metadata.try_strings("tokenizer.ggml.tokens")->size();
    std::vector<std::size_t> backwards, every_other_first;
    for (std::size_t i = 0; i < count; ++i) backwards.push_back(count - 1 - i);
    for (std::size_t i = 0; i < count; i += 2) every_other_first.push_back(i);
    for (std::size_t i = 0; i < count; ++i) every_other_first.push_back(i);
    for (const auto& order : {backwards, every_other_first}) {
      std::vector<text::Token> places(count, -1);
      for (std::size_t i = 0; i < order.size(); ++i)
        if (places[order[i]] < 0) places[order[i]] = static_cast<text::Token>(i);
      const auto tokenizer = text::Tokenizer::from_metadata(rearranged(metadata, order, places));
      for (const test::Case& item : test::small_cases(golden)) {
        std::vector<text::Token> expected;
        for (const text::Token id : item.ids) expected.push_back(places[static_cast<std::size_t>(id)]);
        EXPECT_EQ(tokenizer->encode(item.text, {false, true}), expected)
            << golden << ": " << testing::PrintToString(item.text);
      }
    }
  }
}

TEST(SmallVocabularies, SentencePieceBpeMatchesSentencePiece) { expect_ids("spm.json", {false, false}); }

TEST(SmallVocabularies, UnigramMatchesSentencePieceWithUnknownsAndWithBytes) {
  expect_ids("unigram.json", {false, false});
  expect_ids("unigram_bytes.json", {false, false});
}

TEST(SmallVocabularies, WordPieceMatchesHuggingFace) { expect_ids("wordpiece.json", {true, true}); }

TEST(SmallVocabularies, LosslessFamiliesGiveTheTextBack) {
  for (const char* golden :
       {"bpe_gpt2.json", "bpe_llama3.json", "bpe_smollm.json", "plain_bpe.json", "spm.json"})
    expect_round_trip(golden);
}

TEST(SmallVocabularies, SentencePieceDecodesAsTheOriginal) {
  for (const char* golden : {"spm.json", "unigram_bytes.json"}) {
    const auto tokenizer = test::small_tokenizer(golden);
    for (const test::Case& item : test::small_cases(golden))
      EXPECT_EQ(tokenizer->decode(item.ids), item.decoded) << golden;
  }
}

TEST(Pretokenizers, PiecesAreThoseOfTheOriginalExpressions) {
  const boost::json::value golden = test::read_golden("pieces.json");
  const boost::json::array& texts = golden.as_object().at("texts").as_array();
  const boost::json::object& rules = golden.as_object().at("pieces").as_object();
  ASSERT_GE(rules.size(), 20u);
  for (const auto& rule : rules) {
    const text::PretokenizerRule* known = text::find_pretokenizer_rule(rule.key());
    ASSERT_NE(known, nullptr) << rule.key();
    const text::Pretokenizer pretokenizer(*known);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string text(texts[i].as_string());
      std::vector<std::string> expected;
      for (const auto& piece : rule.value().as_array()[i].as_array())
        expected.emplace_back(piece.as_string());
      std::vector<std::string_view> views;
      pretokenizer.split(text, views);
      EXPECT_EQ(std::vector<std::string>(views.begin(), views.end()), expected)
          << rule.key() << ": " << testing::PrintToString(text);
    }
  }
}

TEST(Pretokenizers, EveryKnownNameCompilesAndCutsWithoutGaps) {
  const std::string names = text::known_pretokenizer_names();
  const std::string text = "It's 12345 中文 \xff\xc3 don'T\r\n\n  \t end ";
  std::size_t begin = 0, count = 0;
  while (begin < names.size()) {
    const std::size_t end = std::min(names.find(", ", begin), names.size());
    const text::PretokenizerRule* rule = text::find_pretokenizer_rule(names.substr(begin, end - begin));
    ASSERT_NE(rule, nullptr) << names.substr(begin, end - begin);
    std::vector<std::string_view> pieces;
    text::Pretokenizer(*rule).split(text, pieces);
    std::string joined;
    for (const std::string_view piece : pieces) {
      EXPECT_FALSE(piece.empty());
      joined += piece;
    }
    EXPECT_EQ(joined, text);
    begin = end + 2;
    ++count;
  }
  EXPECT_GE(count, 60u);
}

TEST(Utf8, InvalidSequencesAreReplacedAsPythonReplacesThem) {
  const boost::json::value golden = test::read_golden("streams.json");
  for (const auto& row : golden.as_array()) {
    std::string bytes, replaced;
    for (const auto& byte : row.as_object().at("bytes").as_array())
      bytes.push_back(static_cast<char>(byte.to_number<int>()));
    for (std::size_t position = 0; position < bytes.size();) {
      const text::DecodedChar next = text::decode_utf8(bytes, position);
      replaced += next.valid ? bytes.substr(position, next.length) : std::string(text::kReplacement);
      position += next.length;
    }
    EXPECT_EQ(replaced, std::string(row.as_object().at("text").as_string())) << testing::PrintToString(bytes);
  }
}

// Byte tokens of the plain BPE vocabulary carry any byte sequence through the stream decoder, one byte a
// token.
TEST(StreamDecoder, BytesArriveAsWholeCharactersAndReplacementsOnly) {
  const auto tokenizer = test::small_tokenizer("plain_bpe.json");
  const boost::json::value golden = test::read_golden("streams.json");
  for (const auto& row : golden.as_array()) {
    text::StreamDecoder stream(*tokenizer);
    std::string all;
    for (const auto& byte : row.as_object().at("bytes").as_array()) {
      const std::string name = fmt::format("<0x{:02X}>", byte.to_number<int>());
      const std::string out = stream.push(tokenizer->find(name).value());
      EXPECT_EQ(text::valid_prefix(out), out.size());
      all += out;
    }
    const std::string rest = stream.finish();
    EXPECT_EQ(text::valid_prefix(rest), rest.size());
    EXPECT_EQ(all + rest, std::string(row.as_object().at("text").as_string()));
  }
}

}  // namespace
}  // namespace quipu
