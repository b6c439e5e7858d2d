#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "core/huge_pages.hpp"
#include "core/mapped_file.hpp"
#include "temporary_folder.hpp"

namespace quipu {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The error that `action` throws; code `internal` and an empty message when it throws none.
template <class Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorCode::internal, ""};
}

bool contains(const Error& error, std::string_view part) {
  return error.message().find(part) != std::string::npos;
}

// Root may read everything: for the time of the object, be nobody.
class NoPrivileges {
 public:
  NoPrivileges() {
    if (::geteuid() == 0) changed_ = ::seteuid(65534) == 0;
  }
  NoPrivileges(const NoPrivileges&) = delete;
  NoPrivileges& operator=(const NoPrivileges&) = delete;
  ~NoPrivileges() {
    if (changed_ && ::seteuid(0) != 0) ADD_FAILURE() << "cannot become root again";
  }

 private:
  bool changed_ = false;
};

class MappedFileModes : public testing::TestWithParam<MappedFile::Mode> {
 protected:
  TemporaryFolder folder_;
};

TEST_P(MappedFileModes, HoldsTheBytesOfTheFile) {
  const std::string text = std::string("quipu\0", 6) + std::string(100'000, 'x');
  folder_.write("a", text);
  const MappedFile file(folder_ / "a", GetParam());
  EXPECT_EQ(text_of(file.bytes()), text);
  EXPECT_EQ(file.path(), folder_ / "a");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.bytes().data()) % 4096, 0U);
  file.prefetch();
  EXPECT_EQ(text_of(file.bytes()), text);
}

TEST_P(MappedFileModes, AnEmptyFileIsAnEmptySpan) {
  folder_.write("empty", "");
  MappedFile file(folder_ / "empty", GetParam());
  EXPECT_TRUE(file.bytes().empty());
  file.prefetch();
  EXPECT_TRUE(file.lock());
}

/// Of this process, in KiB (proc(5)).
long locked_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmLck:")) return std::stol(line.substr(6));
  return -1;
}

TEST_P(MappedFileModes, LocksItsBytesOrSaysThatItCannot) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  GTEST_SKIP() << "SKIPPED: sanitizers make mlock do nothing";
#endif
#endif
  const std::string text(300'000, 'x');
  folder_.write("a", text);
  const long before = locked_memory();
  {
    MappedFile file(folder_ / "a", GetParam());
    if (file.lock()) {
      EXPECT_EQ(locked_memory() - before, 74 * 4);  // pages of 4 KiB
    } else {
      EXPECT_EQ(locked_memory(), before);
    }
  }
  EXPECT_EQ(locked_memory(), before);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &none), 0);
  {
    const NoPrivileges nobody;
    MappedFile file(folder_ / "a", GetParam());
    EXPECT_FALSE(file.lock());
    EXPECT_EQ(text_of(file.bytes()), text);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

TEST_P(MappedFileModes, MovesLeaveNothingBehind) {
  folder_.write("a", "first");
  folder_.write("b", "second");
  MappedFile a(folder_ / "a", GetParam());
  MappedFile b(folder_ / "b", GetParam());
  const MappedFile moved(std::move(a));
  EXPECT_EQ(text_of(moved.bytes()), "first");
  EXPECT_TRUE(a.bytes().empty());  // NOLINT(bugprone-use-after-move): the state is promised
  a = std::move(b);
  EXPECT_EQ(text_of(a.bytes()), "second");
  EXPECT_TRUE(b.bytes().empty());  // NOLINT(bugprone-use-after-move)
  MappedFile& same = a;
  a = std::move(same);
  EXPECT_EQ(text_of(a.bytes()), "second");
}

TEST_P(MappedFileModes, NamesThePathThatIsMissing) {
  const Error error = error_of([&] { MappedFile(folder_ / "no\nsuch", GetParam()); });
  EXPECT_EQ(error.code(), ErrorCode::not_found);
  EXPECT_TRUE(contains(error, (folder_.path() / "no\\nsuch").string())) << error.message();
  folder_.write("plain", "x");
  EXPECT_EQ(error_of([&] { MappedFile(folder_ / "plain/below", GetParam()); }).code(), ErrorCode::not_found);
  EXPECT_EQ(error_of([&] { MappedFile("", GetParam()); }).code(), ErrorCode::not_found);
}

TEST_P(MappedFileModes, RefusesWhatIsNotARegularFile) {
  const Error folder = error_of([&] { MappedFile(folder_.path(), GetParam()); });
  EXPECT_EQ(folder.code(), ErrorCode::io);
  EXPECT_TRUE(contains(folder, "a directory")) << folder.message();

  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const Error pipe =
      error_of([&] { MappedFile(folder_ / "pipe", GetParam()); });  // must not wait for a writer
  EXPECT_EQ(pipe.code(), ErrorCode::io);
  EXPECT_TRUE(contains(pipe, "a pipe")) << pipe.message();

  const Error device = error_of([&] { MappedFile("/dev/zero", GetParam()); });
  EXPECT_EQ(device.code(), ErrorCode::io);
  EXPECT_TRUE(contains(device, "a device")) << device.message();
}

TEST_P(MappedFileModes, RefusesAFileWithoutReadPermission) {
  folder_.write("secret", "x");
  fs::permissions(folder_ / "secret", fs::perms::none);
  const NoPrivileges nobody;
  const Error error = error_of([&] { MappedFile(folder_ / "secret", GetParam()); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_TRUE(contains(error, "ermission denied")) << error.message();
}

INSTANTIATE_TEST_SUITE_P(All, MappedFileModes, testing::Values(MappedFile::Mode::map, MappedFile::Mode::read),
                         [](const auto& test) {
                           return std::string(test.param == MappedFile::Mode::map ? "Map" : "Read");
                         });

TEST(WriteFileAtomically, CreatesAndReplaces) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", bytes_of("one"));
  EXPECT_EQ(read_text(folder / "a"), "one");
  write_file_atomically(folder / "a", bytes_of(""));
  EXPECT_EQ(read_text(folder / "a"), "");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(WriteFileAtomically, WritesBesideARelativePath) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  write_file_atomically("relative", bytes_of("x"));
  fs::current_path(before);
  EXPECT_EQ(read_text(folder / "relative"), "x");
}

TEST(WriteFileAtomically, KeepsThePermissionsOfTheReplacedFile) {
  const TemporaryFolder folder;
  folder.write("a", "old");
  fs::permissions(folder / "a", fs::perms::owner_read | fs::perms::owner_write);
  write_file_atomically(folder / "a", bytes_of("new"));
  EXPECT_EQ(fs::status(folder / "a").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(WriteFileAtomically, ReplacesTheTargetOfALinkAndKeepsTheLink) {
  const TemporaryFolder folder;
  folder.write("target", "old");
  fs::create_symlink(folder / "target", folder / "link");
  write_file_atomically(folder / "link", bytes_of("new"));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_text(folder / "target"), "new");
}

TEST(WriteFileAtomically, SaysWhyAPathCannotBeWritten) {
  const TemporaryFolder folder;
  const Error missing = error_of([&] { write_file_atomically(folder / "no/such/a", bytes_of("x")); });
  EXPECT_EQ(missing.code(), ErrorCode::not_found);
  EXPECT_TRUE(contains(missing, "no/such/a")) << missing.message();
  const Error directory = error_of([&] { write_file_atomically(folder.path(), bytes_of("x")); });
  EXPECT_EQ(directory.code(), ErrorCode::io);
  EXPECT_TRUE(contains(directory, "is a directory")) << directory.message();
  EXPECT_EQ(error_of([&] { write_file_atomically("/dev/null", bytes_of("x")); }).code(), ErrorCode::io);
  EXPECT_EQ(error_of([&] { write_file_atomically("", bytes_of("x")); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(folder.file_count(), 0U);
}

TEST(WriteFileAtomically, RefusesAFolderWithoutWritePermission) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                                     fs::perms::others_exec);
  const NoPrivileges nobody;
  const Error error = error_of([&] { write_file_atomically(folder / "a", bytes_of("x")); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_TRUE(contains(error, "ermission denied")) << error.message();
}

// A limit on file sizes stands in for a full disk: write() fails half-way in the same manner.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lower{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &lower);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST(AtomicFileWriter, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  folder.write("a", "old");
  const std::string large(3 << 20, 'x');
  std::string message;
  {
    const FileSizeLimit limit(2 << 20);
    const Error error = error_of([&] { write_file_atomically(folder / "a", bytes_of(large)); });
    EXPECT_EQ(error.code(), ErrorCode::io);
    message = error.message();
  }
  EXPECT_NE(message.find((folder / "a").string()), std::string::npos) << message;
  EXPECT_NE(message.find("too large"), std::string::npos) << message;
  EXPECT_EQ(read_text(folder / "a"), "old");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(AtomicFileWriter, ABufferedTailThatDoesNotFitFailsInCommit) {
  const TemporaryFolder folder;
  {
    const FileSizeLimit limit(1000);
    AtomicFileWriter writer(folder / "a");
    writer.append(bytes_of(std::string(2000, 'x')));  // still in the buffer
    EXPECT_EQ(error_of([&] { writer.commit(); }).code(), ErrorCode::io);
    EXPECT_EQ(error_of([&] { writer.append(bytes_of("x")); }).code(), ErrorCode::internal);
  }
  EXPECT_EQ(folder.file_count(), 0U);
}

TEST(AtomicFileWriter, JoinsSmallAndLargePieces) {
  const TemporaryFolder folder;
  std::string expected;
  AtomicFileWriter writer(folder / "a");
  for (const std::size_t size : {1UL, 0UL, 700'000UL, 700'000UL, 3UL, 1UL << 20, 5'000'000UL, 7UL}) {
    const std::string piece(size, static_cast<char>('a' + expected.size() % 26));
    writer.append(bytes_of(piece));
    expected += piece;
    EXPECT_EQ(writer.size(), expected.size());
  }
  EXPECT_FALSE(fs::exists(folder / "a"));
  writer.commit();
  EXPECT_EQ(read_text(folder / "a"), expected);
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(AtomicFileWriter, WithoutCommitNothingRemains) {
  const TemporaryFolder folder;
  folder.write("a", "old");
  {
    AtomicFileWriter writer(folder / "a");
    writer.append(bytes_of("new"));
    EXPECT_EQ(folder.file_count(), 2U);
  }
  EXPECT_EQ(folder.file_count(), 1U);
  EXPECT_EQ(read_text(folder / "a"), "old");
}

TEST(AtomicFileWriter, MovesTakeTheFileAlong) {
  const TemporaryFolder folder;
  AtomicFileWriter first(folder / "a");
  first.append(bytes_of("one "));
  AtomicFileWriter second(std::move(first));
  second.append(bytes_of("two"));
  second.commit();
  EXPECT_EQ(read_text(folder / "a"), "one two");
  EXPECT_EQ(error_of([&] { second.commit(); }).code(), ErrorCode::internal);
}

TEST(AtomicFileWriter, TwoWritersOfOnePathDoNotMeet) {
  const TemporaryFolder folder;
  AtomicFileWriter first(folder / "a"), second(folder / "a");
  first.append(bytes_of("first"));
  second.append(bytes_of("second"));
  second.commit();
  EXPECT_EQ(read_text(folder / "a"), "second");
  first.commit();
  EXPECT_EQ(read_text(folder / "a"), "first");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(AtomicFileWriter, WhatAKilledWriterLeftIsRemoved) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFileWriter file(folder / "state");
    file.append(bytes_of(std::string(3 << 20, 'x')));
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  AtomicFileWriter live(folder / "other");
  std::ofstream(folder / "state") << "whole";
  std::ofstream(folder / "notes.tmp-1") << "of another program";
  ASSERT_EQ(folder.file_count(), 4U);
  EXPECT_TRUE(is_temporary_name(fmt::format("state.tmp-{}-0", child)));
  EXPECT_FALSE(is_temporary_name("state.tmp-"));
  EXPECT_FALSE(is_temporary_name("state.tmp-7-0.bin"));
  EXPECT_EQ(remove_abandoned_files(folder.path()), 1U);
  EXPECT_EQ(folder.file_count(), 3U);
  EXPECT_EQ(remove_abandoned_files(folder / "nowhere"), 0U);
  live.append(bytes_of("on"));
  live.commit();
  EXPECT_EQ(read_text(folder / "other"), "on");
}

/// Whether the page at this address belongs to that file.
bool is_mapped_from(const std::byte* address, const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    const std::size_t dash = line.find('-');
    const auto begin = std::stoull(line.substr(0, dash), nullptr, 16);
    const auto end = std::stoull(line.substr(dash + 1), nullptr, 16);
    if (begin <= wanted && wanted < end) return line.find(path) != std::string::npos;
  }
  return false;
}

TEST(MappedFile, MovesIntoHugePagesWhileOthersRead) {
  TemporaryFolder folder;
  const fs::path path = folder / "big";
  std::string content(7'000'001, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2654435761u >> 13);
  std::ofstream(path, std::ios::binary) << content;
  for (const bool lock : {false, true}) {
    MappedFile file(path);
    if (lock) static_cast<void>(file.lock());  // the system may refuse
    const std::byte* data = file.bytes().data();
    HugePages moved(file.bytes(), lock);
    std::thread reader([&] {
      for (int round = 0; round < 3; ++round) EXPECT_TRUE(text_of(file.bytes()) == content);
    });
    const std::size_t bytes = moved.finish();
    reader.join();
    EXPECT_TRUE(text_of(file.bytes()) == content);
    EXPECT_EQ(file.bytes().data(), data);
    if (bytes == 0) GTEST_SKIP() << "this system has no huge pages";
    // Two whole pieces at least lie in the file, wherever it is mapped; the ends stay.
    EXPECT_GE(bytes, std::size_t{4} << 20);
    const std::string shown = path.string();
    EXPECT_FALSE(is_mapped_from(data + content.size() / 2, shown));
    EXPECT_TRUE(is_mapped_from(data + content.size() - 1, shown) || is_mapped_from(data, shown));
  }
  // Stopped on the way, and moved with its file.
  MappedFile file(path);
  file.move_to_huge_pages();
  file.move_to_huge_pages();
  MappedFile other = std::move(file);
  EXPECT_TRUE(text_of(other.bytes()) == content);
  MappedFile small = MappedFile(folder.path() / "big");
  small = std::move(other);
  EXPECT_TRUE(text_of(small.bytes()) == content);
}

}  // namespace
}  // namespace quipu
