#include "text/grammar/tool_grammar.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "text/grammar/finish.hpp"
#include "text/grammar/free_text.hpp"
#include "text/grammar/json_schema.hpp"

namespace quipu::text::grammar {

namespace {

using Kind = PatternPart::Kind;
using jinja::Data;

/// Most calls in one answer.
constexpr std::uint32_t kMostCalls = 64;

SchemaOptions schema_options(const Tool& tool, const ToolGrammarOptions& options) {
  SchemaOptions result;
  result.white_space = options.white_space;
  result.one_line = true;
  result.what = fmt::format("the tool \"{}\" (its parameters)", printable(tool.name, 80));
  result.object = true;
  result.open_objects = false;
  return result;
}

struct OfferedTool {
  const Tool* tool;
  bool loose;
};

class ToolBuilder {
 public:
  ToolBuilder(Store& store, const OutputFormat& format, const ToolGrammarOptions& options)
      : store_(store),
        format_(format),
        options_(options),
        call_(format.calls.front()),
        parts_(parse_pattern(call_.call)) {
    if (parts_.empty() || parts_.front().kind != Kind::literal) return;
    lead_ = parts_.front().text;
    parts_.erase(parts_.begin());
  }

  /// A call of one tool, without what all calls begin with, from its part `first` on. `loose`: with any
  /// arguments. Throws `Error` when its parameters cannot be held.
  Id tool(const Tool& tool, bool loose, std::size_t first = 0) {
    Id id = kEmpty;
    for (std::size_t i = parts_.size(); i-- > first;) {
      const bool after_arguments = i > 0 && parts_[i - 1].kind == Kind::arguments;
      if (after_arguments && is_free(loose) && parts_[i].kind == Kind::literal)
        continue;  // taken along by the arguments
      const std::string_view next = i + 1 < parts_.size() ? std::string_view(parts_[i + 1].text) : "";
      id = store_.concat(part(tool, parts_[i], next, loose), id);
    }
    return id;
  }

  /// All calls of an answer, with what is around them, but for the first `known` bytes.
  Id calls(std::span<const Id> tools, std::size_t known) {
    const Id any = store_.choice({tools.begin(), tools.end()});
    const bool several = options_.parallel && call_.parallel && options_.choice != ToolChoice::named;
    const Id more =
        several ? store_.repeat(store_.concat(literal(call_.separator + lead_), any), 0, kMostCalls - 1)
                : kEmpty;
    return store_.concat(
        {literal((call_.section_open + lead_).substr(known)), any, more, literal(call_.section_close)});
  }

  /// An answer that is free until a call begins; kNever where nothing shows that one does.
  Id automatic(std::span<const OfferedTool> tools) {
    FreeText text;
    text.may_end = true;
    text.controls = options_.controls;
    if (format_.channels)
      return format_.channels->header == ChannelFormat::Header::harmony ? harmony(tools, std::move(text))
                                                                        : recipients(tools, std::move(text));
    if (call_.bare) {
      // A whole answer that begins as a call of one of the tools does.
      text.at_start = true;
      for (const OfferedTool& offered : tools) {
        std::string begin = call_.section_open + lead_;
        std::size_t first = 0;
        for (; first < parts_.size() && parts_[first].kind != Kind::arguments; ++first) {
          if (parts_[first].kind == Kind::id) return kNever;
          begin += parts_[first].kind == Kind::name ? offered.tool->name : parts_[first].text;
        }
        text.tags.push_back({begin, tool(*offered.tool, offered.loose, first)});
      }
      return free_text(store_, text);
    }
    const std::string mark = trigger();
    if (mark.empty()) return kNever;
    text.tags = {{mark, calls(all(tools), mark.size())}};
    return free_text(store_, text);
  }

  std::vector<Id> all(std::span<const OfferedTool> tools) {
    std::vector<Id> ids;
    for (const OfferedTool& offered : tools) ids.push_back(tool(*offered.tool, offered.loose));
    return ids;
  }

  /// What shows that a call begins; empty when nothing does.
  std::string trigger() const {
    const std::string begin = call_.section_open + lead_;
    if (call_.bare || format_.channels || begin.empty()) return {};
    const char close = begin.front() == '<'   ? '>'
                       : begin.front() == '[' ? ']'
                       : begin.front() == ']' ? '\n'
                                              : '\0';
    const std::size_t end = close == '\0' ? std::string::npos : begin.find(close);
    return end == std::string::npos ? begin : begin.substr(0, end + 1);
  }

 private:
  /// A message's header names a function: then the rest of the header, and arguments.
  Id harmony(std::span<const OfferedTool> tools, FreeText text) {
    std::vector<Id> calls;
    const Id channel = store_.optional(
        store_.concat({store_.optional(store_.byte(' ')), literal("<|channel|>"),
                       store_.choice(store_.literal("commentary"), store_.literal("analysis"))}));
    const Id kind =
        store_.optional(store_.concat({store_.optional(store_.byte(' ')),
                                       store_.optional(literal("<|constrain|>")), store_.literal("json")}));
    for (const OfferedTool& offered : tools)
      calls.push_back(store_.concat({store_.literal(offered.tool->name), channel, kind,
                                     literal(format_.channels->header_end),
                                     arguments(*offered.tool, "", offered.loose)}));
    text.tags = {{" to=functions.", store_.choice(std::move(calls))}};
    return free_text(store_, text);
  }

  /// Messages to people (or to the model itself) or to a tool; the prompt has opened the first one's header.
  Id recipients(std::span<const OfferedTool> tools, FreeText text) {
    const std::string& end = format_.channels->header_end;
    const std::uint32_t message = store_.new_rule("message");
    text.tags = {{format_.channels->open, store_.call(message)}};
    std::vector<Id> options;
    if (format_.channels->header == ChannelFormat::Header::addressed) {
      for (const std::string who : {"user", "self"})
        options.push_back(store_.concat(literal(lead_ + who + end), free_text(store_, text)));
      const Id more = store_.optional(store_.concat(literal(call_.separator), store_.call(message)));
      for (const Id call : all(tools)) options.push_back(store_.concat({literal(lead_), call, more}));
    } else {
      options.push_back(store_.concat(literal("all" + end), free_text(store_, text)));
      const Id more = store_.optional(store_.concat(literal(format_.channels->open), store_.call(message)));
      for (const OfferedTool& offered : tools)
        options.push_back(store_.concat({store_.literal(offered.tool->name), literal(end),
                                         arguments(*offered.tool, "", offered.loose), more}));
    }
    store_.set_rule(message, store_.choice(std::move(options)));
    return store_.call(message);
  }

  Id literal(std::string_view text) { return marked_literal(store_, text, options_.controls); }
  bool is_free(bool loose) const {
    const bool elements = call_.arguments == ArgumentSyntax::xml || call_.arguments == ArgumentSyntax::nested;
    return call_.arguments != ArgumentSyntax::json &&
           (loose ? call_.arguments != ArgumentSyntax::nested : !elements);
  }

  Id call_id() {
    ByteSet letters = ByteSet::range('0', '9');
    if (format_.ids == IdStyle::count || format_.ids == IdStyle::kimi)
      return store_.lexeme(store_.repeat(store_.bytes(letters), 1, 3));
    letters = letters | ByteSet::range('a', 'z') | ByteSet::range('A', 'Z');
    const bool nine = format_.ids == IdStyle::mistral;
    return store_.lexeme(store_.repeat(store_.bytes(letters), nine ? 9 : 1, nine ? 9 : 40));
  }

  Id part(const Tool& tool, const PatternPart& part, std::string_view next, bool loose) {
    switch (part.kind) {
      case Kind::literal:
        return literal(part.text);
      case Kind::name:
        return store_.literal(tool.name);
      case Kind::id:
        return call_id();
      case Kind::arguments:
        return arguments(tool, next, loose);
      default:
        fail(ErrorCode::internal, "a call of the family \"{}\" has a place that calls do not have",
             format_.family);
    }
  }

  Id arguments(const Tool& tool, std::string_view next, bool loose) {
    if (!loose || call_.arguments == ArgumentSyntax::json) {
      // Checked in every family, so that a schema is good or bad whatever the model.
      const Id json =
          loose ? any_object() : json_schema(store_, tool.parameters, schema_options(tool, options_));
      if (call_.arguments == ArgumentSyntax::json) return json;
      if (!is_free(loose)) return parameters(tool, tool.parameters);
    }
    if (!is_free(loose)) return any_elements();
    // Another notation than JSON: the call's frame is held, its arguments are as the model writes them.
    if (next.empty()) return free_text(store_, {.tags = {}, .may_end = true, .budget = 0, .controls = {}});
    return free_text(store_, {.tags = {{std::string(next), kEmpty}},
                              .may_end = false,
                              .budget = 0,
                              .controls = options_.controls});
  }

  Id any_object() {
    SchemaOptions any;
    any.white_space = options_.white_space;
    any.one_line = true;
    return json_schema(store_, Data(Data::Mapping{{"type", "object"}}), any);
  }

  /// Elements of any names, in each a text or elements.
  Id any_elements() {
    const std::string open = parse_pattern(call_.parameter).front().text;  // the mark and <
    const std::string mark = open.substr(0, open.size() - 1);
    ByteSet letters;
    for (unsigned byte = 0x21; byte < 0x100; ++byte)
      if (byte != '<' && byte != '>' && byte != '/' && byte != 0x7f) letters.add(byte);
    const Id name = store_.concat(store_.lexeme(store_.repeat(store_.bytes(letters), 1, 64)), literal(">"));
    const std::uint32_t inside = store_.new_rule("inside of an element");
    const Id element = store_.concat(name, store_.call(inside));
    const Id more = store_.repeat(store_.concat(literal(open), element), 0, kUnbounded);
    const Id closing = store_.concat(literal("/"), name);
    const Id inner = store_.concat({element, more, literal(open), closing});
    FreeText text;
    text.tags = {{open, store_.choice(closing, inner)}};
    text.controls = options_.controls;
    store_.set_rule(inside, free_text(store_, text));
    return more;
  }

  /// One element for each property of the schema, in any order where the family's marks are text.
  Id parameters(const Tool& tool, const Data& object) {
    const Data* properties = find_member(object, "properties");
    const auto* mapping = properties == nullptr ? nullptr : std::get_if<Data::Mapping>(&properties->value);
    if (mapping == nullptr) return kEmpty;
    std::vector<std::string> required;
    if (const Data* list = find_member(object, "required"))
      if (const auto* names = std::get_if<Data::List>(&list->value))
        for (const Data& name : *names)
          if (const std::string* text = text_of(name)) required.push_back(*text);
    const auto needed = [&](const std::string& name) {
      return std::find(required.begin(), required.end(), name) != required.end();
    };
    const std::vector<PatternPart> parts = parse_pattern(call_.parameter);
    const bool in_text =
        parts.size() > 3 && parts[1].kind == Kind::key && parts[2].kind == Kind::literal &&
        std::none_of(options_.controls.begin(), options_.controls.end(),
                     [&](const auto& name) { return call_.parameter.find(name) != std::string::npos; });
    if (in_text) {
      Members members;
      for (const auto& [name, schema] : *mapping)
        members.entries.push_back(
            {parts[0].text + name + parts[2].text, parameter(tool, name, schema, 3), needed(name)});
      return store_.members(std::move(members));
    }
    Id id = kEmpty;
    for (std::size_t i = mapping->size(); i-- > 0;) {
      const auto& [name, schema] = (*mapping)[i];
      const Id one = parameter(tool, name, schema, 0);
      id = store_.concat(needed(name) ? one : store_.optional(one), id);
    }
    return id;
  }

  /// One element, from its part `first` on.
  Id parameter(const Tool& tool, const std::string& name, const Data& schema, std::size_t first) {
    const std::vector<PatternPart> parts = parse_pattern(call_.parameter);
    const bool text = is_text(schema);
    Id id = kEmpty;
    bool closed = false;
    for (std::size_t i = parts.size(); i-- > first;) {
      const PatternPart& part = parts[i];
      switch (part.kind) {
        case Kind::literal:
          // A free text takes the literal behind it along.
          closed =
              text && i > 0 && parts[i - 1].kind == Kind::value && find_member(schema, "enum") == nullptr;
          if (!closed) id = store_.concat(literal(part.text), id);
          break;
        case Kind::key:
          id = store_.concat(store_.literal(name), id);
          break;
        case Kind::type:
          id = store_.concat(store_.literal(text ? "true" : "false"), id);
          break;
        case Kind::value:
          if (closed)
            id = store_.concat(free_text(store_, {.tags = {{parts[i + 1].text, kEmpty}},
                                                  .may_end = false,
                                                  .budget = 0,
                                                  .controls = options_.controls}),
                               id);
          else if (text)
            id = store_.concat(texts_of(schema), id);
          else
            id = store_.concat(
                call_.arguments == ArgumentSyntax::nested ? nested(tool, schema) : value(tool, schema), id);
          break;
        default:
          break;
      }
    }
    return id;
  }

  static bool is_type(const Data& schema, std::string_view wanted) {
    const Data* type = find_member(schema, "type");
    if (type == nullptr) return false;
    const std::string* name = text_of(*type);
    return name != nullptr && *name == wanted;
  }
  static bool is_text(const Data& schema) { return is_type(schema, "string"); }

  /// Objects and lists as elements where their schema says no more than elements can hold; else as JSON.
  Id nested(const Tool& tool, const Data& schema) {
    const auto says_only = [&](std::initializer_list<std::string_view> keywords) {
      const auto* mapping = std::get_if<Data::Mapping>(&schema.value);
      return mapping != nullptr && std::all_of(mapping->begin(), mapping->end(), [&](const auto& member) {
               return std::find(keywords.begin(), keywords.end(), member.first) != keywords.end();
             });
    };
    if (is_type(schema, "object") && find_member(schema, "properties") != nullptr &&
        says_only({"type", "properties", "required", "description", "title", "default"}))
      return parameters(tool, schema);
    const Data* items = find_member(schema, "items");
    if (is_type(schema, "array") && items != nullptr &&
        says_only({"type", "items", "description", "title", "default"}))
      return store_.repeat(parameter(tool, "item", *items, 0), 0, kUnbounded);
    return value(tool, schema);
  }

  Id texts_of(const Data& schema) {
    std::vector<std::string> texts;
    if (const Data* list = find_member(schema, "enum"))
      if (const auto* values = std::get_if<Data::List>(&list->value))
        for (const Data& value : *values)
          if (const std::string* text = text_of(value)) texts.push_back(*text);
    return one_of_texts(store_, std::move(texts));
  }

  /// A parameter's schema may refer to definitions beside the properties: it is read in place.
  Id value(const Tool& tool, const Data& schema) {
    Data::Mapping whole;
    if (const auto* mapping = std::get_if<Data::Mapping>(&schema.value)) whole = *mapping;
    for (const std::string_view keyword : {"$defs", "definitions"})
      if (const Data* found = find_member(tool.parameters, keyword)) whole.emplace_back(keyword, *found);
    SchemaOptions options = schema_options(tool, options_);
    options.object = false;
    return json_schema(store_, Data(std::move(whole)), options);
  }

  Store& store_;
  const OutputFormat& format_;
  const ToolGrammarOptions& options_;
  const CallFormat& call_;
  std::vector<PatternPart> parts_;  // behind `lead_`
  std::string lead_;                // the literal that every call begins with
};

/// `rest` as the message for people, where answers are made of messages.
Id answer_message(Store& store, const OutputFormat& format, std::span<const std::string> controls, Id rest) {
  if (!format.channels) return rest;
  if (format.channels->header == ChannelFormat::Header::recipient)
    return store.concat(marked_literal(store, "all" + format.channels->header_end, controls), rest);
  if (format.channels->header == ChannelFormat::Header::addressed)
    return store.concat(marked_literal(store, " to=user" + format.channels->header_end, controls), rest);
  const Id kind = store.optional(marked_literal(store, " <|constrain|>json", controls));
  return store.concat({marked_literal(store, "<|channel|>final", controls), kind,
                       marked_literal(store, format.channels->header_end, controls), rest});
}

/// `rest` after the reasoning.
Id with_reasoning(Store& store, const ReasoningFormat& format, Thinking thinking, std::uint32_t budget,
                  std::span<const std::string> controls, Id rest) {
  if (thinking == Thinking::none) return rest;
  const Id lines = store.repeat(store.byte('\n'), 0, 2);
  FreeText reasoning;
  reasoning.tags = {{format.close, store.concat(lines, rest)}};
  reasoning.budget = budget;
  reasoning.controls.assign(controls.begin(), controls.end());
  const Id opened = free_text(store, reasoning);
  if (thinking == Thinking::opened) return opened;
  return store.choice(rest, store.concat(marked_literal(store, format.open, controls), opened));
}

}  // namespace

Thinking thinking_before(const Capabilities& model, std::optional<bool> asked, OutputStart start) {
  if (start == OutputStart::reasoning) return Thinking::opened;
  if (start != OutputStart::answer) return Thinking::none;
  const bool thinks = model.opens_reasoning || !model.thinking_switch.empty() || !model.reasoning_key.empty();
  return thinks && asked.value_or(true) ? Thinking::possible : Thinking::none;
}

ToolGrammar tool_grammar(std::span<const Tool> tools, const OutputFormat& format,
                         const ToolGrammarOptions& options) {
  if (format.calls.empty())
    fail(ErrorCode::unsupported, "models of the family \"{}\" have no way to write calls", format.family);
  ToolGrammar result;
  std::vector<OfferedTool> offered;
  const bool automatic = options.choice == ToolChoice::automatic;
  for (const Tool& tool : tools) {
    if (options.choice == ToolChoice::named && tool.name != options.name) continue;
    try {
      Store draft, finished;
      finish(draft, ToolBuilder(draft, format, options).tool(tool, false), finished);
      offered.push_back({&tool, false});
    } catch (const Error& error) {
      const bool named = error.message().find(tool.name) != std::string::npos;
      const std::string message =
          named ? error.message()
                : fmt::format("the tool \"{}\": {}", printable(tool.name, 80), error.message());
      if (options.choice == ToolChoice::named) throw Error(error.code(), message);
      const bool loose = automatic && !tool.strict && error.code() == ErrorCode::unsupported;
      result.problems.push_back({tool.name, message, loose});
      if (loose) offered.push_back({&tool, true});
    }
  }
  if (offered.empty() && options.choice == ToolChoice::named)
    fail(ErrorCode::invalid_argument, "tool_choice names \"{}\", which is none of the {} tools",
         printable(options.name, 80), tools.size());
  if (offered.empty() && (options.choice == ToolChoice::required || !result.problems.empty()))
    fail(ErrorCode::invalid_argument, "no tool can be called{}{}", result.problems.empty() ? "" : ": ",
         result.problems.empty() ? "" : result.problems.front().message);

  bool held = true;
  Grammar grammar = Grammar::from([&](Store& store) {
    Id other = kNever;
    if (options.answer) {
      std::vector<Id> map(options.answer->store().size(), Store::kUnknown);
      other = answer_message(store, format, options.controls,
                             store.import_grammar(options.answer->store(), options.answer->start(), map));
    }
    ToolBuilder builder(store, format, options);
    const std::string trigger = builder.trigger();
    Id answer = kNever;
    if (automatic && options.answer) {
      answer = store.choice(other, builder.calls(builder.all(offered), 0));
    } else if (automatic) {
      answer = builder.automatic(offered);
      held = answer != kNever;
      if (!held) return kEmpty;
    } else if (!trigger.empty() && options.text_before) {
      FreeText before;
      before.tags = {{trigger, builder.calls(builder.all(offered), trigger.size())}};
      before.controls = options.controls;
      answer = free_text(store, before);
    } else {
      answer = builder.calls(builder.all(offered), 0);
    }
    return with_reasoning(store, format.reasoning, options.thinking, options.thinking_budget,
                          options.controls, answer);
  });
  if (held) result.grammar = std::move(grammar);
  return result;
}

Grammar after_reasoning(const Grammar& grammar, const OutputFormat& format, Thinking thinking,
                        std::uint32_t budget, std::span<const std::string> controls) {
  return Grammar::from([&](Store& store) {
    std::vector<Id> map(grammar.store().size(), Store::kUnknown);
    const Id start = store.import_grammar(grammar.store(), grammar.start(), map);
    return with_reasoning(store, format.reasoning, thinking, budget, controls,
                          answer_message(store, format, controls, start));
  });
}

Grammar bounded_reasoning(const ReasoningFormat& format, Thinking thinking, std::uint32_t budget,
                          std::span<const std::string> controls) {
  return Grammar::from([&](Store& store) {
    const Id rest = free_text(store, {.tags = {}, .may_end = true});
    return with_reasoning(store, format, thinking, budget, controls, rest);
  });
}

std::vector<std::string> control_names(const OutputFormat& format, const Tokenizer& tokenizer) {
  std::vector<std::string> names;
  for (const Token token : marker_tokens(format, tokenizer)) names.emplace_back(tokenizer.text(token));
  return names;
}

}  // namespace quipu::text::grammar
