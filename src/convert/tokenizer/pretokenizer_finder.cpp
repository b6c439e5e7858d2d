#include "convert/tokenizer/pretokenizer_finder.hpp"

#include "convert/json_file.hpp"
#include "core/error.hpp"
#include "text/pretokenizer.hpp"

namespace quipu::convert {
namespace {

namespace json = boost::json;

// White_Space: what \s means in the expressions of tokenizer.json.
constexpr std::string_view kSpaces =
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

/// The expression that ByteLevel uses when it is asked to split. Source: the tokenizers library.
constexpr std::string_view kByteLevel =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Oniguruma to PCRE2: \s and \S as the property they stand for, and script names.
std::string translated(std::string_view pattern) {
  std::string result;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's') {
        result += in_class ? std::string(kSpaces) : "[" + std::string(kSpaces) + "]";
      } else if (next == 'S' && !in_class) {
        result += "[^" + std::string(kSpaces) + "]";
      } else if (next == 'p' && pattern.substr(i).starts_with("p{Han}")) {
        result += "\\p{sc:Han}";
        i += 5;
      } else {
        result.push_back(c);
        result.push_back(next);
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    result.push_back(c);
  }
  return result;
}

std::string quoted(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       static_cast<unsigned char>(c) >= 0x80;
    if (!plain) result.push_back('\\');
    result.push_back(c);
  }
  return result;
}

std::string_view text_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

bool flag_of(const json::object& object, std::string_view key, bool fallback) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() ? value->get_bool() : fallback;
}

void append_steps(const json::value& part, const std::string& file, std::vector<std::string>& steps) {
  const auto refuse = [&](std::string_view what) {
    fail(ErrorCode::unsupported,
         "{}: the pre_tokenizer has {}, which quipu has no equal of; name one with --pre ({})",
         printable(file, 1000), what, text::known_pretokenizer_names());
  };
  const json::object* object = part.if_object();
  if (object == nullptr) return refuse(kind_of(part));
  const std::string_view type = text_of(*object, "type");
  if (type == "Sequence") {
    const json::value* list = object->if_contains("pretokenizers");
    if (list == nullptr || !list->is_array()) return refuse("a Sequence without pretokenizers");
    for (const json::value& item : list->get_array()) append_steps(item, file, steps);
  } else if (type == "ByteLevel") {
    if (flag_of(*object, "add_prefix_space", false)) refuse("ByteLevel with add_prefix_space");
    if (flag_of(*object, "use_regex", true)) steps.push_back(translated(kByteLevel));
  } else if (type == "Digits") {
    steps.push_back(flag_of(*object, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
  } else if (type == "Punctuation") {
    const std::string_view behavior = text_of(*object, "behavior");
    const std::string marks = "[\\p{P}\\$\\+<=>\\^~\\|`]";
    if (behavior == "Contiguous")
      steps.push_back(marks + "+");
    else if (behavior == "Isolated" || behavior.empty())
      steps.push_back(marks);
    else
      refuse("Punctuation with behavior " + printable(behavior));
  } else if (type == "Split") {
    const std::string_view behavior = text_of(*object, "behavior");
    const bool inverted = flag_of(*object, "invert", false);
    const json::value* pattern = object->if_contains("pattern");
    const json::object* form = pattern == nullptr ? nullptr : pattern->if_object();
    if (form == nullptr) return refuse("a Split without a pattern");
    // Cutting the matches out, or keeping them and dropping what lies between: the same where all is matched.
    if (behavior != "Isolated" && !(behavior == "Removed" && inverted))
      refuse("Split with behavior " + printable(behavior));
    if (form->contains("Regex"))
      steps.push_back(translated(text_of(*form, "Regex")));
    else
      steps.push_back(quoted(text_of(*form, "String")));
  } else {
    refuse("the type " + printable(type));
  }
}

std::vector<std::string_view> cuts(const text::PretokenizerRule& rule) {
  std::vector<std::string_view> pieces;
  text::Pretokenizer(rule).split(pretokenizer_probe(), pieces);
  return pieces;
}

bool same_cuts(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].data() != b[i].data() || a[i].size() != b[i].size()) return false;
  return true;
}

/// What changes between the rows of the table: contractions in both cases, digits in runs of every length,
/// marks, letters of many scripts and cases, white space of every kind at every place.
std::string make_probe() {
  std::string probe =
      "Hello world! I'm sure they'll've said it's we'd DON'T I'LL 'S 'x ''s isn't'RE\n"
      "1 12 123 1234 12345 123456 1234567 x1y22z333 3.14 1,000,000 \xC2\xBD \xE2\x85\xA7 "
      "\xD9\xA1\xD9\xA2\xD9\xA3"
      " 12a 1234_x 5678-9\n"
      "camelCaseWord HTTPServer iOS \xC3\x84pfel \xC7\x85"
      "abc na\xC3\xAFve e\xCC\x81t\xCC\x81 \xCC\x81x "
      "_under_score __init__ a_b\n"
      "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82 \xE3\x81\x93\xE3\x82\x93 "
      "\xE3\x82\xAB\xE3\x82\xBF\xE3\x83\xBC \xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4 \xE3\x84\x85\xE3\x84\x86 "
      "\xE3\x84\xB1 abc\xE6\xBC\xA2\xE5\xAD\x97"
      "def A\xE6\xBC\xA2"
      "b \xE6\xBC\xA2\xE5\xAD\x97's 'd\xE6\xBC\xA2\n"
      "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7\xD8\x8C "
      "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87\xE0\xA5\xA4 "
      "\xE0\xB8\xAA\xE0\xB8\xA7\xE0\xB8\xB1\xE0\xB8\xAA\xE0\xB8\x94\xE0\xB8\xB5 \xE1\x82\xA0\xE1\x83\x90 "
      "\xE1\x8E\xA0\xEA\xAD\xB0\n"
      "!!! ?! #include <x.h> a=b+c; f(x)->y[0] && z||w ~^`$ %@ \xE2\x82\xAC"
      "5 \xC2\xA9 \xE2\x80\xA6 "
      "\xE2\x80\x9Cquoted\xE2\x80\x9D \xE2\x80\x94 \xF0\x9F\x98\x80\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD // /* */ "
      "\\n "
      "!a ?b .c ,d -e @f \xE3\x80\x81g (h) \"i\" {j} a.b x/y 1/2 !\n?\n\n.\r\n/\n;/\r\n\n*/\n//\n<= => x!/\n"
      "tab\there\t\ttwo \t mixed\n\n\n  two  three   four    five\n \n  \n   \nend \n";
  probe +=
      "nbsp\xC2\xA0\xC2\xA0x \xE3\x80\x80wide\xE3\x80\x80 \xE2\x80\xA8line\xC2\x85next \xE1\xA0\x8Ezero "
      "\xE2\x80\x8Bspace\n";
  probe +=
      "'sat 'told 'DARE 'x  12   345 \t6\n  7 "
      "a b c  d E F g\xCC\x81 h 1 2 i " +
      std::string(3, '\n') + "x" + std::string(700, ' ') + "y" + std::string(37, ' ') + "\n" +
      std::string(9, '\t') + "z<sentinel:12>IMGIMGABCZ\r\r\nlast  ";
  return probe;
}

}  // namespace

std::string_view pretokenizer_probe() {
  static const std::string probe = make_probe();
  return probe;
}

std::vector<std::string> pretokenizer_steps(const json::value& pre_tokenizer, const std::string& file) {
  std::vector<std::string> steps;
  if (!pre_tokenizer.is_null()) append_steps(pre_tokenizer, file, steps);
  return steps;
}

std::string find_pretokenizer_name(const std::vector<std::string>& steps, bool ignore_merges) {
  text::PretokenizerRule own;
  for (const std::string& step : steps) own.steps.push_back(step);
  std::vector<std::string_view> wanted;
  try {
    wanted = cuts(own);
  } catch (const Error&) {  // an expression that PCRE2 does not take, or that gives up
    return {};
  }
  for (const text::NamedPretokenizerRule& named : text::pretokenizer_rules()) {
    const text::PretokenizerRule& rule = *named.rule;
    if (!rule.byte_level || rule.ignore_merges != ignore_merges) continue;
    if (same_cuts(cuts(rule), wanted)) return std::string(named.names.substr(0, named.names.find(' ')));
  }
  return {};
}

}  // namespace quipu::convert
