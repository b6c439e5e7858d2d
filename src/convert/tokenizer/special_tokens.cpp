#include "convert/tokenizer/special_tokens.hpp"

#include <algorithm>
#include <map>
#include <system_error>

#include "core/error.hpp"
#include "core/mapped_file.hpp"

namespace quipu::convert {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

struct Role {
  const char* name;  ///< "bos" of "bos_token" and "bos_token_id"
  const char* key;   ///< in GGUF; "seperator" was misspelt when the format was young
};
constexpr Role kRoles[] = {{"bos", "bos"},     {"eos", "eos"}, {"unk", "unknown"}, {"sep", "seperator"},
                           {"pad", "padding"}, {"cls", "cls"}, {"mask", "mask"}};

/// A token is given as its text, or as an object with "content".
std::string token_text(const JsonFile* file, const std::string& key) {
  const json::value* value = file == nullptr ? nullptr : file->find(key);
  if (value == nullptr) return {};
  if (const json::object* object = value->if_object()) {
    const json::value* content = object->if_contains("content");
    return content != nullptr && content->is_string() ? std::string(content->get_string()) : std::string();
  }
  return value->is_string() ? std::string(value->get_string()) : std::string();
}

std::vector<std::uint64_t> ids_at(const JsonFile* file, std::string_view key) {
  std::vector<std::uint64_t> ids;
  const json::value* value = file == nullptr ? nullptr : file->find(key);
  const auto add = [&](const json::value& item) {
    if (item.is_int64() && item.get_int64() >= 0) ids.push_back(static_cast<std::uint64_t>(item.get_int64()));
    if (item.is_uint64()) ids.push_back(item.get_uint64());
  };
  if (value == nullptr) return ids;
  if (const json::array* list = value->if_array())
    for (const json::value& item : *list) add(item);
  else
    add(*value);
  return ids;
}

/// The id of the special token at one end of a template; empty when that end is the text.
std::string template_token(const json::array& parts, bool last) {
  if (parts.empty()) return {};
  const json::object* part = (last ? parts.back() : parts.front()).if_object();
  const json::value* token = part == nullptr ? nullptr : part->if_contains("SpecialToken");
  const json::object* object = token == nullptr ? nullptr : token->if_object();
  const json::value* id = object == nullptr ? nullptr : object->if_contains("id");
  return id != nullptr && id->is_string() ? std::string(id->get_string()) : std::string();
}

struct Added {
  std::map<std::string, std::string> texts;  // role -> token
  std::map<std::string, bool> add;           // role -> whether it is added
};

/// Whether two texts get a separator beside the token that ends the first one anyway.
bool separates(const json::array& pair, const Added& state, bool ends) {
  std::vector<std::string> between;
  bool after_first = false;
  for (const json::value& part : pair) {
    const json::object* object = part.if_object();
    if (object == nullptr) continue;
    if (object->contains("Sequence")) {
      if (after_first) break;
      after_first = true;
    } else if (after_first) {
      between.push_back(template_token({part}, false));
    }
  }
  const auto is_separator = [&](const std::string& text) {
    return !text.empty() && (text == state.texts.at("sep") || text == state.texts.at("eos"));
  };
  if (between.size() == 2) return is_separator(between[1]);
  return between.size() == 1 && is_separator(between[0]) && !ends;
}

void read_processor(const json::object& processor, Added& state) {
  const json::value* type = processor.if_contains("type");
  const std::string_view kind =
      type != nullptr && type->is_string() ? std::string_view(type->get_string()) : std::string_view();
  if (kind == "ByteLevel") {
    state.add.try_emplace("bos", false);
    state.add.try_emplace("eos", false);
  } else if (kind == "RobertaProcessing" || kind == "BertProcessing") {
    for (const char* role : {"bos", "eos", "sep"}) state.add[role] = true;
    for (const auto& [role, fallback] : {std::pair{"cls", "bos"}, std::pair{"sep", "eos"}}) {
      const json::value* token = processor.if_contains(role);
      const json::array* pair = token == nullptr ? nullptr : token->if_array();
      if (state.texts[role].empty())
        state.texts[role] = pair != nullptr && !pair->empty() && pair->front().is_string()
                                ? std::string(pair->front().get_string())
                                : state.texts[fallback];
    }
  } else if (kind == "TemplateProcessing") {
    const json::value* single = processor.if_contains("single");
    const json::array* parts = single == nullptr ? nullptr : single->if_array();
    if (parts == nullptr || parts->size() < 2) return;
    if (const std::string first = template_token(*parts, false); !first.empty()) {
      if (state.texts["bos"].empty()) state.texts["bos"] = first;
      state.add["bos"] = first == state.texts["bos"] || first == state.texts["cls"];
    }
    if (const std::string last = template_token(*parts, true); !last.empty()) {
      // The token that ends a text wins over the one that the configuration calls EOS.
      if (last != state.texts["eos"]) {
        if (!state.texts["eos"].empty()) state.texts["eot"] = state.texts["eos"];
        state.texts["eos"] = last;
      }
      state.add["eos"] = true;
    }
    const json::value* pair = processor.if_contains("pair");
    if (pair != nullptr && pair->is_array())
      state.add["sep"] = separates(pair->get_array(), state, !template_token(*parts, true).empty());
  }
}

}  // namespace

void add_special_tokens(const SpecialTokenFiles& files, const Vocabulary& vocabulary,
                        gguf::Metadata& metadata, std::vector<std::string>& warnings) {
  using gguf::Value;
  Added state;
  for (const Role& role : kRoles) {
    const std::string key = std::string(role.name) + "_token";
    state.texts[role.name] = token_text(files.tokenizer_config, key);
    if (state.texts[role.name].empty()) state.texts[role.name] = token_text(files.special_tokens_map, key);
  }
  if (files.tokenizer != nullptr) {
    if (state.texts["bos"].empty()) state.texts["bos"] = state.texts["cls"];
    if (state.texts["eos"].empty()) state.texts["eos"] = state.texts["sep"];
    const json::value* processor = files.tokenizer->find("post_processor");
    if (const json::object* object = processor == nullptr ? nullptr : processor->if_object()) {
      const json::value* list = object->if_contains("processors");
      if (list != nullptr && list->is_array()) {
        for (const json::value& item : list->get_array())
          if (item.is_object()) read_processor(item.get_object(), state);
      } else {
        read_processor(*object, state);
      }
    }
  }
  if (files.tokenizer_config != nullptr)
    for (const char* role : {"bos", "eos", "sep"}) {
      const std::string key = std::string("add_") + role + "_token";
      const json::value* value = files.tokenizer_config->find(key);
      if (value != nullptr && value->is_bool()) state.add.try_emplace(role, value->get_bool());
    }

  std::map<std::string, std::uint64_t> ids;
  const auto set_id = [&](const std::string& role, std::uint64_t id) {
    if (id >= vocabulary.size()) {
      warnings.push_back(
          fmt::format("the {} token has the id {}, but the vocabulary has {} tokens; it is left out", role,
                      id, vocabulary.size()));
      return;
    }
    ids.try_emplace(role, id);
  };
  for (const Role& role : kRoles) {
    const std::string& text = state.texts[role.name];
    if (const auto id = text.empty() ? std::nullopt : vocabulary.find(text)) set_id(role.name, *id);
    const std::vector<std::uint64_t> stated = ids_at(&files.config, std::string(role.name) + "_token_id");
    if (!ids.contains(role.name) && !stated.empty()) set_id(role.name, stated.front());
    if (ids.contains(role.name))
      metadata.set(fmt::format("tokenizer.ggml.{}_token_id", role.key),
                   Value::of_u32(static_cast<std::uint32_t>(ids[role.name])));
  }
  // Generation ends at further tokens: of a turn, of a message.
  std::vector<std::uint64_t> ends = ids_at(files.generation_config, "eos_token_id");
  if (const auto id = state.texts["eot"].empty() ? std::nullopt : vocabulary.find(state.texts["eot"]))
    ends.insert(ends.begin(), *id);
  std::vector<const char*> keys = {"eom", "eot"};
  for (const std::uint64_t id : ends) {
    if (keys.empty() || id >= vocabulary.size() || (ids.contains("eos") && id == ids["eos"])) continue;
    if (const auto eot = metadata.try_uint("tokenizer.ggml.eot_token_id"); eot && *eot == id) continue;
    metadata.set(fmt::format("tokenizer.ggml.{}_token_id", keys.back()),
                 Value::of_u32(static_cast<std::uint32_t>(id)));
    keys.pop_back();
  }
  for (const auto& [role, added] : state.add)
    if (!added || ids.contains(role) || role == "sep")
      metadata.set("tokenizer.ggml.add_" + role + "_token", Value::of_bool(added));
}

void add_chat_template(const fs::path& folder, const JsonFile* tokenizer_config, gguf::Metadata& metadata) {
  using gguf::Value;
  constexpr std::size_t longest = std::size_t{16} << 20;
  constexpr std::string_view key = "tokenizer.chat_template";
  std::error_code error;
  const fs::path jinja = folder / "chat_template.jinja";
  if (fs::exists(jinja, error)) {
    const MappedFile file(jinja, MappedFile::Mode::read);
    if (file.bytes().size() > longest)
      fail(ErrorCode::bad_file, "{}: {} bytes, expected at most {}", printable(jinja.string(), 1000),
           file.bytes().size(), longest);
    metadata.set(std::string(key),
                 Value::of_string({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}));
    return;
  }
  const json::value* value = tokenizer_config == nullptr ? nullptr : tokenizer_config->find("chat_template");
  const auto beside = value == nullptr ? JsonFile::try_open(folder / "chat_template.json") : std::nullopt;
  if (beside) value = beside->find("chat_template");
  if (value == nullptr) return;
  if (value->is_string()) {
    metadata.set(std::string(key), Value::of_string(std::string(value->get_string())));
    return;
  }
  const json::array* list = value->if_array();
  if (list == nullptr) return;
  std::vector<std::string> names;
  for (const json::value& item : *list) {
    const json::object* object = item.if_object();
    const json::value* name = object == nullptr ? nullptr : object->if_contains("name");
    const json::value* text = object == nullptr ? nullptr : object->if_contains("template");
    if (name == nullptr || text == nullptr || !name->is_string() || !text->is_string()) continue;
    if (name->get_string() == "default") {
      metadata.set(std::string(key), Value::of_string(std::string(text->get_string())));
      continue;
    }
    std::string plain;
    for (const char c : std::string_view(name->get_string()))
      plain.push_back((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_');
    metadata.set(std::string(key) + "." + plain, Value::of_string(std::string(text->get_string())));
    names.push_back(plain);
  }
  if (!names.empty()) metadata.set("tokenizer.chat_templates", Value::of_strings(names));
}

}  // namespace quipu::convert
