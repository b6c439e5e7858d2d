// Long and repetitive texts: the same ids as short ones, work that grows with the length, and a small stack.
// (llama.cpp#26965, #17786: field case 08.)
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "small_vocabulary.hpp"
#include "support.hpp"
#include "text/merges.hpp"

namespace quipu {
namespace {

using text::MergeTable;
using text::Symbol;

std::string repeat(const std::string& text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

/// Runs `work` on a thread with a stack of 256 KB.
void run_on_small_stack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

struct LongText {
  std::string unit;
  std::size_t count;
};

const std::vector<LongText>& long_texts() {
  static const std::vector<LongText> texts = {
      {"Z", 131072},  {" ", 32768}, {"\n", 30000},   {"us", 30000},  {"\xe6\xb1\x89\xe5\xad\x97", 15000},
      {"1", 30000},   {"!", 30000}, {"\t\n", 15000}, {"A a", 15000}, {"\xf0\x9f\x99\x82", 10000},
      {"\xff", 30000}};
  return texts;
}

class LongTexts : public testing::TestWithParam<const char*> {};

TEST_P(LongTexts, GiveTheIdsOfShorterRunsFromASmallStack) {
  QUIPU_REQUIRE_SHARED(test::vocabulary_path(GetParam()));
  const auto tokenizer = test::load_vocabulary(GetParam());
  run_on_small_stack([&] {
    for (const LongText& text : long_texts()) {
      const auto whole = tokenizer->encode(repeat(text.unit, text.count), {false, false});
      const auto quarter = tokenizer->encode(repeat(text.unit, text.count / 4), {false, false});
      ASSERT_GT(quarter.size(), 8u);
      EXPECT_TRUE(std::equal(quarter.begin(), quarter.end() - 8, whole.begin()))
          << testing::PrintToString(text.unit);
      if (text.unit != "\xff") {
        EXPECT_EQ(tokenizer->decode(whole), repeat(text.unit, text.count))
            << testing::PrintToString(text.unit);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, LongTexts,
                         testing::Values("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4",
                                         "gpt-2", "llama-bpe", "llama-spm", "mpt", "qwen2", "qwen35",
                                         "starcoder"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(LongTextsOfSmallVocabularies, RoundTripAMegabyteOfOneCharacterFromASmallStack) {
  for (const char* golden : {"bpe_gpt2.json", "bpe_llama3.json", "plain_bpe.json", "spm.json"}) {
    const auto tokenizer = test::small_tokenizer(golden);
    run_on_small_stack([&] {
      for (const char* unit : {"a", " ", "\n"}) {
        const std::string text = repeat(unit, (1 << 20) / test::kSanitizerShare);
        EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, {false, false})), text) << golden;
      }
    });
  }
  for (const char* golden : {"unigram.json", "unigram_bytes.json", "wordpiece.json"}) {
    const auto tokenizer = test::small_tokenizer(golden);
    run_on_small_stack([&] {
      EXPECT_FALSE(tokenizer->encode(repeat("a", (1 << 20) / test::kSanitizerShare), {false, false}).empty())
          << golden;
    });
  }
}

/// Merges that double: 0 0 -> 1, 1 1 -> 2, … up to 16.
MergeTable doubling() {
  MergeTable table(16);
  for (std::uint32_t i = 0; i < 16; ++i) table.add(i, i, {i, i + 1});
  return table;
}

std::uint64_t steps_for(std::size_t length) {
  std::vector<Symbol> symbols(length);
  for (std::size_t i = 0; i < length; ++i) symbols[i] = {0, static_cast<std::uint32_t>(i)};
  text::MergeScratch scratch;
  merge_symbols(doubling(), symbols, scratch);
  EXPECT_EQ(symbols.size(), (length + 65535) / 65536);
  return scratch.steps;
}

TEST(Merging, WorkGrowsWithTheLength) {
  const std::uint64_t steps = steps_for(1 << 17);
  EXPECT_LE(steps, 8u << 17);
  EXPECT_LE(steps_for(1 << 18), 2 * steps + 100);
}

/// The definition: of all neighbours that merge, the lowest rank, the leftmost of them; again and again.
std::vector<std::uint32_t> merge_by_definition(
    const std::map<std::pair<std::uint32_t, std::uint32_t>, MergeTable::Merge>& merges,
    std::vector<std::uint32_t> ids) {
  while (true) {
    std::size_t best = ids.size();
    MergeTable::Merge found{0xffffffff, 0};
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto merge = merges.find({ids[i], ids[i + 1]});
      if (merge != merges.end() && merge->second.rank < found.rank) {
        best = i;
        found = merge->second;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = found.merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Merging, EqualsTheDefinitionOnRandomTables) {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    // Symbols stand for strings: a merged symbol is always a new one, as longer texts are.
    std::map<std::pair<std::uint32_t, std::uint32_t>, MergeTable::Merge> merges;
    MergeTable table(64);
    for (std::uint32_t rank = 0; rank < 60; ++rank) {
      const std::uint32_t symbols = 4 + rank;
      const std::pair<std::uint32_t, std::uint32_t> pair = {random() % symbols, random() % symbols};
      const MergeTable::Merge merge{rank, symbols};
      merges.emplace(pair, merge);
      table.add(pair.first, pair.second, merge);
    }
    for (const std::size_t length : {1u, 2u, 3u, 17u, 48u, 49u, 50u, 200u}) {
      std::vector<std::uint32_t> ids(length);
      std::vector<Symbol> symbols(length);
      for (std::size_t i = 0; i < length; ++i) {
        ids[i] = random() % 4;
        symbols[i] = {ids[i], static_cast<std::uint32_t>(i)};
      }
      text::MergeScratch scratch;
      merge_symbols(table, symbols, scratch);
      std::vector<std::uint32_t> merged;
      for (const Symbol& symbol : symbols) merged.push_back(symbol.id);
      EXPECT_EQ(merged, merge_by_definition(merges, ids)) << "round " << round << ", length " << length;
    }
  }
}

TEST(SpecialTokens, AMegabyteOfThemIsReadOneByOne) {
  const auto tokenizer = test::small_tokenizer("bpe_gpt2.json");
  const std::size_t count = 80000;
  const auto ids = tokenizer->encode(repeat("<|im_start|>", count), {false, true});
  EXPECT_EQ(ids, std::vector<text::Token>(count, tokenizer->find("<|im_start|>").value()));
}

}  // namespace
}  // namespace quipu
