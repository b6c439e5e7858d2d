#include "server/server_metrics.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "server/metrics.hpp"

namespace quipu::server {

namespace {

using Loaded = std::vector<std::pair<std::string, std::shared_ptr<Served>>>;
using Value = std::function<double(const EngineService&)>;

/// One family with a sample per loaded model.
void per_model(MetricsText& page, const Loaded& loaded, std::string_view name, std::string_view type,
               std::string_view help, const Value& value) {
  page.family(name, type, help);
  for (const auto& [id, served] : loaded) page.sample(name, value(*served->service), {{"model", id}});
}

void histograms(MetricsText& page, const Loaded& loaded, std::string_view name, std::string_view help,
                const Histogram ServiceMetrics::*member) {
  page.family(name, "histogram", help);
  for (const auto& [id, served] : loaded)
    page.histogram(name, (served->service->metrics().*member).snapshot(), {{"model", id}});
}

double bytes_of_pages(const EngineService& service, std::size_t pages) {
  const auto all = static_cast<double>(std::max<std::uint32_t>(service.stats().pages, 1));
  return static_cast<double>(service.memory().kv) * static_cast<double>(pages) / all;
}

}  // namespace

std::string server_metrics_text(const Models& models, const HttpMetrics& http, std::size_t connections,
                                const std::string& version) {
  Loaded loaded;
  for (Models::Listed& listed : models.list()) {
    if (listed.served) loaded.emplace_back(listed.entry.id, std::move(listed.served));
  }
  MetricsText page;
  page.gauge("quipu_info", "Always 1; the version is a label.", 1, {{"version", version}});
  page.gauge("quipu_models_loaded", "Models in memory.", static_cast<double>(loaded.size()));
  page.gauge("quipu_http_connections", "Open connections.", static_cast<double>(connections));
  page.family("quipu_http_responses_total", "counter", "Answers by HTTP status.");
  for (const auto& [status, count] : http.by_status())
    page.sample("quipu_http_responses_total", static_cast<double>(count),
                {{"status", std::to_string(status)}});

  const auto counter = [&](std::string_view name, std::string_view help,
                           const Counter ServiceMetrics::*member) {
    per_model(page, loaded, name, "counter", help, [member](const EngineService& s) {
      return static_cast<double>((s.metrics().*member).value());
    });
  };
  counter("quipu_sequences_total", "Sequences asked for.", &ServiceMetrics::requests);
  counter("quipu_rejected_total", "Requests refused because the queue was full.", &ServiceMetrics::rejected);
  counter("quipu_cancelled_total", "Sequences cancelled.", &ServiceMetrics::cancelled);
  counter("quipu_failed_total", "Sequences that ended with an error.", &ServiceMetrics::failed);
  counter("quipu_prompt_tokens_total", "Tokens of prompts.", &ServiceMetrics::prompt_tokens);
  counter("quipu_cached_tokens_total", "Tokens of prompts found in the prefix cache.",
          &ServiceMetrics::cached_tokens);
  counter("quipu_generated_tokens_total", "Tokens generated.", &ServiceMetrics::generated_tokens);
  counter("quipu_computed_rows_total", "Rows computed: prompt tokens and generated ones.",
          &ServiceMetrics::computed_rows);
  counter("quipu_steps_total", "Batches computed.", &ServiceMetrics::steps);

  const auto gauge = [&](std::string_view name, std::string_view help, Value value) {
    per_model(page, loaded, name, "gauge", help, value);
  };
  gauge("quipu_queue_length", "Sequences that wait for a place.",
        [](const EngineService& s) { return static_cast<double>(s.queued()); });
  gauge("quipu_running_sequences", "Sequences with a place.",
        [](const EngineService& s) { return static_cast<double>(s.running()); });
  gauge("quipu_places", "Sequences that may run together.",
        [](const EngineService& s) { return static_cast<double>(s.places()); });
  gauge("quipu_kv_pages", "Pages of the KV cache.",
        [](const EngineService& s) { return static_cast<double>(s.stats().pages); });
  gauge("quipu_kv_pages_free", "Pages that hold nothing.",
        [](const EngineService& s) { return static_cast<double>(s.stats().free_pages); });
  gauge("quipu_kv_pages_prefix", "Pages that the prefix cache knows.",
        [](const EngineService& s) { return static_cast<double>(s.stats().tree_pages); });
  gauge("quipu_preemptions", "Sequences that gave up their pages so far.",
        [](const EngineService& s) { return static_cast<double>(s.stats().preemptions); });
  gauge("quipu_memory_weights_bytes", "Bytes of the weights.",
        [](const EngineService& s) { return static_cast<double>(s.memory().weights); });
  gauge("quipu_memory_kv_bytes", "Bytes of the KV cache.",
        [](const EngineService& s) { return static_cast<double>(s.memory().kv); });
  gauge("quipu_memory_scratch_bytes", "Bytes of intermediate values.",
        [](const EngineService& s) { return static_cast<double>(s.memory().scratch); });

  gauge("quipu_memory_prefix_bytes", "Bytes of the KV cache that the prefix cache knows.",
        [](const EngineService& s) { return bytes_of_pages(s, s.stats().tree_pages); });
  gauge("quipu_cache_disk_bytes", "Bytes of the files of the prefix cache.",
        [](const EngineService& s) { return static_cast<double>(s.stats().stored.bytes); });
  gauge("quipu_cache_disk_pages", "Pages in files.",
        [](const EngineService& s) { return static_cast<double>(s.stats().stored.pages); });
  per_model(page, loaded, "quipu_cache_disk_loads_total", "counter", "Pages read back from files.",
            [](const EngineService& s) { return static_cast<double>(s.stats().stored.loaded); });

  histograms(page, loaded, "quipu_queue_seconds", "From request to place.", &ServiceMetrics::queue_seconds);
  histograms(page, loaded, "quipu_first_token_seconds", "From request to first token.",
             &ServiceMetrics::first_token_seconds);
  histograms(page, loaded, "quipu_between_tokens_seconds", "Between tokens of a sequence.",
             &ServiceMetrics::between_tokens_seconds);
  histograms(page, loaded, "quipu_batch_sequences", "Sequences in a batch.",
             &ServiceMetrics::batch_sequences);
  histograms(page, loaded, "quipu_step_seconds", "Time of a batch.", &ServiceMetrics::step_seconds);
  return page.take();
}

}  // namespace quipu::server
