#include "text/pretokenizer.hpp"

#include "text/category.hpp"
#include "text/unicode.hpp"

namespace quipu::text {

namespace {

bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

/// \w of Unicode regular expressions (UTS 18): letters, marks, decimal digits, connector punctuation.
bool is_word(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_ND) || kind == UTF8PROC_CATEGORY_PC;
}

/// Cuts every run of digits into groups of three from the right; what lies between runs stays as it is.
void split_digits(std::string_view text, bool at_boundary, std::vector<std::string_view>& out) {
  std::size_t plain = 0;  // start of what was not emitted yet
  std::size_t position = 0;
  std::vector<std::size_t> run;
  while (position < text.size()) {
    const std::size_t run_begin = position;
    run.clear();
    DecodedChar next;
    while (position < text.size() && is_digit((next = decode_utf8(text, position)).value)) {
      run.push_back(position);
      position += next.length;
    }
    if (run.empty()) {
      position += next.length;
      continue;
    }
    if (at_boundary && position < text.size() && is_word(next.value)) continue;
    if (run_begin > plain) out.push_back(text.substr(plain, run_begin - plain));
    std::size_t first = 0;
    std::size_t last = run.size() % 3 == 0 ? 3 : run.size() % 3;
    while (first < run.size()) {
      const std::size_t end = last == run.size() ? position : run[last];
      out.push_back(text.substr(run[first], end - run[first]));
      first = last;
      last += 3;
    }
    plain = position;
  }
  if (plain < text.size()) out.push_back(text.substr(plain));
}

void split_regex(const Regex& regex, std::string_view text, RegexScratch& scratch,
                 std::vector<std::string_view>& out) {
  std::size_t done = 0;
  std::size_t position = 0;
  while (position < text.size()) {
    const RegexScratch::Match match = scratch.find(regex, text, position);
    if (!match.found) break;
    if (match.end == match.begin) {  // an empty match cuts nothing
      position = match.end < text.size() ? match.end + decode_utf8(text, match.end).length : match.end;
      continue;
    }
    if (match.begin > done) out.push_back(text.substr(done, match.begin - done));
    out.push_back(text.substr(match.begin, match.end - match.begin));
    done = position = match.end;
  }
  if (done < text.size()) out.push_back(text.substr(done));
}

}  // namespace

Pretokenizer::Pretokenizer(const PretokenizerRule& rule) {
  for (const std::string_view step : rule.steps) {
    if (step == kDigitsFromRight) {
      steps_.push_back({Kind::digits, 0});
    } else if (step == kDigitsFromRightAtBoundary) {
      steps_.push_back({Kind::digits_at_boundary, 0});
    } else {
      steps_.push_back({Kind::regex, regexes_.size()});
      regexes_.emplace_back(std::string(step));
    }
  }
}

void Pretokenizer::split_valid(std::string_view text, RegexScratch& scratch,
                               std::vector<std::string_view>& pieces) const {
  std::vector<std::string_view> from{text}, to;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const bool last = i + 1 == steps_.size();
    std::vector<std::string_view>& out = last ? pieces : to;
    for (const std::string_view piece : from) {
      switch (steps_[i].kind) {
        case Kind::regex:
          split_regex(regexes_[steps_[i].regex], piece, scratch, out);
          break;
        case Kind::digits:
          split_digits(piece, false, out);
          break;
        case Kind::digits_at_boundary:
          split_digits(piece, true, out);
          break;
      }
    }
    if (!last) {
      from.swap(to);
      to.clear();
    }
  }
  if (steps_.empty()) pieces.push_back(text);
}

void Pretokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  RegexScratch scratch;
  std::size_t position = 0;
  while (position < text.size()) {
    const std::size_t valid = valid_prefix(text.substr(position));
    if (valid > 0) split_valid(text.substr(position, valid), scratch, pieces);
    position += valid;
    if (position < text.size()) {
      const std::size_t length = decode_utf8(text, position).length;
      pieces.push_back(text.substr(position, length));
      position += length;
    }
  }
}

}  // namespace quipu::text
