// The default model against transformers in float32 on the same dequantised weights
// (tools/goldens/make_default_model_golden.py). Results: docs/fidelity.md.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>

#include "golden.hpp"
#include "run_model.hpp"
#include "tiny_model.hpp"

namespace quipu {
namespace {

using test::Golden;
using test::ModelRun;

constexpr std::size_t kDirections = 64;

// A sanitizer makes the plain loops of the reference backend tens of times slower: shorter runs then.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

/// Bit j set: direction j has -1 at this vocabulary id (splitmix64, as in the generating script).
std::uint64_t sign_bits(std::uint64_t id) {
  std::uint64_t z = (id + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Cosine of two rows of logits from their lengths and 64 projections. Each direction sees the squared
/// distance of the normed rows in expectation, so that 1 - cosine is known to about a fifth of itself.
class Projector {
 public:
  explicit Projector(std::size_t vocab) : bits_(vocab) {
    for (std::size_t id = 0; id < vocab; ++id) bits_[id] = sign_bits(id);
  }
  double cosine(std::span<const float> row, std::span<const float> projection, double norm) const {
    std::array<double, kDirections> sums{};
    double squares = 0;
    for (std::size_t id = 0; id < row.size(); ++id) {
      squares += static_cast<double>(row[id]) * row[id];
      for (std::size_t j = 0; j < kDirections; ++j) sums[j] += (bits_[id] >> j & 1) != 0 ? -row[id] : row[id];
    }
    double distance = 0;
    for (std::size_t j = 0; j < kDirections; ++j) {
      const double d = sums[j] / std::sqrt(squares) - projection[j] / norm;
      distance += d * d;
    }
    return 1 - distance / (2.0 * kDirections);
  }

 private:
  std::vector<std::uint64_t> bits_;
};

class DefaultModel : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = test::default_model_path();
    QUIPU_REQUIRE_MODEL(path);
    model_ = models::Model::load(path);
    vocab_ = model_->hyperparameters().vocab;
  }
  static std::string of(const char* what, int prompt) { return what + ("." + std::to_string(prompt)); }

  std::vector<float> logits(std::shared_ptr<backends::Backend> backend, DType kv,
                            const std::vector<std::int32_t>& tokens) const {
    ModelRun run(model_, std::move(backend), 1024, 512, kv);
    return run.push(tokens);
  }
  void expect_golden(const std::vector<float>& found, int prompt, double least_cosine) const {
    const std::size_t rows = golden_.ints(of("tokens", prompt)).size();
    ASSERT_EQ(found.size(), rows * vocab_);
    const auto row = [&](std::size_t r) { return std::span(found).subspan(r * vocab_, vocab_); };
    const auto norms = golden_.floats(of("norm", prompt));
    const auto projections = golden_.floats(of("projection", prompt));
    const Projector projector(vocab_);
    for (std::size_t r = 0; r < rows; ++r)
      EXPECT_GE(
          projector.cosine(row(r), std::span(projections).subspan(r * kDirections, kDirections), norms[r]),
          least_cosine)
          << "prompt " << prompt << " position " << r;
    const auto whole = golden_.floats(of("logits", prompt));
    const auto positions = golden_.ints(of("rows", prompt));
    for (std::size_t i = 0; i < positions.size(); ++i)
      EXPECT_GE(test::cosine(row(static_cast<std::size_t>(positions[i])),
                             std::span(whole).subspan(i * vocab_, vocab_)),
                least_cosine)
          << "prompt " << prompt << " position " << positions[i];
    // The likeliest token is the same wherever transformers has it clearly ahead.
    const auto ids = golden_.ints(of("top_ids", prompt));
    const auto top = golden_.floats(of("top_logits", prompt));
    for (std::size_t r = 0; r < rows; ++r)
      if (top[5 * r] - top[5 * r + 1] > 0.5f) {
        EXPECT_EQ(test::top(row(r)), static_cast<std::size_t>(ids[5 * r])) << "position " << r;
      }
  }
  std::vector<std::int32_t> greedy(const std::vector<std::int32_t>& prompt, std::size_t count) const {
    ModelRun run(model_, backends::make_reference_backend(), 1024, 512);
    std::vector<std::int32_t> ids;
    std::vector<float> last = run.push(prompt, true);
    while (true) {
      ids.push_back(static_cast<std::int32_t>(test::top(last)));
      if (ids.size() == count) return ids;
      last = run.push(std::span(ids).last(1), true);
    }
  }

  const Golden golden_{test::golden_path("smollm2.golden.gguf")};
  std::shared_ptr<const models::Model> model_;
  std::size_t vocab_ = 0;
};

TEST_F(DefaultModel, IsDescribedAndLoadsWithoutWarnings) {
  EXPECT_EQ(model_->description(), "llama 135M Q4_1");
  EXPECT_EQ(model_->hyperparameters().trained_context, 8192u);
  EXPECT_TRUE(model_->warnings().empty());
}

TEST_F(DefaultModel, PromptsBecomeTheTokensOfTheTokenizersLibrary) {
  const auto& prompts = *golden_.metadata().try_strings("golden.prompts");
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(model_->tokenizer().encode(prompts[static_cast<std::size_t>(i)]),
              golden_.ints(of("tokens", i)));
}

TEST_F(DefaultModel, CpuLogitsAreCloseAtEveryPosition) {
  for (int i = 0; i < (kSanitized ? 1 : 3); ++i)
    expect_golden(logits(backends::make_cpu_backend(), DType::f16, golden_.ints(of("tokens", i))), i, 0.9995);
}

TEST_F(DefaultModel, ReferenceLogitsAreThoseOfTransformers) {
  if (kSanitized) GTEST_SKIP() << "SKIPPED: too slow under a sanitizer; the tiny models run the same code";
  expect_golden(logits(backends::make_reference_backend(), DType::f32, golden_.ints("tokens.0")), 0, 0.99999);
}

TEST_F(DefaultModel, ReferenceGreedyContinuationIsThatOfTransformers) {
  std::vector<std::int32_t> expected = golden_.ints("greedy.0");
  if (kSanitized) expected.resize(2);
  EXPECT_EQ(greedy(golden_.ints("tokens.0"), expected.size()), expected);
}

/// The long check (minutes): true cosines at every position of every prompt, and all continuations.
TEST_F(DefaultModel, FullLogitsAgreeEverywhere) {
  const char* path = std::getenv("QUIPU_FULL_LOGITS");
  if (path == nullptr)
    GTEST_SKIP() << "SKIPPED: QUIPU_FULL_LOGITS names no file written by make_default_model_golden.py --full";
  const Golden full{std::filesystem::path(path)};
  for (int i = 0; full.has(of("tokens", i)); ++i) {
    const auto tokens = full.ints(of("tokens", i));
    const auto expected = full.floats(of("logits", i));
    for (const bool cpu : {true, false}) {
      const auto found = cpu ? logits(backends::make_cpu_backend(), DType::f16, tokens)
                             : logits(backends::make_reference_backend(), DType::f32, tokens);
      double least = 1, sum = 0;
      std::size_t same = 0;
      for (std::size_t r = 0; r < tokens.size(); ++r) {
        const auto f = std::span(found).subspan(r * vocab_, vocab_);
        const auto e = std::span(expected).subspan(r * vocab_, vocab_);
        const double c = test::cosine(f, e);
        least = std::min(least, c);
        sum += c;
        same += test::top(f) == test::top(e) ? 1 : 0;
      }
      std::printf("prompt %d, %zu tokens, %s: cosine least %.8f mean %.8f, same top token %zu\n", i,
                  tokens.size(), cpu ? "cpu" : "reference", least, sum / static_cast<double>(tokens.size()),
                  same);
      EXPECT_GE(least, cpu ? 0.9995 : 0.99999);
    }
    EXPECT_EQ(greedy(tokens, 64), golden_.ints(of("greedy", i)));
  }
}

}  // namespace
}  // namespace quipu
