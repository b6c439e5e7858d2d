// Logging and the choice of an ISA, both governed by the environment.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <span>
#include <string>

#include "core/cpu_features.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace quipu {
namespace {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = ::getenv(name)) old_ = old;
    ::setenv(name, value, 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    if (old_) {
      ::setenv(name_, old_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

class Log : public testing::Test {
 protected:
  void SetUp() override { before_ = log::level(); }
  void TearDown() override { log::set_level(before_); }
  log::Level before_{};
};

template <class Action>
std::string stderr_of(Action action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

TEST_F(Log, LinesAreThePlainLevelAndTheMessage) {
  log::set_level(log::Level::debug);
  EXPECT_EQ(stderr_of([] { log::warning("{} threads", 3); }), "warning: 3 threads\n");
  EXPECT_EQ(stderr_of([] { log::error("no"); }), "error: no\n");
  EXPECT_EQ(stderr_of([] { log::info("{{}}"); }), "info: {}\n");
  EXPECT_EQ(stderr_of([] { log::debug("%v"); }), "debug: %v\n");
}

TEST_F(Log, MessagesBelowTheLevelAreDropped) {
  log::set_level(log::Level::warning);
  EXPECT_EQ(stderr_of([] { log::info("a"), log::debug("b"), log::write(log::Level::info, "c"); }), "");
  EXPECT_EQ(stderr_of([] { log::warning("d"); }), "warning: d\n");
  log::set_level(log::Level::off);
  EXPECT_EQ(stderr_of([] { log::error("e"), log::write(log::Level::off, "f"); }), "");
}

// Each of these starts the program anew, because the variable is read once.
TEST(LogDeathTest, TheVariableSetsTheFirstLevel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Variable variable("QUIPU_LOG", "debug");
  EXPECT_EXIT(
      {
        log::debug("seen");
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "^debug: seen\n$");
}

TEST(LogDeathTest, WithoutTheVariableWarningsAreShownAndInfoIsNot) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Variable variable("QUIPU_LOG", "");
  EXPECT_EXIT(
      {
        log::info("unseen");
        log::warning("seen");
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "^warning: seen\n$");
}

TEST(LogDeathTest, AnUnknownLevelIsSaidAloud) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Variable variable("QUIPU_LOG", "loud\n");
  EXPECT_EXIT(
      {
        log::info("unseen");
        ::_exit(0);
      },
      testing::ExitedWithCode(0),
      "^warning: QUIPU_LOG is \"loud.n\"; expected debug, info, warning, error or off\n$");
}

TEST(Isa, NamesAreThoseOfTheVariable) {
  EXPECT_EQ(to_string(Isa::baseline), "baseline");
  EXPECT_EQ(to_string(Isa::avx2), "avx2");
  EXPECT_EQ(to_string(Isa::avxvnni), "avxvnni");
  EXPECT_EQ(to_string(Isa::avx512), "avx512");
  EXPECT_EQ(to_string(Isa::amx), "amx");
  EXPECT_EQ(to_string(Isa::neon), "neon");
  EXPECT_EQ(to_string(Isa::i8mm), "i8mm");
}

TEST(Isa, TheFamiliesOfAMachineAscendFromTheBaseline) {
  const std::span<const Isa> here = available_isas();
  EXPECT_EQ(here.front(), Isa::baseline);
  EXPECT_EQ(here.back(), detect_isa());
  for (std::size_t i = 1; i < here.size(); ++i) EXPECT_LT(here[i - 1], here[i]);
}

// The kernel's own view of the processor.
TEST(Isa, AgreesWithTheFlagsInProcCpuinfo) {
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  while (std::getline(file, flags))
    if (flags.starts_with("flags")) break;
  if (!file) GTEST_SKIP() << "SKIPPED: no flags in /proc/cpuinfo";
  flags += ' ';
  const auto has = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (flags.find(' ' + std::string(name) + ' ') == std::string::npos) return false;
    return true;
  };
  const bool avx2 = has({"avx2", "fma", "f16c"});
  const bool avx512 =
      avx2 && has({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512vbmi"});
  const bool amx = avx512 && has({"amx_tile", "amx_int8", "amx_bf16"});
  EXPECT_EQ(detect_isa() >= Isa::avx2, avx2);
  EXPECT_EQ(detect_isa() >= Isa::avx512, avx512);
  const std::span<const Isa> here = available_isas();
  EXPECT_EQ(std::find(here.begin(), here.end(), Isa::avxvnni) != here.end(), avx2 && has({"avx_vnni"}));
  if (!amx) {
    EXPECT_LT(detect_isa(), Isa::amx);  // where the processor has it, the kernel may still refuse
  }
}

int asked = 0;

// Bits by name in the Intel SDM, volume 2, CPUID; XCR0: volume 1, chapter 13.
TEST(Isa, AmxNeedsThePermissionOfTheKernel) {
  const auto granted = [] { return ++asked > 0; };
  const auto refused = [] { return ++asked == 0; };
  using Isas = std::vector<Isa>;
  X86Words words;                                                         // of a Sapphire Rapids
  words.leaf1_ecx = 1U << 12 | 1U << 27 | 1U << 28 | 1U << 29;            // FMA OSXSAVE AVX F16C
  words.leaf7_ebx = 1U << 5 | 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31;  // AVX2 AVX512F DQ BW VL
  words.leaf7_ecx = 1U << 1 | 1U << 11;                                   // AVX512_VBMI _VNNI
  words.leaf7_edx = 1U << 22 | 1U << 24 | 1U << 25;                       // AMX-BF16 -TILE -INT8
  words.leaf7_1_eax = 1U << 4;                                            // AVX-VNNI
  words.saved =
      1U << 1 | 1U << 2 | 1U << 5 | 1U << 6 | 1U << 7 | 1U << 17 | 1U << 18;  // SSE AVX, opmask ZMM, tiles
  const Isas without{Isa::baseline, Isa::avx2, Isa::avxvnni, Isa::avx512};
  Isas with = without;
  with.push_back(Isa::amx);
  EXPECT_EQ(isas_of(words, granted), with);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(isas_of(words, refused), without);
  EXPECT_EQ(asked, 2);
  // Without tiles in the processor or in what the system saves nobody is asked.
  X86Words less = words;
  less.saved &= ~(1U << 18);
  EXPECT_EQ(isas_of(less, granted), without);
  less = words;
  less.leaf7_edx &= ~(1U << 22);
  EXPECT_EQ(isas_of(less, granted), without);
  less = words;
  less.saved &= ~(1U << 7);
  EXPECT_EQ(isas_of(less, granted), (Isas{Isa::baseline, Isa::avx2, Isa::avxvnni}));
  less.leaf1_ecx &= ~(1U << 27);
  EXPECT_EQ(isas_of(less, granted), Isas{Isa::baseline});
  EXPECT_EQ(asked, 2);
}

TEST(Isa, TheVariableForcesALowerFamily) {
  {
    const Variable variable("QUIPU_ISA", "");
    EXPECT_EQ(selected_isa(), detect_isa());
  }
  const std::span<const Isa> here = available_isas();
  for (const Isa isa :
       {Isa::baseline, Isa::avx2, Isa::avxvnni, Isa::avx512, Isa::amx, Isa::neon, Isa::i8mm}) {
    const Variable variable("QUIPU_ISA", std::string(to_string(isa)).c_str());
    if (std::find(here.begin(), here.end(), isa) != here.end()) {
      EXPECT_EQ(selected_isa(), isa);
      continue;
    }
    try {
      selected_isa();
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(error.message().find(to_string(isa)), std::string::npos);
      EXPECT_NE(error.message().find(to_string(detect_isa())), std::string::npos);
    }
  }
}

TEST(Isa, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  const Variable variable("QUIPU_ISA", "AVX9");
  try {
    selected_isa();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.message(),
              "QUIPU_ISA is \"AVX9\"; expected baseline, avx2, avxvnni, avx512, amx, neon or i8mm");
  }
}

}  // namespace
}  // namespace quipu
