// How Ollama's requests name their model, and say how long it stays. Source: docs/api.md of ollama.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "server/request_fields.hpp"

namespace quipu::server {

/// "model", or "name", without the tag ":latest"; empty: none is named.
std::string ollama_model_name(const Fields& fields);

struct KeepAlive {
  std::optional<std::chrono::seconds> idle;  ///< 0: unload at once; nothing: for ever
};
/// "keep_alive": seconds, or a duration as Go writes it ("5m", "1h30m", "300ms"); negative: for ever. Nothing
/// when it is absent.
/// Throws `RequestError` for anything else.
std::optional<KeepAlive> read_keep_alive(const Fields& fields);

}  // namespace quipu::server
