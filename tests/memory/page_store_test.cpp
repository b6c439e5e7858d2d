#include "memory/page_store.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "memory/prefix_tree.hpp"
#include "page_fixture.hpp"
#include "tiny_model.hpp"

namespace quipu::memory {
namespace {

namespace fs = std::filesystem;
using test::extend;
using test::make_pool;
using test::numbers;
using test::wrong_rows;

PageStoreOptions in(const test::TemporaryFolder& folder, std::uint64_t max_bytes = 1 << 20) {
  return {folder.path(), max_bytes, 7};
}
std::vector<fs::path> files_in(const test::TemporaryFolder& folder) {
  std::vector<fs::path> files;
  for (const auto& item : fs::recursive_directory_iterator(folder.path())) {
    if (item.is_regular_file()) files.push_back(item.path());
  }
  return files;
}
/// Computes 205 tokens from 0 on in a tree that is then gone: three whole pages are in files.
void fill(const test::TemporaryFolder& folder) {
  const auto pool = make_pool();
  PageStore store(*pool, in(folder));
  PrefixTree tree(pool, &store);
  Sequence sequence(pool);
  ASSERT_TRUE(extend(sequence, numbers(0, 205)));
  tree.insert_all(sequence);
}

TEST(PageStore, ATreeFindsItsPagesAgainInAnotherProcess) {
  test::TemporaryFolder folder;
  fill(folder);
  EXPECT_EQ(files_in(folder).size(), 3u);
  const auto pool = make_pool({8, true});  // other page numbers
  PageStore store(*pool, in(folder));
  PrefixTree tree(pool, &store);
  Sequence sequence(pool);
  EXPECT_EQ(tree.extend(sequence, numbers(0, 190)), 128);
  EXPECT_EQ(wrong_rows(sequence), 0);
  EXPECT_EQ(tree.pages(), 2u);
  EXPECT_EQ(store.stats().loaded, 2u);
  Sequence other(pool);
  EXPECT_EQ(tree.extend(other, numbers(1, 190)), 0);
  EXPECT_EQ(tree.extend(other, numbers(0, 192)), 192);
  EXPECT_EQ(store.stats().loaded, 3u) << "what the tree knows is not read again";
}

TEST(PageStore, PagesThatAreGivenUpComeBack) {
  test::TemporaryFolder folder;
  const auto pool = make_pool({4});
  PageStore store(*pool, in(folder));
  PrefixTree tree(pool, &store);
  {
    Sequence sequence(pool);
    ASSERT_TRUE(extend(sequence, numbers(0, 192)));
    tree.insert(sequence);
  }
  EXPECT_EQ(tree.why_not(numbers(0, 192)), "");
  while (tree.evict()) {
  }
  EXPECT_EQ(pool->free_pages(), 4u);
  EXPECT_EQ(tree.why_not(numbers(0, 192)), "tokens 0 to 63 were known and gave their memory to others");
  {
    Sequence fresh(pool);  // takes all pages but one
    ASSERT_TRUE(extend(fresh, numbers(500, 192)));
    tree.insert(fresh);
  }
  // Makes room for itself: three of the others go to files.
  Sequence again(pool);
  EXPECT_EQ(tree.extend(again, numbers(0, 192)), 192);
  EXPECT_EQ(wrong_rows(again), 0);
}

TEST(PageStore, FilesAreReadInAsManyTurnsAsTheDriverAllows) {
  test::TemporaryFolder folder;
  fill(folder);
  const auto pool = make_pool();
  PageStore store(*pool, in(folder));
  PrefixTree tree(pool, &store);
  Sequence sequence(pool);
  tree.allow_store(2);
  EXPECT_EQ(tree.extend(sequence, numbers(0, 200)), 128);
  EXPECT_TRUE(tree.more_is_stored());
  EXPECT_EQ(tree.extend(sequence, numbers(0, 200)), 0);
  EXPECT_TRUE(tree.more_is_stored());
  tree.allow_store(2);
  EXPECT_EQ(tree.extend(sequence, numbers(0, 200)), 64);
  EXPECT_FALSE(tree.more_is_stored()) << "no file goes on with a whole page";
  EXPECT_TRUE(tree.may_store());
  EXPECT_EQ(wrong_rows(sequence), 0);
  // What is written counts as well, and is written all the same.
  sequence.truncate(0);
  tree.allow_store(0);
  EXPECT_FALSE(tree.may_store());
  EXPECT_TRUE(tree.evict());
  EXPECT_EQ(store.stats().pages, 3u);
}

TEST(PageStore, ADamagedFileIsAMiss) {
  const std::size_t size = [] {
    test::TemporaryFolder folder;
    fill(folder);
    return static_cast<std::size_t>(fs::file_size(files_in(folder).front()));
  }();
  for (std::size_t at = 0; at < size; at += at < 60 ? 1 : 997) {
    test::TemporaryFolder folder;
    fill(folder);
    for (const fs::path& path : files_in(folder)) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const char byte = static_cast<char>(file.get() ^ 0x10);
      file.seekp(static_cast<std::streamoff>(at));
      file.put(byte);
    }
    const auto pool = make_pool();
    PageStore store(*pool, in(folder));
    PrefixTree tree(pool, &store);
    Sequence sequence(pool);
    EXPECT_EQ(tree.extend(sequence, numbers(0, 192)), 0) << at;
    EXPECT_EQ(store.stats().damaged, 1u);
    EXPECT_EQ(pool->free_pages(), 8u);
    EXPECT_EQ(files_in(folder).size(), 2u) << "it is removed";
  }
}

TEST(PageStore, CutFilesLeftoversAndOtherModelsAreNotUsed) {
  test::TemporaryFolder folder;
  fill(folder);
  const std::vector<fs::path> files = files_in(folder);
  for (const fs::path& path : files) fs::resize_file(path, fs::file_size(path) / 2);
  std::ofstream(files[0].parent_path() / "x.page.new") << "half";
  const auto pool = make_pool();
  PageStore store(*pool, in(folder));
  EXPECT_FALSE(fs::exists(files[0].parent_path() / "x.page.new"));
  PrefixTree tree(pool, &store);
  Sequence sequence(pool);
  EXPECT_EQ(tree.extend(sequence, numbers(0, 192)), 0);
  test::TemporaryFolder good;
  fill(good);
  PageStoreOptions another = in(good);
  another.fingerprint = 8;
  PageStore of_another(*pool, another);
  EXPECT_EQ(of_another.stats().pages, 0u);
  test::PoolSettings wider;
  wider.v = DType::f32;
  const auto other_types = make_pool(wider);
  EXPECT_EQ(PageStore(*other_types, in(good)).stats().pages, 0u);
}

TEST(PageStore, KeepsToItsLimitByWhatWasUsedLongestAgo) {
  test::TemporaryFolder folder;
  fill(folder);
  const std::uint64_t one = fs::file_size(files_in(folder).front());
  const auto pool = make_pool();
  PageStore store(*pool, in(folder, one * 5 / 2));
  EXPECT_EQ(store.stats().pages, 2u);
  EXPECT_LE(store.stats().bytes, one * 5 / 2);
  EXPECT_EQ(files_in(folder).size(), 2u);
  Sequence sequence(pool);
  ASSERT_TRUE(extend(sequence, numbers(900, 64)));
  store.put(sequence.tokens(), sequence.pages()[0]);
  EXPECT_TRUE(store.holds(sequence.tokens()));
  EXPECT_LE(store.stats().bytes, one * 5 / 2);
}

TEST(PageStore, AFolderThatCannotBeUsedIsAnErrorAndAFullDiskIsNot) {
  test::TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  const auto pool = make_pool();
  EXPECT_THROW(PageStore(*pool, {folder / "file", 1 << 20, 7}), Error);
  PageStore store(*pool, in(folder));
  fs::remove_all(folder.path());
  Sequence sequence(pool);
  ASSERT_TRUE(extend(sequence, numbers(0, 64)));
  store.put(sequence.tokens(), sequence.pages()[0]);
  EXPECT_FALSE(store.holds(sequence.tokens()));
}

TEST(PrefixTree, SaysWhyAPrefixIsNotKnown) {
  const auto pool = make_pool();
  PrefixTree tree(pool);
  Sequence sequence(pool);
  ASSERT_TRUE(extend(sequence, numbers(0, 128)));
  tree.insert(sequence);
  EXPECT_EQ(tree.known(numbers(0, 200)), 128);
  EXPECT_EQ(tree.why_not(numbers(0, 150)), "");
  EXPECT_EQ(tree.why_not(numbers(0, 200)), "nothing known goes on behind token 127");
  EXPECT_EQ(tree.why_not(numbers(5, 200)), "nothing known begins so");
  std::vector<std::int32_t> tokens = numbers(0, 128);
  tokens[70] = 5;
  EXPECT_EQ(tree.why_not(tokens), "what is known differs from token 70 on");
}

}  // namespace
}  // namespace quipu::memory
