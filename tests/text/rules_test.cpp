// The rules around the algorithms: special tokens, BOS, prefixes, end of generation. Expected ids of the
// shared vocabularies: public bug reports named at each test, confirmed with Hugging Face tokenizers
// (tools/goldens/check_llama_spm.py) where the comment says so.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "small_vocabulary.hpp"

namespace quipu {
namespace {

using text::Token;
using Ids = std::vector<Token>;

/// A byte-level BPE with the 256 byte characters left out but for a few letters: ids are easy to see.
gguf::Metadata letters(const std::vector<std::string>& tokens, const std::vector<std::int64_t>& types,
                       const std::vector<std::string>& merges) {
  gguf::Metadata metadata;
  metadata.set_origin("letters.gguf");
  metadata.set("tokenizer.ggml.model", test::string_value("gpt2"));
  metadata.set("tokenizer.ggml.pre", test::string_value("gpt-2"));
  metadata.set("tokenizer.ggml.tokens", test::strings_value(tokens));
  metadata.set("tokenizer.ggml.token_type", test::ints_value(types));
  metadata.set("tokenizer.ggml.merges", test::strings_value(merges));
  return metadata;
}

TEST(SpecialTokens, ControlTokensAreReadOnlyWhenAskedFor) {
  const auto tokenizer = test::small_tokenizer("bpe_gpt2.json");
  const Token start = tokenizer->find("<|im_start|>").value();
  EXPECT_EQ(tokenizer->encode("<|im_start|>", {false, true}), Ids{start});
  const Ids plain = tokenizer->encode("<|im_start|>", {false, false});
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), start), 0);
  EXPECT_EQ(tokenizer->decode(plain), "<|im_start|>");
}

TEST(SpecialTokens, UserDefinedTokensAreAlwaysMatchedTheLongestFirst) {
  const auto tokenizer = test::small_tokenizer("bpe_gpt2.json");
  const Token two = tokenizer->find("  ").value();
  const Token four = tokenizer->find("    ").value();
  for (const bool parse : {false, true}) {
    EXPECT_EQ(tokenizer->encode("    ", {false, parse}), Ids{four});
    EXPECT_EQ(tokenizer->encode("      ", {false, parse}), (Ids{four, two}));
  }
}

// A vocabulary whose plain text could merge into a control token's text must not let it.
TEST(SpecialTokens, MergesNeverProduceAControlToken) {
  const auto tokenizer =
      text::Tokenizer::from_metadata(letters({"a", "b", "ab", "<"}, {1, 1, 3, 1}, {"a b"}));
  EXPECT_EQ(tokenizer->encode("ab", {false, false}), (Ids{0, 1}));
  EXPECT_EQ(tokenizer->encode("ab", {false, true}), Ids{2});
}

TEST(SpecialTokens, PiecesOfControlTokensAreEmptyUnlessAskedFor) {
  const auto tokenizer = test::small_tokenizer("bpe_gpt2.json");
  const Token start = tokenizer->find("<|im_start|>").value();
  EXPECT_EQ(tokenizer->piece(start), "");
  EXPECT_EQ(tokenizer->piece(start, true), "<|im_start|>");
  EXPECT_EQ(tokenizer->piece(tokenizer->find("\xc4\xa0the").value()), " the");
  EXPECT_THROW(tokenizer->piece(-1), Error);
  EXPECT_THROW(tokenizer->piece(static_cast<Token>(tokenizer->size())), Error);
}

// llama.cpp#7193 (field case 05): a piece that is a whole vocabulary entry is taken before any merge.
TEST(Bpe, WholeEntriesComeBeforeMergesWhereTheFamilySaysSo) {
  QUIPU_REQUIRE_SHARED(test::vocabulary_path("llama-bpe"));
  const auto tokenizer = test::load_vocabulary("llama-bpe");
  EXPECT_EQ(tokenizer->encode(" Vi\xe1\xbb\x87t", {false, false}), Ids{101798});
}

TEST(Bpe, WholeEntriesNeedTheRule) {
  // "abc" cannot be reached by the one merge there is.
  gguf::Metadata metadata = letters({"a", "b", "c", "ab", "abc"}, {1, 1, 1, 1, 1}, {"a b"});
  EXPECT_EQ(text::Tokenizer::from_metadata(metadata)->encode("abc", {false, false}), (Ids{3, 2}));
  metadata.set("tokenizer.ggml.pre", test::string_value("llama-bpe"));
  EXPECT_EQ(text::Tokenizer::from_metadata(metadata)->encode("abc", {false, false}), Ids{4});
}

TEST(Bpe, LowestRankFirstThenLeftmost) {
  // Ranks by order: "b c" before "a b", so abc is a + bc; aaa is aa + a.
  const auto tokenizer = text::Tokenizer::from_metadata(
      letters({"a", "b", "c", "bc", "ab", "aa"}, {1, 1, 1, 1, 1, 1}, {"b c", "a b", "a a"}));
  EXPECT_EQ(tokenizer->encode("abc", {false, false}), (Ids{0, 3}));
  EXPECT_EQ(tokenizer->encode("aaa", {false, false}), (Ids{5, 0}));
  // The same beyond the length where the heap takes over: 101 times a is 50 pairs and one.
  const Ids long_run = tokenizer->encode(std::string(101, 'a'), {false, false});
  ASSERT_EQ(long_run.size(), 51u);
  EXPECT_EQ(long_run.front(), 5);
  EXPECT_EQ(long_run.back(), 0);
}

TEST(Bpe, BytesWithoutATokenAreUnknownOrLeftOut) {
  gguf::Metadata metadata = letters({"a", "<unk>"}, {1, 2}, {});
  EXPECT_EQ(text::Tokenizer::from_metadata(metadata)->encode("aba", {false, false}), (Ids{0, 0}));
  metadata.set("tokenizer.ggml.unknown_token_id", test::uint_value(1));
  EXPECT_EQ(text::Tokenizer::from_metadata(metadata)->encode("aba", {false, false}), (Ids{0, 1, 0}));
}

TEST(Bpe, InvalidUtf8IsWrittenInBytesOrAsU_FFFD) {
  const auto all_bytes = test::small_tokenizer("bpe_gpt2.json");
  EXPECT_EQ(all_bytes->decode(all_bytes->encode("a\xff\xc3z", {false, false})), "a\xff\xc3z");
  QUIPU_REQUIRE_SHARED(test::vocabulary_path("falcon"));
  const auto falcon = test::load_vocabulary("falcon");  // without a token for the byte FF
  EXPECT_EQ(falcon->decode(falcon->encode("a\xffz", {false, false})), "a\xef\xbf\xbdz");
}

// llama.cpp#23840 (field case 07), confirmed by check_llama_spm.py.
TEST(SentencePiece, TextAfterAControlTokenGetsItsOwnPrefix) {
  QUIPU_REQUIRE_SHARED(test::vocabulary_path("llama-spm"));
  const auto tokenizer = test::load_vocabulary("llama-spm");
  EXPECT_EQ(tokenizer->encode("Hello</s> world", {false, true}), (Ids{15043, 2, 29871, 3186}));
  EXPECT_EQ(tokenizer->encode("Hello</s>  world", {false, true}), (Ids{15043, 2, 259, 3186}));
  EXPECT_EQ(tokenizer->encode("Hello</s>   world", {false, true}), (Ids{15043, 2, 1678, 3186}));
  for (const char* text : {"Hello</s> world", "Hello</s>world", "</s>   x</s>"})
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, {false, true}), true), text);
}

// llama-cpp-python#1501 (field case 38).
TEST(Bos, AddedOnceAlsoWhenTheTextBringsOne) {
  QUIPU_REQUIRE_SHARED(test::vocabulary_path("gemma-4"));
  for (const char* name : {"gemma-4", "llama-spm", "llama-bpe", "command-r"}) {
    const auto tokenizer = test::load_vocabulary(name);
    ASSERT_TRUE(tokenizer->add_bos && tokenizer->bos) << name;
    const Ids with = tokenizer->encode("Hi");
    EXPECT_EQ(with.front(), *tokenizer->bos) << name;
    EXPECT_EQ(std::count(with.begin(), with.end(), *tokenizer->bos), 1) << name;
    EXPECT_EQ(tokenizer->encode(std::string(tokenizer->text(*tokenizer->bos)) + "Hi"), with) << name;
    EXPECT_EQ(tokenizer->encode(std::string(tokenizer->text(*tokenizer->bos))), Ids{*tokenizer->bos}) << name;
    EXPECT_EQ(tokenizer->encode(""), Ids{*tokenizer->bos}) << name;
    // Without adding, the text's own stays.
    EXPECT_EQ(tokenizer->encode(std::string(tokenizer->text(*tokenizer->bos)) + "Hi", {false, true}), with)
        << name;
  }
}

// Defaults where the keys are absent (llama.cpp's, see docs/tokenizers.md); the vocabularies store none.
TEST(Bos, DefaultsFollowTheFamily) {
  QUIPU_REQUIRE_SHARED(test::vocabulary_path("baichuan"));
  EXPECT_TRUE(test::load_vocabulary("llama-bpe")->add_bos);
  EXPECT_FALSE(test::load_vocabulary("gpt-2")->add_bos);
  EXPECT_FALSE(test::load_vocabulary("qwen2")->add_bos);
  const auto baichuan = test::load_vocabulary("baichuan");
  EXPECT_TRUE(baichuan->add_bos);
  EXPECT_TRUE(baichuan->add_space_prefix);
  const auto bert = test::load_vocabulary("bert-bge");
  const Ids ids = bert->encode("");
  EXPECT_EQ(ids, (Ids{101, 102}));  // [CLS] [SEP]
}

TEST(Eos, AddedWhenTheFileAsks) {
  gguf::Metadata metadata = letters({"a", "</s>"}, {1, 3}, {});
  metadata.set("tokenizer.ggml.eos_token_id", test::uint_value(1));
  EXPECT_EQ(text::Tokenizer::from_metadata(metadata)->encode("a"), Ids{0});
  metadata.set("tokenizer.ggml.add_eos_token", test::bool_value(true));
  EXPECT_EQ(text::Tokenizer::from_metadata(metadata)->encode("a"), (Ids{0, 1}));
  EXPECT_EQ(text::Tokenizer::from_metadata(metadata)->encode("a", {false, true}), Ids{0});
}

TEST(Eos, AskingForATokenThatIsNotThereIsAnError) {
  gguf::Metadata metadata = letters({"a"}, {1}, {});
  metadata.set("tokenizer.ggml.add_bos_token", test::bool_value(true));
  try {
    text::Tokenizer::from_metadata(metadata);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    EXPECT_NE(error.message().find("add_bos_token"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("letters.gguf"), std::string::npos) << error.message();
  }
}

TEST(EndOfGeneration, EosEotAndTheTokensKnownByName) {
  gguf::Metadata metadata = letters(
      {"a", "b", "c", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|im_start|>", "<|fim_pad|>", "</s>"},
      {1, 1, 3, 3, 3, 3, 3, 3, 1}, {});
  metadata.set("tokenizer.ggml.eos_token_id", test::uint_value(1));
  metadata.set("tokenizer.ggml.eot_token_id", test::uint_value(2));
  const auto tokenizer = text::Tokenizer::from_metadata(metadata);
  const std::vector<bool> expected = {false, true, true, true, true, true, false, true, false};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(tokenizer->is_end_of_generation(static_cast<Token>(i)), expected[i]) << i;
}

TEST(EndOfGeneration, EndClosesAMessageOnlyWhereTheModelHasChannels) {
  const auto plain = text::Tokenizer::from_metadata(letters({"a", "<|end|>"}, {1, 3}, {}));
  EXPECT_TRUE(plain->is_end_of_generation(1));
  const auto channels =
      text::Tokenizer::from_metadata(letters({"a", "<|end|>", "<|return|>", "<|call|>"}, {1, 3, 3, 3}, {}));
  EXPECT_FALSE(channels->is_end_of_generation(1));
  EXPECT_TRUE(channels->is_end_of_generation(2));
}

// The ids that llama.cpp (September 2026) lists for these vocabularies.
TEST(EndOfGeneration, OfRealVocabularies) {
  QUIPU_REQUIRE_SHARED(test::vocabulary_path("llama-bpe"));
  const auto ends = [](const char* name) {
    const auto tokenizer = test::load_vocabulary(name);
    Ids ids;
    for (Token i = 0; i < static_cast<Token>(tokenizer->size()); ++i)
      if (tokenizer->is_end_of_generation(i)) ids.push_back(i);
    return ids;
  };
  EXPECT_EQ(ends("llama-bpe"), (Ids{128001, 128009}));
  EXPECT_EQ(ends("llama-spm"), Ids{2});
  EXPECT_EQ(ends("qwen2"), (Ids{151643, 151645}));
}

TEST(StreamDecoder, DropsThePrefixSpaceAtTheStartOnly) {
  QUIPU_REQUIRE_SHARED(test::vocabulary_path("llama-spm"));
  const auto tokenizer = test::load_vocabulary("llama-spm");
  text::StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.push(1), "");  // <s>
  EXPECT_EQ(stream.push(15043), "Hello");
  EXPECT_EQ(stream.push(3186), " world");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, AfterAPromptTheFirstSpaceIsText) {
  QUIPU_REQUIRE_SHARED(test::vocabulary_path("llama-spm"));
  const auto tokenizer = test::load_vocabulary("llama-spm");
  text::StreamDecoder after_text(*tokenizer, false, 15043);
  EXPECT_EQ(after_text.push(3186), " world");
  text::StreamDecoder after_control(*tokenizer, false, 2);
  EXPECT_EQ(after_control.push(3186), "world");
}

TEST(StreamDecoder, HoldsBackHalfAnEmoji) {
  QUIPU_REQUIRE_SHARED(test::vocabulary_path("gpt-2"));
  const auto tokenizer = test::load_vocabulary("gpt-2");
  const Ids ids = tokenizer->encode("\xf0\x9f\x99\x82", {false, false});
  ASSERT_GT(ids.size(), 1u);
  text::StreamDecoder stream(*tokenizer);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(stream.push(ids[i]), "");
  EXPECT_EQ(stream.push(ids.back()), "\xf0\x9f\x99\x82");
  text::StreamDecoder cut(*tokenizer);
  EXPECT_EQ(cut.push(ids.front()), "");
  EXPECT_EQ(cut.finish(), "\xef\xbf\xbd");
}

}  // namespace
}  // namespace quipu
