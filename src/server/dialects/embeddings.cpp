#include "server/dialects/embeddings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>

#include "core/error.hpp"
#include "server/dialects/ollama_model.hpp"
#include "server/prompt_fields.hpp"
#include "server/request_fields.hpp"

namespace quipu::server {

namespace json = boost::json;
using models::Pooling;

namespace {

using Rows = std::vector<std::vector<float>>;

/// What a request asks for, and what it needs until it is answered.
struct Wanted {
  std::shared_ptr<Call> call;
  std::shared_ptr<Served> served;
  std::string model;  ///< as the client named it
  Pooling pooling = Pooling::mean;
  std::size_t tokens = 0;  ///< of all texts
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

std::string json_text(std::string_view text) { return json::serialize(json::value(text)); }

/// A row as JSON. Shortest digits that read back as the same float.
void append_row(std::string& out, std::span<const float> row) {
  out += '[';
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!std::isfinite(row[i])) fail(ErrorCode::internal, "the model gave a vector that is not finite");
    fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", row[i]);
  }
  out += ']';
}

/// The bytes of the floats, lowest first, in base64.
std::string base64(std::span<const float> row) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static_assert(std::endian::native == std::endian::little);
  std::vector<unsigned char> bytes(row.size() * sizeof(float));
  std::memcpy(bytes.data(), row.data(), bytes.size());
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = std::uint32_t{bytes[i]} << 16;
    if (left > 1) word |= std::uint32_t{bytes[i + 1]} << 8;
    if (left > 2) word |= bytes[i + 2];
    out += digits[word >> 18];
    out += digits[word >> 12 & 63];
    out += left > 1 ? digits[word >> 6 & 63] : '=';
    out += left > 2 ? digits[word & 63] : '=';
  }
  return out;
}

/// By the numbers of llama.cpp: -1 as it is, 0 the largest becomes 32760, p >= 1 a p-norm of 1.
void normalize_by(std::span<float> row, std::int64_t kind) {
  if (kind == 2) return engine::normalize(row);
  if (kind < 0) return;
  double sum = 0;
  for (const float value : row)
    sum = kind == 0 ? std::max(sum, std::abs(double{value}) / 32760)
                    : sum + std::pow(std::abs(double{value}), static_cast<double>(kind));
  if (kind > 0) sum = std::pow(sum, 1 / static_cast<double>(kind));
  if (sum == 0) return;
  for (float& value : row) value = static_cast<float>(double{value} / sum);
}

/// The pooling that a request names ("pooling", our own field), or the model's.
Pooling pooling_of(const Fields& fields, const Served& served) {
  if (const auto name = fields.text("pooling")) {
    const auto pooling = models::find_pooling(*name);
    if (!pooling || *pooling == Pooling::rank)
      bad_field(fields.path("pooling"), "\"pooling\" is \"{}\", expected none, mean, cls or last",
                printable(*name, 40));
    return *pooling;
  }
  const Pooling pooling = served.embeddings().default_pooling();
  if (pooling == Pooling::rank)
    throw RequestError(ErrorKind::invalid_request,
                       "this model scores pairs of texts: use /v1/rerank, or name a \"pooling\"", "model");
  return pooling;
}

/// A text beyond the context, with both counts.
void check_lengths(const std::vector<engine::Passage>& passages, std::int64_t context) {
  for (std::size_t i = 0; i < passages.size(); ++i) {
    const auto size = std::ssize(passages[i].tokens);
    if (size <= context) continue;
    RequestError error(ErrorKind::context_overflow,
                       fmt::format("text {} has {} tokens, the context holds {}: {} too many", i, size,
                                   context, size - context),
                       "input");
    error.prompt_tokens = size;
    error.context = context;
    throw error;
  }
}

/// Runs `then` with the body's fields once the model that they name is loaded.
void with_body(const std::shared_ptr<Call>& call, std::function<void(const Fields&, const Wanted&)> then) {
  auto body = std::make_shared<const json::object>(parse_body(call->request.body));
  const std::string model = Fields(*body).text("model").value_or("");
  call->with_model(model, [call, body, model, then = std::move(then)](const std::shared_ptr<Served>& served) {
    then(Fields(*body), {call, served, model.empty() ? served->entry.id : model});
  });
}

/// The same by Ollama's names, and its "keep_alive".
void with_ollama_body(const std::shared_ptr<Call>& call,
                      std::function<void(const Fields&, const Wanted&)> then) {
  auto body = std::make_shared<const json::object>(parse_body(call->request.body));
  const auto keep = read_keep_alive(Fields(*body));
  call->with_model(ollama_model_name(Fields(*body)),
                   [call, body, keep, then = std::move(then)](const std::shared_ptr<Served>& served) {
                     const Fields fields(*body);
                     if (keep) call->context->models->keep(served->entry.id, keep->idle);
                     then(fields, {call, served, fields.text("model").value_or(served->entry.id)});
                   });
}

std::vector<engine::Passage> read_texts(const Fields& fields, std::string_view name, const Served& served) {
  std::vector<engine::Passage> passages;
  for (Prompt& prompt : read_prompts(fields, name, served.model().tokenizer()))
    passages.push_back({std::move(prompt.tokens)});
  return passages;
}

/// Queues the texts; `answer` makes the body from the rows.
void run(Wanted wanted, std::vector<engine::Passage> passages,
         std::function<std::string(const Wanted&, Rows&)> answer) {
  EmbeddingService& service = wanted.served->embeddings();
  check_lengths(passages, service.context());
  wanted.tokens = 0;
  for (const engine::Passage& passage : passages) wanted.tokens += passage.tokens.size();
  EmbeddingJob job;
  job.pooling = wanted.pooling;
  job.passages = std::move(passages);
  job.on_done = [wanted, answer = std::move(answer)](Rows rows, const std::exception_ptr& error) {
    try {
      if (error) std::rethrow_exception(error);
      wanted.call->respond_json(answer(wanted, rows));
    } catch (...) {
      wanted.call->fail_current();
    }
  };
  service.submit(std::move(job));
}

/// The first numbers of a vector, as models that are trained for it allow (Kusupati et al. 2022), again of
/// length 1.
std::optional<std::size_t> read_dimensions(const Fields& fields, const Served& served) {
  const auto wanted = fields.integer("dimensions");
  if (!wanted) return std::nullopt;
  const std::int64_t width = served.embeddings().width();
  if (*wanted < 1 || *wanted > width)
    bad_field(fields.path("dimensions"),
              "\"dimensions\" is {}, expected 1 to {}, the width of the model's vectors", *wanted, width);
  return static_cast<std::size_t>(*wanted);
}

void shorten(std::vector<float>& row, std::optional<std::size_t> dimensions) {
  if (dimensions && *dimensions < row.size()) row.resize(*dimensions);
  engine::normalize(row);
}

std::int64_t nanoseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

void openai_embeddings(const std::shared_ptr<Call>& call) {
  with_body(call, [](const Fields& fields, Wanted wanted) {
    wanted.pooling = pooling_of(fields, *wanted.served);
    if (wanted.pooling == Pooling::none)
      throw RequestError(ErrorKind::invalid_request,
                         "this interface has one vector a text, and pooling \"none\" gives one a token: use "
                         "/embedding, or name another \"pooling\"",
                         "pooling");
    const std::string format = fields.text("encoding_format").value_or("float");
    if (format != "float" && format != "base64")
      bad_field("encoding_format", "\"encoding_format\" is \"{}\", expected float or base64",
                printable(format, 40));
    const auto dimensions = read_dimensions(fields, *wanted.served);
    auto texts = read_texts(fields, "input", *wanted.served);
    run(std::move(wanted), std::move(texts), [format, dimensions](const Wanted& w, Rows& rows) {
      std::string body = R"({"object":"list","data":[)";
      for (std::size_t i = 0; i < rows.size(); ++i) {
        shorten(rows[i], dimensions);
        body += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)", i == 0 ? "" : ",", i);
        if (format == "base64")
          body += "\"" + base64(rows[i]) + "\"";
        else
          append_row(body, rows[i]);
        body += '}';
      }
      return body + fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                                json_text(w.model), w.tokens, w.tokens);
    });
  });
}

void llama_cpp_embeddings(const std::shared_ptr<Call>& call) {
  with_body(call, [](const Fields& fields, Wanted wanted) {
    wanted.pooling = pooling_of(fields, *wanted.served);
    const std::int64_t kind = fields.integer("embd_normalize", -1, 64).value_or(2);
    auto texts = read_texts(fields, fields.has("input") ? "input" : "content", *wanted.served);
    const auto width = static_cast<std::size_t>(wanted.served->embeddings().width());
    run(std::move(wanted), std::move(texts), [kind, width](const Wanted& w, Rows& rows) {
      std::string body = "[";
      for (std::size_t i = 0; i < rows.size(); ++i) {
        body += fmt::format(R"({}{{"index":{},"embedding":[)", i == 0 ? "" : ",", i);
        const std::size_t step = w.pooling == Pooling::none ? width : rows[i].size();
        for (std::size_t at = 0; at < rows[i].size(); at += step) {
          const std::span<float> row = std::span(rows[i]).subspan(at, step);
          // The vectors of tokens stay as they are, as in llama.cpp.
          if (w.pooling != Pooling::none) normalize_by(row, kind);
          if (at > 0) body += ',';
          append_row(body, row);
        }
        body += "]}";
      }
      return body + "]";
    });
  });
}

void ollama_embed(const std::shared_ptr<Call>& call) {
  with_ollama_body(call, [](const Fields& fields, Wanted wanted) {
    wanted.pooling = pooling_of(fields, *wanted.served);
    if (wanted.pooling == Pooling::none) wanted.pooling = Pooling::mean;
    const auto dimensions = read_dimensions(fields, *wanted.served);
    auto texts = read_texts(fields, "input", *wanted.served);
    if (fields.boolean("truncate").value_or(true))
      for (engine::Passage& text : texts)
        engine::truncate(wanted.served->model(), text, wanted.served->embeddings().context());
    run(std::move(wanted), std::move(texts), [dimensions](const Wanted& w, Rows& rows) {
      std::string body = fmt::format(R"({{"model":{},"embeddings":[)", json_text(w.model));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        shorten(rows[i], dimensions);
        if (i > 0) body += ',';
        append_row(body, rows[i]);
      }
      return body + fmt::format(R"(],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})",
                                nanoseconds_since(w.start), w.tokens);
    });
  });
}

void ollama_embeddings(const std::shared_ptr<Call>& call) {
  with_ollama_body(call, [](const Fields& fields, Wanted wanted) {
    wanted.pooling = pooling_of(fields, *wanted.served);
    if (wanted.pooling == Pooling::none) wanted.pooling = Pooling::mean;
    const auto prompt = fields.text("prompt");
    if (!prompt) bad_field("prompt", "\"prompt\" is missing, expected a string");
    std::vector<engine::Passage> texts{engine::make_passage(wanted.served->model(), *prompt)};
    engine::truncate(wanted.served->model(), texts.front(), wanted.served->embeddings().context());
    run(std::move(wanted), std::move(texts), [](const Wanted&, Rows& rows) {
      std::string body = R"({"embedding":)";
      append_row(body, rows.front());
      return body + "}";
    });
  });
}

void rerank(const std::shared_ptr<Call>& call) {
  with_body(call, [](const Fields& fields, Wanted wanted) {
    const models::Model& model = wanted.served->model();
    if (!model.has_classifier())
      throw RequestError(ErrorKind::invalid_request,
                         fmt::format("the model \"{}\" has no classification head, expected a reranker",
                                     printable(wanted.model, 100)),
                         "model");
    const auto query = fields.text("query");
    if (!query) bad_field("query", "\"query\" is missing, expected a string");
    const bool is_tei = !fields.has("documents") && fields.has("texts");
    const std::string_view name = is_tei ? "texts" : "documents";
    const json::array* list = fields.array(name);
    if (list == nullptr || list->empty())
      bad_field(std::string(name), "\"{}\" is {}, expected a list of strings", name,
                list == nullptr ? "missing" : "an empty list");
    std::vector<std::string> documents;
    std::vector<engine::Passage> pairs;
    for (const json::value& item : *list) {
      const json::value* text = &item;
      if (const json::object* object = item.if_object()) text = object->if_contains("text");
      if (text == nullptr || !text->is_string())
        bad_field(std::string(name), "\"{}\" holds {}, expected strings or objects with \"text\"", name,
                  kind_of(item));
      documents.emplace_back(as_text(*text));
      pairs.push_back(engine::make_pair(model, *query, documents.back()));
    }
    const auto top = static_cast<std::size_t>(
        fields.integer("top_n", 1).value_or(static_cast<std::int64_t>(documents.size())));
    const bool shows_text = fields.boolean(is_tei ? "return_text" : "return_documents").value_or(false);
    wanted.pooling = Pooling::rank;
    run(std::move(wanted), std::move(pairs),
        [documents = std::move(documents), top, shows_text, is_tei](const Wanted& w, Rows& rows) {
          std::vector<std::size_t> order(rows.size());
          std::iota(order.begin(), order.end(), std::size_t{0});
          std::stable_sort(order.begin(), order.end(),
                           [&](std::size_t a, std::size_t b) { return rows[a].front() > rows[b].front(); });
          order.resize(std::min(top, order.size()));
          std::string results = "[";
          for (const std::size_t i : order) {
            if (!std::isfinite(rows[i].front()))
              fail(ErrorCode::internal, "the model gave a score that is not finite");
            results += fmt::format(R"({}{{"index":{},"{}":{})", results.size() > 1 ? "," : "", i,
                                   is_tei ? "score" : "relevance_score", rows[i].front());
            if (shows_text && is_tei) results += R"(,"text":)" + json_text(documents[i]);
            if (shows_text && !is_tei) results += R"(,"document":{"text":)" + json_text(documents[i]) + "}";
            results += '}';
          }
          results += ']';
          if (is_tei) return results;
          return fmt::format(
              R"({{"model":{},"object":"list","usage":{{"prompt_tokens":{},"total_tokens":{}}},"results":{}}})",
              json_text(w.model), w.tokens, w.tokens, results);
        });
  });
}

}  // namespace quipu::server
