#include "text/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <limits>
#include <new>

#include "core/error.hpp"

namespace quipu::text {

namespace {

constexpr std::size_t kJitStackStart = 32 * 1024;
constexpr std::size_t kJitStackMax = 16 * 1024 * 1024;
constexpr std::uint64_t kMatchLimit = 10'000'000;
constexpr std::uint64_t kMatchLimitPerByte = 16;
constexpr std::uint32_t kHeapLimitKiB = 64 * 1024;  // of the interpreter, where there is no JIT

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern) {
  auto code = std::make_shared<Code>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (code->code == nullptr)
    fail(ErrorCode::internal, "pre-tokenizer expression does not compile: PCRE2 error {} at offset {}", error,
         offset);
  // Where JIT is not allowed (hardened kernels) the interpreter gives the same matches.
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  code_ = std::move(code);
}

struct RegexScratch::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr);
  std::uint64_t limit = 0;

  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

RegexScratch::RegexScratch() : state_(std::make_unique<State>()) {
  if (state_->data == nullptr || state_->context == nullptr) throw std::bad_alloc();
  if (state_->stack != nullptr) pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
  pcre2_set_heap_limit(state_->context, kHeapLimitKiB);
}

RegexScratch::~RegexScratch() = default;

RegexScratch::Match RegexScratch::find(const Regex& regex, std::string_view text, std::size_t start) {
  State& state = *state_;
  const std::uint64_t limit = std::min<std::uint64_t>(kMatchLimit + kMatchLimitPerByte * text.size(),
                                                      std::numeric_limits<std::uint32_t>::max());
  if (limit != state.limit) {
    pcre2_set_match_limit(state.context, static_cast<std::uint32_t>(limit));
    state.limit = limit;
  }
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const int result = regex.code_->jit ? pcre2_jit_match(regex.code_->code, subject, text.size(), start, 0,
                                                        state.data, state.context)
                                      : pcre2_match(regex.code_->code, subject, text.size(), start,
                                                    PCRE2_NO_UTF_CHECK, state.data, state.context);
  if (result == PCRE2_ERROR_NOMATCH) return {};
  if (result < 0)
    fail(ErrorCode::unsupported,
         "the pre-tokenizer gave up at byte {} of a text of {} bytes (PCRE2 error {}): the text repeats a "
         "pattern for too long",
         start, text.size(), result);
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(state.data);
  return {span[0], span[1], true};
}

}  // namespace quipu::text
