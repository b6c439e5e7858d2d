// The table of tokenizer.ggml.pre names. The expressions are those of the models' own tokenizer.json files,
// with \s written out as the property White_Space (PCRE2's \s also takes U+180E).
#include <array>

#include "text/pretokenizer.hpp"

// Inside a bracket expression / on its own / its complement.
#define WS "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACE "[" WS "]"
#define NOT_SPACE "[^" WS "]"

// Parts that many expressions share.
#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define WORD_WITH_MARK "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define TAIL SPACE "*[\\r\\n]+|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+"
#define SYMBOLS " ?[^" WS "\\p{L}\\p{N}]+"
// Letters by case: anything but lower case, anything but upper case.
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(UP, LOW, ENDING) \
  "[^\\r\\n\\p{L}\\p{N}]?" UP "*" LOW "+" ENDING "|[^\\r\\n\\p{L}\\p{N}]?" UP "+" LOW "*" ENDING

namespace quipu::text {

namespace {

constexpr std::string_view kDigit = "\\p{N}";
constexpr std::string_view kThreeDigits = "\\p{N}{1,3}";
constexpr std::string_view kGpt2 =
    CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+";
constexpr std::string_view kLlama3 =
    "(?i:" CONTRACTIONS ")|" WORD_WITH_MARK "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" TAIL;
constexpr std::string_view kQwen2 =
    "(?i:" CONTRACTIONS ")|" WORD_WITH_MARK "|\\p{N}|" SYMBOLS "[\\r\\n]*|" TAIL;
constexpr std::string_view kMiniCpm5 =
    "(?i:" CONTRACTIONS ")|" WORD_WITH_MARK "|\\p{N}+|" SYMBOLS "[\\r\\n]*|" TAIL;
constexpr std::string_view kQwen35 =
    "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
    "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL;
constexpr std::string_view kUfakzeka = WORD_WITH_MARK "|\\p{N}|" SYMBOLS "[\\r\\n]*|" TAIL;
constexpr std::string_view kSeedCoder =
    "(?i:" CONTRACTIONS ")|" WORD_WITH_MARK "|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" TAIL;
constexpr std::string_view kBailing =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}]++[\\r\\n]*|" SPACE
    "*[\\r\\n]|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+";
constexpr std::string_view kGpt4o =
    CASED(UPPER, LOWER, "(?i:" CONTRACTIONS ")?") "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" TAIL;
constexpr std::string_view kTekken = CASED(UPPER, LOWER, "") "|\\p{N}|" SYMBOLS "[\\r\\n/]*|" TAIL;
constexpr std::string_view kYoutu =
    CASED(UPPER, LOWER, "(?i:" CONTRACTIONS ")?") "|\\p{N}|" SYMBOLS "[\\r\\n/]*|" TAIL;
// Upper and lower without Han: the complements of the other categories and Han.
#define NO_HAN "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
constexpr std::string_view kKimiK2 =
    "\\p{sc:Han}+|" CASED("[^\\p{Ll}" NO_HAN, "[^\\p{Lu}\\p{Lt}" NO_HAN,
                          "(?i:" CONTRACTIONS ")?") "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" TAIL;
constexpr std::string_view kJais2 =
    "(?i:" CONTRACTIONS ")|" WORD_WITH_MARK "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE
    "{512}(?!" NOT_SPACE ")|" SPACE "{256}(?!" NOT_SPACE ")|" SPACE "{128}(?!" NOT_SPACE ")|" SPACE
    "{64}(?!" NOT_SPACE ")|" SPACE "{32}(?!" NOT_SPACE ")|" SPACE "{16}(?!" NOT_SPACE ")|" SPACE
    "{8}(?!" NOT_SPACE ")|" SPACE "{4}(?!" NOT_SPACE ")|" SPACE "{1,2}(?!" NOT_SPACE ")|" SPACE;
// One run of letters and single spaces between words; atomic, so that it needs no stack.
constexpr std::string_view kExaoneMoe =
    "(?i:" CONTRACTIONS
    ")|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: (?=\\p{L}))?+)++"
    "|\\p{N}|" SYMBOLS "[\\r\\n/]?|" SPACE "*[\\r\\n]|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+";

constexpr std::string_view kCjkRuns = "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+";
#define ASCII_MARK "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
constexpr std::string_view kDeepSeek3 =
    ASCII_MARK "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL;
constexpr std::string_view kSpark =
    ASCII_MARK "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]|" SPACE
               "+(?!" NOT_SPACE ")|" SPACE "+";

constexpr std::string_view kNewline = "[\\r\\n]";
constexpr std::string_view kDeepSeekCjk = "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+";
constexpr std::string_view kDeepSeekLetters = SPACE
    "?["
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}"
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}"
    "\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}"
    "\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}"
    "\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}"
    "\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}"
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"
    "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}"
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}"
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"
    "\\x{1e900}-\\x{1e943}"
    "]+";
constexpr std::string_view kDeepSeekMarks =
    SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+";
// \s+$, but tried only where a run begins: elsewhere it cannot match, and trying there is quadratic.
constexpr std::string_view kTrailingSpace = "(?<!" SPACE ")" SPACE "+\\z";
constexpr std::string_view kBloom =
    " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+";
constexpr std::string_view kGemma = "[^\\n]+|\\n+";

struct NamedRule {
  std::string_view names;  // separated by spaces
  PretokenizerRule rule;
};

PretokenizerRule rule(std::vector<std::string_view> steps) {
  PretokenizerRule result;
  result.steps = std::move(steps);
  return result;
}

PretokenizerRule ignoring_merges(PretokenizerRule result) {
  result.ignore_merges = true;
  return result;
}

PretokenizerRule with_bos(PretokenizerRule result) {
  result.add_bos = true;
  return result;
}

PretokenizerRule plain_text(PretokenizerRule result, bool whole_newline_runs) {
  result.byte_level = false;
  result.whole_newline_runs = whole_newline_runs;
  return result;
}

const std::vector<NamedRule>& table() {
  static const std::vector<NamedRule> rules = {
      {"gpt-2 default phi-2 mpt gpt-neox olmo jais trillion granite-docling gigachat jina-es jina-de "
       "jina-v2-es "
       "jina-v2-de jina-v1-en jina-v2-code roberta-bpe a.x-4.0 mellum modern-bert exaone4",
       rule({kGpt2})},
      {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", rule({kDigit, kGpt2})},
      {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
       with_bos(ignoring_merges(rule({kLlama3})))},
      {"dbrx smaug-bpe glm4 chatglm-bpe", rule({kLlama3})},
      {"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", rule({kQwen2})},
      {"qwen35", rule({kQwen35})},
      {"deepseek-llm",
       rule({kNewline, kDeepSeekLetters, kDeepSeekMarks, kTrailingSpace, kDeepSeekCjk, "\\p{N}+"})},
      {"deepseek-coder", rule({kNewline, SPACE "?\\p{L}+", SPACE "?\\p{P}+", kDeepSeekCjk, kDigit})},
      {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", rule({kThreeDigits, kCjkRuns, kDeepSeek3})},
      {"spark2_5", rule({kThreeDigits, kCjkRuns, kSpark, kDigit})},
      {"falcon", rule({"[\\p{P}\\$\\+<=>\\^~\\|`]+", kGpt2, "[0-9][0-9][0-9]"})},
      {"gpt-4o llama4 kanana2 talkie minimax-m2", rule({kGpt4o})},
      {"granite-embed-multi-97m", ignoring_merges(rule({kGpt4o}))},
      {"tekken", with_bos(ignoring_merges(rule({kTekken})))},
      {"youtu", ignoring_merges(rule(
                    {"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{"
                     "2018}\\x{2019}"
                     "\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+"
                     "|[\\x{3105}-\\x{312f}]+|[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
                     kYoutu}))},
      {"tiny_aya cohere2moe", rule({kDigitsFromRightAtBoundary, kGpt4o})},
      {"superbpe", rule({"\\p{N}+", kDigitsFromRight})},
      {"kimi-k2", rule({kKimiK2})},
      {"bailingmoe bailingmoe2 llada-moe", rule({kBailing})},
      {"seed-coder", rule({kSeedCoder})},
      {"jais-2", rule({kJais2})},
      {"ufakzeka", rule({kUfakzeka})},
      {"minicpm5", ignoring_merges(rule({kThreeDigits, kMiniCpm5}))},
      {"laguna", rule({"[^\\n]+|\\n+", kQwen2})},
      {"exaone-moe", rule({kExaoneMoe})},
      {"poro-chat bloom gpt3-finnish", rule({kBloom})},
      {"viking", rule({kBloom, kDigit})},
      {"chameleon", with_bos(rule({"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                                   "([\\t\\n]|    |  )", kDigit, "[\\p{P}!-/:-@\\[-`{-~]", kGpt2}))},
      {"gemma4 granite-embed-multi-311m", with_bos(plain_text(rule({kGemma}), true))},
      {"sarvam-moe", plain_text(rule({kGemma}), false)},
  };
  return rules;
}

}  // namespace

const PretokenizerRule* find_pretokenizer_rule(std::string_view name) {
  for (const NamedRule& entry : table()) {
    std::string_view names = entry.names;
    while (!names.empty()) {
      const std::size_t end = names.find(' ');
      if (names.substr(0, end) == name) return &entry.rule;
      if (end == std::string_view::npos) break;
      names.remove_prefix(end + 1);
    }
  }
  return nullptr;
}

std::vector<NamedPretokenizerRule> pretokenizer_rules() {
  std::vector<NamedPretokenizerRule> rules;
  for (const NamedRule& entry : table()) rules.push_back({entry.names, &entry.rule});
  return rules;
}

std::string known_pretokenizer_names() {
  std::string list;
  for (const NamedRule& entry : table()) {
    for (const char c : entry.names) {
      if (c == ' ')
        list += ", ";
      else
        list.push_back(c);
    }
    list += ", ";
  }
  list.resize(list.size() - 2);
  return list;
}

}  // namespace quipu::text
