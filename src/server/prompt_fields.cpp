#include "server/prompt_fields.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "core/error.hpp"

namespace quipu::server {

namespace json = boost::json;

namespace {

text::Token read_token(const json::value& value, const std::string& path, const text::Tokenizer& tokenizer) {
  const auto id = as_integer(value);
  if (!id || *id < 0 || static_cast<std::size_t>(*id) >= tokenizer.size())
    bad_field(path, "\"{}\" holds token {}, expected an id from 0 to {}", path,
              printable(json::serialize(value), 40), tokenizer.size() - 1);
  return static_cast<text::Token>(*id);
}

/// One prompt of ids and texts; only a text at the very start gets a BOS.
Prompt read_mixed(const json::array& list, const std::string& path, const text::Tokenizer& tokenizer,
                  bool add_special) {
  Prompt prompt;
  bool first = true;
  for (const json::value& item : list) {
    if (item.is_string()) {
      const std::string_view text = as_text(item);
      const auto tokens = tokenizer.encode(text, {add_special && first, true});
      prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
      prompt.text += text;
    } else {
      const text::Token token = read_token(item, path, tokenizer);
      prompt.tokens.push_back(token);
      prompt.text += tokenizer.piece(token, true);
    }
    first = false;
  }
  // An empty text in front of a BOS that is spelt out.
  const auto& tokens = prompt.tokens;
  if (add_special && tokenizer.bos && tokens.size() > 1 && tokens[0] == *tokenizer.bos &&
      tokens[1] == tokens[0])
    prompt.tokens.erase(prompt.tokens.begin());
  return prompt;
}

}  // namespace

std::vector<Prompt> read_prompts(const Fields& fields, std::string_view name,
                                 const text::Tokenizer& tokenizer) {
  const std::string path = fields.path(name);
  const json::value* value = fields.find(name);
  if (value == nullptr)
    bad_field(path, "\"{}\" is missing, expected a string, a list of token ids or a list of those", path);
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  const auto of_text = [&](std::string_view text) {
    return Prompt{tokenizer.encode(text, {add_special, true}), std::string(text)};
  };
  std::vector<Prompt> prompts;
  if (value->is_string()) {
    prompts.push_back(of_text(as_text(*value)));
  } else if (value->is_array() && !value->get_array().empty()) {
    const json::array& list = value->get_array();
    const bool has_numbers =
        std::any_of(list.begin(), list.end(), [](const json::value& v) { return v.is_number(); });
    if (has_numbers) {
      prompts.push_back(read_mixed(list, path, tokenizer, add_special));
    } else {
      for (const json::value& item : list) {
        if (item.is_string()) {
          prompts.push_back(of_text(as_text(item)));
        } else if (item.is_array()) {
          prompts.push_back(read_mixed(item.get_array(), path, tokenizer, add_special));
        } else {
          bad_field(path, "\"{}\" holds {}, expected strings, token ids or lists of them", path,
                    kind_of(item));
        }
      }
    }
  } else {
    bad_field(path, "\"{}\" is {}, expected a string, a list of token ids or a list of those", path,
              value->is_array() ? "an empty list" : kind_of(*value));
  }
  for (const Prompt& prompt : prompts) {
    if (prompt.tokens.empty()) bad_field(path, "\"{}\" is empty; at least one token is needed", path);
  }
  return prompts;
}

}  // namespace quipu::server
