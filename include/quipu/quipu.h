/* quipu: the C interface, for other languages. It grows by new functions and by new fields at the end of
 * option structs; nothing that is here changes its meaning while QUIPU_ABI_VERSION stays the same.
 *
 * Functions that can fail return a status; `quipu_last_error` then says why, in one sentence. Text is UTF-8
 * with an explicit length in bytes. Handles are used by one thread at a time, except models, which any
 * threads may share. */
#ifndef QUIPU_QUIPU_H
#define QUIPU_QUIPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUIPU_ABI_VERSION 1

typedef struct quipu_model quipu_model;
typedef struct quipu_session quipu_session;
typedef struct quipu_result quipu_result;

typedef enum quipu_status {
  QUIPU_OK = 0,
  QUIPU_INVALID_ARGUMENT = 1,
  QUIPU_NOT_FOUND = 2,
  QUIPU_IO = 3,
  QUIPU_BAD_FILE = 4,
  QUIPU_UNSUPPORTED = 5,
  QUIPU_OUT_OF_MEMORY = 6,
  QUIPU_CONTEXT_OVERFLOW = 7,
  QUIPU_NETWORK = 8,
  QUIPU_CHECKSUM = 9,
  QUIPU_CANCELLED = 10,
  QUIPU_INTERNAL = 11
} quipu_status;

/* The version of this header that the library was built with: compare with QUIPU_ABI_VERSION. */
int quipu_abi_version(void);
/* "0.1.0" */
const char* quipu_version(void);
/* The sentence of this thread's last failure; valid until its next call. "" when there was none. */
const char* quipu_last_error(void);

quipu_status quipu_model_open(const char* path, quipu_model** model);
/* NULL is allowed. Sessions of the model stay usable. */
void quipu_model_free(quipu_model* model);
size_t quipu_model_vocabulary_size(const quipu_model* model);
int64_t quipu_model_trained_context(const quipu_model* model);
int quipu_model_has_chat_template(const quipu_model* model);

#define QUIPU_ADD_SPECIAL 1   /* BOS and EOS as the model asks */
#define QUIPU_PARSE_SPECIAL 2 /* control tokens in the text are tokens */

/* Writes at most `capacity` ids; `*count` becomes the number there are. Too small a capacity is no failure:
 * compare. */
quipu_status quipu_tokenize(const quipu_model* model, const char* text, size_t size, int flags,
                            int32_t* tokens, size_t capacity, size_t* count);
/* Likewise with bytes; no terminating zero. */
quipu_status quipu_detokenize(const quipu_model* model, const int32_t* tokens, size_t count, char* text,
                              size_t capacity, size_t* size);

typedef struct quipu_session_options {
  size_t struct_size;     /* sizeof(quipu_session_options) */
  int64_t context;        /* tokens; 0: the trained context, or what memory allows */
  int64_t batch;          /* most tokens computed in one step */
  int32_t threads;        /* 0: the physical cores that the process may use */
  uint64_t memory_budget; /* bytes; 0: what the machine has free */
} quipu_session_options;

/* Fills in the defaults, struct_size included. */
void quipu_session_options_init(quipu_session_options* options);
/* `options` may be NULL. */
quipu_status quipu_session_open(const quipu_model* model, const quipu_session_options* options,
                                quipu_session** session);
void quipu_session_free(quipu_session* session);
int64_t quipu_session_context(const quipu_session* session);
void quipu_session_reset(quipu_session* session);
quipu_status quipu_session_save(quipu_session* session, const char* path);
quipu_status quipu_session_restore(quipu_session* session, const char* path);

/* A piece of text as it comes; a value other than 0 ends the generation. */
typedef int (*quipu_text_callback)(const char* text, size_t size, void* user);

typedef struct quipu_generate_options {
  size_t struct_size; /* sizeof(quipu_generate_options) */
  int64_t max_tokens; /* -1: until the model stops or the context is full */
  uint64_t seed;
  double temperature; /* 0: greedy */
  int64_t top_k;      /* 0: off */
  double top_p;       /* 1: off */
  double min_p;       /* 0: off */
  double repeat_penalty;
  const char* const* stop; /* zero-terminated strings */
  size_t stop_count;
  quipu_text_callback on_text; /* may be NULL */
  void* user;
} quipu_generate_options;

void quipu_generate_options_init(quipu_generate_options* options);

typedef struct quipu_message {
  const char* role; /* "system", "user", "assistant"; zero-terminated, as is content */
  const char* content;
} quipu_message;

/* `options` may be NULL. The result must be freed. */
quipu_status quipu_generate(quipu_session* session, const char* prompt, size_t size,
                            const quipu_generate_options* options, quipu_result** result);
quipu_status quipu_chat(quipu_session* session, const quipu_message* messages, size_t count,
                        const quipu_generate_options* options, quipu_result** result);

void quipu_result_free(quipu_result* result);
/* Zero-terminated too; valid while the result is. `size` may be NULL. */
const char* quipu_result_text(const quipu_result* result, size_t* size);
const int32_t* quipu_result_tokens(const quipu_result* result, size_t* count);
const char* quipu_result_stop(
    const quipu_result* result); /* "eos", "stop", "length", "context", "cancelled" */
int64_t quipu_result_prompt_tokens(const quipu_result* result);
int64_t quipu_result_cached_tokens(const quipu_result* result);

#ifdef __cplusplus
}
#endif

#endif
