// The table of families. Sources: the chat templates of the models, which show how earlier calls are written;
// model cards; for texts that models write otherwise than their template, see docs/tool-calls.md.
#include <algorithm>
#include <initializer_list>

#include "text/output/output_format.hpp"

namespace quipu::text {

namespace {

using enum ArgumentSyntax;

/// A row: the family is chosen when all of `needs` occur in the template's source; rows are asked in order.
struct Row {
  std::vector<std::string_view> needs;
  OutputFormat format;
};

CallFormat tagged_object() {
  return {.call = "<tool_call>\n{\"name\": \"{name}\", \"arguments\": {arguments}}\n</tool_call>",
          .separator = "\n",
          .object = true};
}

CallFormat bare_object(std::string key) {
  return {.call = "{\"name\": \"{name}\", \"" + key + "\": {arguments}}",
          .separator = "; ",
          .object = true,
          .arguments_key = key,
          .bare = true};
}

CallFormat object_list(std::string open, std::string close, std::string call) {
  return {.section_open = std::move(open),
          .section_close = std::move(close),
          .call = std::move(call),
          .separator = ", ",
          .object = true};
}

const std::string kObject = "{\"name\": \"{name}\", \"arguments\": {arguments}}";
const std::string kObjectWithId = "{\"name\": \"{name}\", \"arguments\": {arguments}, \"id\": \"{id}\"}";

CallFormat key_value_tags(std::string call, std::string parameter, std::string separator) {
  return {.call = std::move(call),
          .separator = std::move(separator),
          .arguments = xml,
          .parameter = std::move(parameter)};
}

CallFormat with_cdata(CallFormat format) {
  format.cdata = true;
  return format;
}

CallFormat function_tags(std::string tag, std::string break_in_value) {
  return {.section_open = "<" + tag + ">\n",
          .section_close = "\n</" + tag + ">",
          .call = "<function={name}>\n{arguments}</function>",
          .separator = "\n</" + tag + ">\n<" + tag + ">\n",
          .arguments = xml,
          .parameter = "<parameter={key}>" + break_in_value + "{value}" + break_in_value + "</parameter>\n"};
}

/// The opening tag forgotten, as smaller models do.
CallFormat without_section_open(CallFormat format) {
  format.section_open = {};
  format.separator = "\n";
  return format;
}

CallFormat dsml(const std::string& section) {
  return {.section_open = "<｜DSML｜" + section + ">\n",
          .section_close = "</｜DSML｜" + section + ">",
          .call = "<｜DSML｜invoke name=\"{name}\">\n{arguments}</｜DSML｜invoke>\n",
          .arguments = xml,
          .parameter = "<｜DSML｜parameter name=\"{key}\" string=\"{type}\">{value}</｜DSML｜parameter>\n"};
}

CallFormat python_tag_code() {
  return {.call = "<|python_tag|>{arguments}", .arguments = code, .parallel = false};
}

CallFormat deepseek(bool fenced) {
  return {.section_open = "<｜tool▁calls▁begin｜>",
          .section_close = "<｜tool▁calls▁end｜>",
          .call = fenced ? "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<"
                           "｜tool▁call▁end｜>"
                         : "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
          .separator = fenced ? "\n" : ""};
}

std::vector<Row> make_rows() {
  std::vector<Row> rows;
  const auto add = [&](std::initializer_list<std::string_view> needs, OutputFormat format) {
    rows.push_back({needs, std::move(format)});
  };
  add({"<|channel|>analysis", "<|message|>"},
      {.family = "harmony",
       .calls = {{.call = "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}",
                  .separator = "<|call|><|start|>assistant",
                  .parallel = false}},
       .reasoning = {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant"},
       .channels = ChannelFormat{ChannelFormat::Header::harmony,
                                 "<|start|>assistant",
                                 "<|message|>",
                                 {"<|end|>", "<|call|>", "<|return|>"}}});
  add({">>>all", "${recipient}"},
      {.family = "functionary v3.2",
       .calls = {{.call = "{name}\n{arguments}", .separator = "\n>>>"}},
       .channels = ChannelFormat{ChannelFormat::Header::recipient, ">>>", "\n", {">>>"}}});
  add({"<function=", "</function>", "<|python_tag|>"},
      {.family = "functionary v3.1",
       .calls = {{.call = "<function={name}>{arguments}</function>"}, python_tag_code()}});
  add({"<|tool_call>call:"},
      {.family = "gemma 4",
       .calls = {{.call = "<|tool_call>call:{name}{arguments}<tool_call|>", .arguments = gemma}},
       .reasoning = {"<|channel>thought\n", "<channel|>", true}});
  add({"｜DSML｜", "<｜DSML｜tool_calls"}, {.family = "deepseek v4", .calls = {dsml("tool_calls")}});
  add({"｜DSML｜", "tool_calls>"}, {.family = "deepseek v4", .calls = {dsml("tool_calls")}});
  add({"｜DSML｜"}, {.family = "deepseek v3.2", .calls = {dsml("function_calls")}});
  add({"<minimax:tool_call>"}, {.family = "minimax m2",
                                .calls = {{.section_open = "<minimax:tool_call>\n",
                                           .section_close = "</minimax:tool_call>",
                                           .call = "<invoke name=\"{name}\">\n{arguments}</invoke>\n",
                                           .arguments = xml,
                                           .parameter = "<parameter name=\"{key}\">{value}</parameter>\n"}}});
  add({"]<]minimax[>["},
      {.family = "minimax m3",
       .calls = {{.section_open = "]<]minimax[>[<tool_call>\n",
                  .section_close = "]<]minimax[>[</tool_call>",
                  .call = "]<]minimax[>[<invoke name=\"{name}\">{arguments}]<]minimax[>[</invoke>\n",
                  .arguments = nested,
                  .parameter = "]<]minimax[>[<{key}>{value}]<]minimax[>[</{key}>"}},
       .reasoning = {"<mm:think>", "</mm:think>"}});
  add({"<atem:invoke"},
      {.family = "muse",
       .calls = {{.call = " to={name}<|message|><atem:function_calls>\n<atem:invoke name=\"{name}\">\n"
                          "{arguments}</atem:invoke>\n</atem:function_calls>",
                  .separator = "<|eom|><|start|>assistant",
                  .arguments = xml,
                  .parameter = "<atem:parameter name=\"{key}\">{value}</atem:parameter>\n"}},
       .reasoning = {" to=self<|message|>", "<|eom|><|start|>assistant"},
       .channels = ChannelFormat{
           ChannelFormat::Header::addressed, "<|start|>assistant", "<|message|>", {"<|eom|>", "<|eot|>"}}});
  add({"<tool_calls>", "ai name="}, {.family = "minimax m1",
                                     .calls = {{.section_open = "<tool_calls>\n",
                                                .section_close = "\n</tool_calls>",
                                                .call = kObject,
                                                .separator = "\n",
                                                .object = true}}});
  add({"<tool_call{}>", "HYTK"},
      {.family = "hunyuan 3",
       .calls =
           {{.section_open = "<tool_calls:opensource>\n",
             .section_close = "</tool_calls:opensource>",
             .call =
                 "<tool_call:opensource>{name}<tool_sep:opensource>\n{arguments}</tool_call:opensource>\n",
             .arguments = xml,
             .parameter = "<arg_key:opensource>{key}</arg_key:opensource>\n"
                          "<arg_value:opensource>{value}</arg_value:opensource>\n"}},
       .reasoning = {"<think:opensource>", "</think:opensource>"}});
  add({"<seed:tool_call>"}, {.family = "seed",
                             .calls = {function_tags("seed:tool_call", "")},
                             .reasoning = {"<seed:think>", "</seed:think>"}});
  // Line feeds inside the call: the newer models of these makers do without them.
  add({"<arg_key>", "</arg_key>\\n"},
      {.family = "glm",
       .calls = {key_value_tags("<tool_call>{name}\n{arguments}</tool_call>",
                                "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n", "\n")}});
  add({"<arg_key>", "</arg_key>\n"},
      {.family = "glm",
       .calls = {key_value_tags("<tool_call>{name}\n{arguments}</tool_call>",
                                "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n", "\n")}});
  add({"<arg_key>"},
      {.family = "glm compact",
       .calls = {key_value_tags("<tool_call>{name}{arguments}</tool_call>",
                                "<arg_key>{key}</arg_key><arg_value>{value}</arg_value>", "")}});
  add({"<function=", "<parameter="},
      {.family = "qwen3-coder",
       .calls = {function_tags("tool_call", "\n"), without_section_open(function_tags("tool_call", "\n")),
                 tagged_object()}});
  add({"<function name=\"", "<param name=\""},
      {.family = "minicpm 5",
       .calls = {with_cdata(key_value_tags("<function name=\"{name}\">{arguments}</function>",
                                           "<param name=\"{key}\">{value}</param>", "\n"))}});
  add({"<|tool_call_argument_begin|>"},
      {.family = "kimi k2",
       .calls = {{.section_open = "<|tool_calls_section_begin|>",
                  .section_close = "<|tool_calls_section_end|>",
                  .call = "<|tool_call_begin|>functions.{name}:{id}<|tool_call_argument_begin|>{arguments}"
                          "<|tool_call_end|>"}},
       .reasoning = {"<think>", "</think>", false, true},
       .ids = IdStyle::kimi});
  add({"<|open|>", "<|sep|>", "<|close|>"},
      {.family = "kimi k3",
       .calls =
           {{.section_open = "<|open|>tools<|sep|>",
             .section_close = "<|close|>tools<|sep|>",
             .call = "<|open|>call tool=\"{name}\" index=\"{id}\"<|sep|>{arguments}<|close|>call<|sep|>",
             .arguments = xml,
             .parameter =
                 "<|open|>argument key=\"{key}\" type=\"{type}\"<|sep|>{value}<|close|>argument<|sep|>"}},
       .reasoning = {"<|open|>think<|sep|>", "<|close|>think<|sep|>"},
       .markup = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"}});
  add({"<｜tool▁call▁begin｜>", "```json"},
      {.family = "deepseek r1", .calls = {deepseek(true), deepseek(false)}});
  add({"<｜tool▁call▁begin｜>"}, {.family = "deepseek v3.1", .calls = {deepseek(false), deepseek(true)}});
  add({"<|function_call|>"},
      {.family = "gigachat 3.1",
       .calls = {{.call = "<|function_call|>" + kObject, .object = true, .parallel = false}}});
  add({"function call", "<|role_sep|>"},
      {.family = "gigachat 3",
       .calls = {{.call = "<|message_sep|>\n\nfunction call<|role_sep|>\n" + kObject,
                  .object = true,
                  .parallel = false}}});
  add({"<|tool_call:begin|>"},
      {.family = "solar",
       .calls = {{.section_open = "<|tool_calls|>",
                  .section_close = "<|calls|>",
                  .call = "<|tool_call:begin|>{id}<|tool_call:name|>{name}<|tool_call:args|>{arguments}"
                          "<|tool_call:end|>"}},
       .reasoning = {"<|think|>", "<|end|>"},
       .markup = {"<|begin|>assistant", "<|content|>"}});
  add({"<|START_ACTION|>"},
      {.family = "command r7b",
       .calls = {{.section_open = "<|START_ACTION|>[\n    ",
                  .section_close = "\n]<|END_ACTION|>",
                  .call =
                      "{\"tool_call_id\": \"{id}\", \"tool_name\": \"{name}\", \"parameters\": {arguments}}",
                  .separator = ",\n    ",
                  .object = true,
                  .name_key = "tool_name",
                  .arguments_key = "parameters",
                  .id_key = "tool_call_id"}},
       .reasoning = {"<|START_THINKING|>", "<|END_THINKING|>"},
       .markup = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
       .ids = IdStyle::count});
  add({"Action:", "```json", "tool_name"},
      {.family = "command r",
       .calls = {{.section_open = "Action:\n```json\n[\n    ",
                  .section_close = "\n]```",
                  .call = "{\n        \"tool_name\": \"{name}\",\n        \"parameters\": {arguments}\n    }",
                  .separator = ",\n    ",
                  .object = true,
                  .name_key = "tool_name",
                  .arguments_key = "parameters"}}});
  const CallFormat mistral_list = object_list("[TOOL_CALLS][", "]", kObjectWithId);
  const CallFormat mistral_named = {.call = "[TOOL_CALLS]{name}[ARGS]{arguments}"};
  const CallFormat mistral_plain = {.call = "[TOOL_CALLS]{name}{arguments}"};
  const CallFormat mistral_with_id = {.call = "[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]{arguments}"};
  const ReasoningFormat mistral_reasoning{"[THINK]", "[/THINK]"};
  add({"[TOOL_CALLS]", "[CALL_ID]"}, {.family = "mistral small 3.2",
                                      .calls = {mistral_with_id, mistral_named, mistral_plain, mistral_list},
                                      .reasoning = mistral_reasoning,
                                      .ids = IdStyle::mistral});
  add({"[TOOL_CALLS]", "[ARGS]"}, {.family = "mistral",
                                   .calls = {mistral_named, mistral_with_id, mistral_plain, mistral_list},
                                   .reasoning = mistral_reasoning,
                                   .ids = IdStyle::mistral});
  add({"[TOOL_CALLS]"}, {.family = "mistral nemo",
                         .calls = {mistral_list, mistral_named, mistral_with_id, mistral_plain},
                         .reasoning = mistral_reasoning,
                         .ids = IdStyle::mistral});
  add({"<tool_calls>["}, {.family = "apriel",
                          .calls = {object_list("<tool_calls>[", "]</tool_calls>", kObjectWithId)},
                          .reasoning = {"Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"},
                          .markup = {"[END FINAL RESPONSE]", "[BEGIN FINAL RESPONSE]"}});
  add({"<TOOLCALL>"},
      {.family = "nemotron nano", .calls = {object_list("<TOOLCALL>[", "]</TOOLCALL>", kObject)}});
  add({"<|tools_prefix|>"}, {.family = "apertus",
                             .calls = {{.section_open = "<|tools_prefix|>[",
                                        .section_close = "]<|tools_suffix|>",
                                        .call = "{\"{name}\": {arguments}}",
                                        .separator = ", "}},
                             .reasoning = {"<|inner_prefix|>", "<|inner_suffix|>", true}});
  for (const std::string_view mark : {"<|tool_call_start|>", "<|tool_list_start|>"})
    add({mark}, {.family = "lfm2",
                 .calls = {{.section_open = "<|tool_call_start|>[",
                            .section_close = "]<|tool_call_end|>",
                            .call = "{name}({arguments})",
                            .separator = ", ",
                            .arguments = python},
                           object_list("<|tool_call_start|>[", "]<|tool_call_end|>", kObject)}});
  add({"<|tool_call|>", "available_tools"},
      {.family = "granite 3",
       .calls = {object_list("<|tool_call|>[", "]", kObject), object_list("<tool_call>[", "]", kObject)},
       .markup = {"<response>", "</response>"}});
  const CallFormat functools = object_list("functools[", "]", kObject);
  const CallFormat phi = object_list("<|tool_call|>[", "]<|/tool_call|>", kObject);
  const CallFormat phi_single = {
      .call = "<|tool_call|>" + kObject + "<|/tool_call|>", .object = true, .parallel = false};
  add({"functools"}, {.family = "functools", .calls = {functools, phi, phi_single}});
  add({"<|tool|>", "<|/tool|>"}, {.family = "phi 4", .calls = {phi, phi_single, functools}});
  add({"<tool_call>"}, {.family = "hermes", .calls = {tagged_object()}});
  add({"<|start_header_id|>", "\"parameters\""},
      {.family = "llama 3",
       .calls = {bare_object("parameters"),
                 {.call = "<|python_tag|>{\"name\": \"{name}\", \"parameters\": {arguments}}",
                  .separator = "; ",
                  .object = true,
                  .arguments_key = "parameters"},
                 {.call = "<|python_tag|>{name}.call({arguments})", .arguments = python, .parallel = false},
                 python_tag_code()}});
  add({"<start_of_turn>"}, {.family = "gemma",
                            .calls = {tagged_object(),
                                      {.section_open = "```tool_code\n",
                                       .section_close = "\n```",
                                       .call = "{name}({arguments})",
                                       .separator = "\n",
                                       .arguments = python},
                                      {.section_open = "```tool_call\n",
                                       .section_close = "\n```",
                                       .call = kObject,
                                       .separator = "\n",
                                       .object = true},
                                      bare_object("parameters")}});
  add({}, {.family = "general", .calls = {tagged_object(), bare_object("arguments")}});
  return rows;
}

struct Table {
  std::vector<Row> rows = make_rows();
  std::vector<std::shared_ptr<const OutputFormat>> formats;
  Table() {
    for (const Row& row : rows) formats.push_back(std::make_shared<const OutputFormat>(row.format));
  }
};

const Table& table() {
  static const Table instance;
  return instance;
}

}  // namespace

std::shared_ptr<const OutputFormat> output_format_for(std::string_view source) {
  const Table& all = table();
  for (std::size_t i = 0; i < all.rows.size(); ++i) {
    const auto& needs = all.rows[i].needs;
    if (std::all_of(needs.begin(), needs.end(),
                    [&](std::string_view mark) { return source.find(mark) != std::string_view::npos; }))
      return all.formats[i];
  }
  return all.formats.back();
}

const std::vector<std::shared_ptr<const OutputFormat>>& output_formats() { return table().formats; }
const OutputFormat& general_output_format() { return *table().formats.back(); }

}  // namespace quipu::text
