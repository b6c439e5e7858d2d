// The parts of llama.cpp's own dialect. Source: tools/server/README.md of llama.cpp.
#pragma once

#include <boost/json/fwd.hpp>
#include <functional>
#include <memory>

#include "server/call.hpp"
#include "server/request_fields.hpp"

namespace quipu::server::llama_cpp {

void completion(const std::shared_ptr<Call>& call);
void infill(const std::shared_ptr<Call>& call);
void tokenize(const std::shared_ptr<Call>& call);
void detokenize(const std::shared_ptr<Call>& call);
void apply_template(const std::shared_ptr<Call>& call);
void tokenizer_info(const std::shared_ptr<Call>& call);
void props(const std::shared_ptr<Call>& call);
void slots(const std::shared_ptr<Call>& call);
void slot_action(const std::shared_ptr<Call>& call);
void adapters(const std::shared_ptr<Call>& call);
void set_adapters(const std::shared_ptr<Call>& call);
void health(const std::shared_ptr<Call>& call);
void metrics(const std::shared_ptr<Call>& call);

/// Runs on the first model, or the one that the body or the query names.
void with_body(const std::shared_ptr<Call>& call,
               std::function<void(const Fields&, const std::shared_ptr<Served>&)> then);
/// {"error": {"code", "message", "type"}}.
boost::json::object error_object(const RequestError& error);
/// The settings of a request as the dialect names them.
boost::json::object settings_object(const engine::Request& request);

}  // namespace quipu::server::llama_cpp
