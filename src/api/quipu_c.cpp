// The C interface over the C++ one.
#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "quipu/quipu.h"
#include "quipu/quipu.hpp"

struct quipu_model {
  quipu::Model model;
};
struct quipu_session {
  quipu::Session session;
};
struct quipu_result {
  quipu::Generation generation;
};

namespace {

thread_local std::string last_error;

quipu_status status_of(quipu::ErrorCode code) {
  switch (code) {
    case quipu::ErrorCode::invalid_argument:
      return QUIPU_INVALID_ARGUMENT;
    case quipu::ErrorCode::not_found:
      return QUIPU_NOT_FOUND;
    case quipu::ErrorCode::io:
      return QUIPU_IO;
    case quipu::ErrorCode::bad_file:
      return QUIPU_BAD_FILE;
    case quipu::ErrorCode::unsupported:
      return QUIPU_UNSUPPORTED;
    case quipu::ErrorCode::out_of_memory:
      return QUIPU_OUT_OF_MEMORY;
    case quipu::ErrorCode::context_overflow:
      return QUIPU_CONTEXT_OVERFLOW;
    case quipu::ErrorCode::network:
      return QUIPU_NETWORK;
    case quipu::ErrorCode::checksum:
      return QUIPU_CHECKSUM;
    case quipu::ErrorCode::cancelled:
      return QUIPU_CANCELLED;
    case quipu::ErrorCode::internal:
      return QUIPU_INTERNAL;
  }
  return QUIPU_INTERNAL;
}

quipu_status refuse(const char* message) {
  last_error = message;
  return QUIPU_INVALID_ARGUMENT;
}

/// Runs `work`; no exception leaves the library.
template <class Work>
quipu_status guarded(Work&& work) {
  last_error.clear();
  try {
    work();
    return QUIPU_OK;
  } catch (const quipu::Error& error) {
    last_error = error.message();
    return status_of(error.code());
  } catch (const std::bad_alloc&) {
    last_error = "out of memory";
    return QUIPU_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_error = error.what();
    return QUIPU_INTERNAL;
  } catch (...) {
    last_error = "unknown exception";
    return QUIPU_INTERNAL;
  }
}

/// A caller built with an older header passes a shorter struct: the fields it does not know keep their
/// defaults.
template <class Options, void (*Init)(Options*)>
Options with_defaults(const Options* given) {
  Options options;
  Init(&options);
  if (given != nullptr) {
    std::memcpy(&options, given, std::min(given->struct_size, sizeof options));
    options.struct_size = sizeof options;
  }
  return options;
}

quipu::GenerateOptions generate_options(const quipu_generate_options* given) {
  const auto from = with_defaults<quipu_generate_options, quipu_generate_options_init>(given);
  quipu::GenerateOptions options;
  options.max_tokens = from.max_tokens;
  options.seed = from.seed;
  options.temperature = from.temperature;
  options.top_k = from.top_k;
  options.top_p = from.top_p;
  options.min_p = from.min_p;
  options.repeat_penalty = from.repeat_penalty;
  for (size_t i = 0; i < from.stop_count; ++i) options.stop.emplace_back(from.stop[i]);
  if (from.on_text != nullptr)
    options.on_text = [callback = from.on_text, user = from.user](std::string_view text) {
      return callback(text.data(), text.size(), user) == 0;
    };
  return options;
}

}  // namespace

extern "C" {

int quipu_abi_version(void) { return QUIPU_ABI_VERSION; }
const char* quipu_version(void) { return quipu::version().data(); }
const char* quipu_last_error(void) { return last_error.c_str(); }

quipu_status quipu_model_open(const char* path, quipu_model** model) {
  if (path == nullptr || model == nullptr) return refuse("quipu_model_open: path and model must not be NULL");
  *model = nullptr;
  return guarded([&] { *model = new quipu_model{quipu::Model(path)}; });
}

void quipu_model_free(quipu_model* model) { delete model; }
size_t quipu_model_vocabulary_size(const quipu_model* model) {
  return model == nullptr ? 0 : model->model.vocabulary_size();
}
int64_t quipu_model_trained_context(const quipu_model* model) {
  return model == nullptr ? 0 : model->model.trained_context();
}
int quipu_model_has_chat_template(const quipu_model* model) {
  return model != nullptr && model->model.has_chat_template() ? 1 : 0;
}

quipu_status quipu_tokenize(const quipu_model* model, const char* text, size_t size, int flags,
                            int32_t* tokens, size_t capacity, size_t* count) {
  if (model == nullptr || (text == nullptr && size > 0) || (tokens == nullptr && capacity > 0) ||
      count == nullptr)
    return refuse("quipu_tokenize: a pointer is NULL");
  return guarded([&] {
    const auto ids = model->model.tokenize({text, size}, (flags & QUIPU_ADD_SPECIAL) != 0,
                                           (flags & QUIPU_PARSE_SPECIAL) != 0);
    std::copy_n(ids.begin(), std::min(capacity, ids.size()), tokens);
    *count = ids.size();
  });
}

quipu_status quipu_detokenize(const quipu_model* model, const int32_t* tokens, size_t count, char* text,
                              size_t capacity, size_t* size) {
  if (model == nullptr || (tokens == nullptr && count > 0) || (text == nullptr && capacity > 0) ||
      size == nullptr)
    return refuse("quipu_detokenize: a pointer is NULL");
  return guarded([&] {
    const std::string result = model->model.detokenize({tokens, count});
    std::copy_n(result.begin(), std::min(capacity, result.size()), text);
    *size = result.size();
  });
}

void quipu_session_options_init(quipu_session_options* options) {
  if (options == nullptr) return;
  const quipu::SessionOptions defaults;
  *options = {};
  options->struct_size = sizeof *options;
  options->context = defaults.context;
  options->batch = defaults.batch;
  options->threads = defaults.threads;
  options->memory_budget = defaults.memory_budget;
}

quipu_status quipu_session_open(const quipu_model* model, const quipu_session_options* options,
                                quipu_session** session) {
  if (model == nullptr || session == nullptr)
    return refuse("quipu_session_open: model and session must not be NULL");
  *session = nullptr;
  return guarded([&] {
    const auto from = with_defaults<quipu_session_options, quipu_session_options_init>(options);
    quipu::SessionOptions converted;
    converted.context = from.context;
    converted.batch = from.batch;
    converted.threads = from.threads;
    converted.memory_budget = from.memory_budget;
    *session = new quipu_session{quipu::Session(model->model, converted)};
  });
}

void quipu_session_free(quipu_session* session) { delete session; }
int64_t quipu_session_context(const quipu_session* session) {
  return session == nullptr ? 0 : session->session.context();
}
void quipu_session_reset(quipu_session* session) {
  if (session != nullptr) session->session.reset();
}

quipu_status quipu_session_save(quipu_session* session, const char* path) {
  if (session == nullptr || path == nullptr)
    return refuse("quipu_session_save: session and path must not be NULL");
  return guarded([&] { session->session.save(path); });
}

quipu_status quipu_session_restore(quipu_session* session, const char* path) {
  if (session == nullptr || path == nullptr)
    return refuse("quipu_session_restore: session and path must not be NULL");
  return guarded([&] { session->session.restore(path); });
}

void quipu_generate_options_init(quipu_generate_options* options) {
  if (options == nullptr) return;
  const quipu::GenerateOptions defaults;
  *options = {};
  options->struct_size = sizeof *options;
  options->max_tokens = defaults.max_tokens;
  options->seed = defaults.seed;
  options->temperature = defaults.temperature;
  options->top_k = defaults.top_k;
  options->top_p = defaults.top_p;
  options->min_p = defaults.min_p;
  options->repeat_penalty = defaults.repeat_penalty;
}

quipu_status quipu_generate(quipu_session* session, const char* prompt, size_t size,
                            const quipu_generate_options* options, quipu_result** result) {
  if (session == nullptr || (prompt == nullptr && size > 0) || result == nullptr)
    return refuse("quipu_generate: a pointer is NULL");
  *result = nullptr;
  return guarded([&] {
    *result = new quipu_result{
        session->session.generate(std::string_view(prompt, size), generate_options(options))};
  });
}

quipu_status quipu_chat(quipu_session* session, const quipu_message* messages, size_t count,
                        const quipu_generate_options* options, quipu_result** result) {
  if (session == nullptr || (messages == nullptr && count > 0) || result == nullptr)
    return refuse("quipu_chat: a pointer is NULL");
  for (size_t i = 0; i < count; ++i)
    if (messages[i].role == nullptr || messages[i].content == nullptr)
      return refuse("quipu_chat: a message's role or content is NULL");
  *result = nullptr;
  return guarded([&] {
    std::vector<quipu::ChatMessage> list;
    for (size_t i = 0; i < count; ++i) list.push_back({messages[i].role, messages[i].content});
    *result = new quipu_result{session->session.chat(list, generate_options(options))};
  });
}

void quipu_result_free(quipu_result* result) { delete result; }

const char* quipu_result_text(const quipu_result* result, size_t* size) {
  if (size != nullptr) *size = result == nullptr ? 0 : result->generation.text.size();
  return result == nullptr ? "" : result->generation.text.c_str();
}

const int32_t* quipu_result_tokens(const quipu_result* result, size_t* count) {
  if (count != nullptr) *count = result == nullptr ? 0 : result->generation.tokens.size();
  return result == nullptr ? nullptr : result->generation.tokens.data();
}

const char* quipu_result_stop(const quipu_result* result) {
  return result == nullptr ? "" : result->generation.stop.c_str();
}
int64_t quipu_result_prompt_tokens(const quipu_result* result) {
  return result == nullptr ? 0 : result->generation.prompt_tokens;
}
int64_t quipu_result_cached_tokens(const quipu_result* result) {
  return result == nullptr ? 0 : result->generation.cached_tokens;
}

}  // extern "C"
