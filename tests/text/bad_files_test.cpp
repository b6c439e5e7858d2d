// What a damaged or hostile vocabulary leads to: an error that names the key, or a tokenizer that works.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "small_vocabulary.hpp"
#include "text/charsmap.hpp"
#include "text/chat_template.hpp"

namespace quipu {
namespace {

/// The message of the error that loading gives; empty when it loads.
std::string load_error(const gguf::Metadata& metadata) {
  try {
    const auto tokenizer = text::Tokenizer::from_metadata(metadata);
    // What loads must work: every token has a piece, any text has ids, all of them in range.
    for (std::size_t i = 0; i < tokenizer->size(); ++i) tokenizer->piece(static_cast<text::Token>(i), true);
    for (const char* text : {"", "hello world.", "<s>ab</s>\n", "\xff\xc3 \xf0\x9f\x99\x82"}) {
      for (const text::Token token : tokenizer->encode(text)) {
        EXPECT_GE(token, 0);
        EXPECT_LT(static_cast<std::size_t>(token), tokenizer->size());
      }
    }
    return {};
  } catch (const Error& error) {
    return error.message();
  }
}

TEST(BadFiles, EveryFileOfTheManifestEndsAsItSays) {
  const auto folder = test::shared_data() / "gguf-bad";
  QUIPU_REQUIRE_SHARED(folder);
  const boost::json::value manifest = boost::json::parse(test::read_file(folder / "manifest.json"));
  int tokenizers = 0, templates = 0;
  for (const auto& value : manifest.as_array()) {
    const boost::json::object& entry = value.as_object();
    const std::string stage(entry.at("stage").as_string());
    const std::string name(entry.at("file").as_string());
    const std::string outcome(entry.at("outcome").as_string());
    // More tokens than embedding rows is a contradiction that only the model can see.
    if (name == "tokens-more-than-rows.gguf") continue;
    if (stage != "tokenizer" && stage != "template" && stage != "control") continue;
    const gguf::File file = gguf::File::open(folder / "files" / name);
    const std::string message = load_error(file.metadata());
    if (stage == "tokenizer") {
      ++tokenizers;
      if (outcome == "error") {
        EXPECT_NE(message, "") << name;
        EXPECT_NE(message.find("tokenizer.ggml."), std::string::npos) << name << ": " << message;
      }
      if (!message.empty()) {
        EXPECT_NE(message.find(name), std::string::npos) << message;
      }
    }
    if (outcome == "loads") {
      EXPECT_EQ(message, "") << name;
    }
    if (stage == "template") {
      ++templates;
      const auto chat = text::ChatTemplate::from_metadata(file.metadata());
      const std::vector<text::Message> hello = {{"user", "Hello"}};
      if (entry.contains("render") && entry.at("render").as_string() == "error") {
        ASSERT_NE(chat, nullptr) << name;
        EXPECT_THROW(chat->render(hello), Error) << name;
      }
    }
  }
  EXPECT_EQ(tokenizers, 29);
  EXPECT_EQ(templates, 20);
}

gguf::Metadata unigram() { return test::small_metadata(test::read_golden("unigram.json")); }

TEST(BadFiles, UnknownNamesAreErrorsThatListWhatIsKnown) {
  gguf::Metadata metadata = test::small_metadata(test::read_golden("bpe_gpt2.json"));
  metadata.set("tokenizer.ggml.pre", test::string_value("fro\x1b[31mb"));
  const std::string pre = load_error(metadata);
  EXPECT_NE(pre.find("tokenizer.ggml.pre"), std::string::npos) << pre;
  EXPECT_NE(pre.find("llama-bpe"), std::string::npos) << pre;
  EXPECT_EQ(pre.find('\x1b'), std::string::npos) << "raw control characters reach the terminal";
  metadata.set("tokenizer.ggml.model", test::string_value("rwkv"));
  const std::string model = load_error(metadata);
  EXPECT_NE(model.find("rwkv"), std::string::npos) << model;
  EXPECT_NE(model.find("gpt2"), std::string::npos) << model;
}

TEST(BadFiles, CharsmapsThatContradictThemselvesAreRefused) {
  const auto blob = [](std::initializer_list<int> bytes) {
    return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
  };
  EXPECT_THROW(text::Charsmap(blob({1, 0, 0}), "f"), Error);                 // no length
  EXPECT_THROW(text::Charsmap(blob({8, 0, 0, 0, 1, 2, 3, 4}), "f"), Error);  // longer than the blob
  EXPECT_THROW(text::Charsmap(blob({3, 0, 0, 0, 1, 2, 3}), "f"), Error);     // not whole units
  EXPECT_THROW(text::Charsmap(blob({255, 255, 255, 255, 0}), "f"), Error);   // wraps
  // One unit whose offset leads far outside.
  const text::Charsmap outside(blob({4, 0, 0, 0, 0, 0xfc, 0xff, 0x7f, 0}), "f");
  EXPECT_THROW(outside.normalize("a"), Error);
  EXPECT_EQ(text::Charsmap(blob({0, 0, 0, 0}), "f").normalize("a\xff"), "a\xef\xbf\xbd");
}

TEST(BadFiles, CharsmapOfAnotherTypeOrDamagedNeverReadsOutside) {
  gguf::Metadata metadata = unigram();
  metadata.set("tokenizer.ggml.precompiled_charsmap", test::ints_value({1, 2, 3, 4}));
  EXPECT_NE(load_error(metadata).find("precompiled_charsmap"), std::string::npos);
  // Every unit of the real map overwritten in turn: an error or some text, nothing else.
  const gguf::Metadata good = unigram();
  const auto bytes =
      std::get<std::vector<std::uint64_t>>(good.get_array("tokenizer.ggml.precompiled_charsmap").items);
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    std::vector<std::uint8_t> damaged(bytes.begin(), bytes.end());
    damaged[at] = damaged[at + 1] = damaged[at + 3] = 0xa5;
    try {
      text::Charsmap(damaged, "f").normalize("\xef\xac\x81 A\xcc\x8a \xef\xbc\xa1 plain text \xff");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_file);
    }
  }
}

TEST(BadFiles, UnigramNeedsAnUnknownTokenOrBytes) {
  gguf::Metadata metadata = unigram();
  metadata.set("tokenizer.ggml.unknown_token_id", test::uint_value(100000));
  EXPECT_NE(load_error(metadata).find("unknown_token_id"), std::string::npos);
}

TEST(BadFiles, EqualTokensAreFoundAsTheFirst) {
  gguf::Metadata metadata = test::small_metadata(test::read_golden("spm.json"));
  std::vector<std::string> tokens = metadata.try_strings("tokenizer.ggml.tokens")->strings();
  tokens.back() = tokens[300];
  metadata.set("tokenizer.ggml.tokens", test::strings_value(tokens));
  ASSERT_EQ(load_error(metadata), "");
  EXPECT_EQ(text::Tokenizer::from_metadata(metadata)->find(tokens[300]), 300);
}

TEST(BadFiles, TemplatesThatAreNoTextAreDoneWithout) {
  gguf::Metadata metadata;
  EXPECT_EQ(text::ChatTemplate::from_metadata(metadata), nullptr);
  metadata.set("tokenizer.chat_template", test::uint_value(7));
  EXPECT_EQ(text::ChatTemplate::from_metadata(metadata), nullptr);
  metadata.set("tokenizer.chat_template", test::strings_value({"a"}));
  EXPECT_EQ(text::ChatTemplate::from_metadata(metadata), nullptr);
}

}  // namespace
}  // namespace quipu
