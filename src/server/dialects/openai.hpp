// The parts of the OpenAI dialect. Source: https://platform.openai.com/docs/api-reference
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "server/call.hpp"
#include "server/request_fields.hpp"

namespace quipu::server::openai {

inline constexpr std::int64_t kMostChoices = 128;  ///< `n`, as the original has it

void chat_completions(const std::shared_ptr<Call>& call);
void completions(const std::shared_ptr<Call>& call);
void responses(const std::shared_ptr<Call>& call);
void list_models(const std::shared_ptr<Call>& call);
void show_model(const std::shared_ptr<Call>& call);

/// {"error": {"message", "type", "param", "code"}}.
boost::json::object error_object(const RequestError& error);
/// What a chat request asks for, but for `stream` of it: prompt, constraint, tools. Throws a 400.
GenerationRequest read_chat_request(const Fields& fields, const Served& served);
/// "data: …\n\n".
std::string event(const boost::json::object& object);
/// "chatcmpl-…": the prefix and 24 random letters.
std::string make_id(std::string_view prefix);
std::int64_t unix_time();
/// "stop" or "length".
std::string_view finish_reason(engine::StopReason reason);
boost::json::object usage_object(const TotalUsage& usage);
/// The most tokens to generate: the first field that is there. -1: no limit.
std::int64_t read_max_tokens(const Fields& fields, std::initializer_list<std::string_view> names,
                             std::int64_t otherwise);
/// stream_options.include_usage.
bool read_include_usage(const Fields& fields);

}  // namespace quipu::server::openai
