// A server over a tiny model, on a free port of this machine.
#pragma once

#include <boost/json.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/error.hpp"
#include "http_client.hpp"
#include "server/server.hpp"
#include "tiny_model.hpp"

namespace quipu::test {

namespace json = boost::json;

struct ServerSettings {
  std::int64_t context = 512, sequences = 4, batch = 64;
  std::size_t queue = 64;
  std::uint32_t pool_pages = 0;
  bool prefix_cache = true, spm = false;
  bool keep_slots = false;
  DType cache = DType::f16;                                ///< of keys and values
  std::vector<std::pair<std::string, gguf::Value>> extra;  ///< metadata of the model
  std::vector<std::string> further;                        ///< further models, other weights each
  server::ModelsOptions models;
  std::uint64_t memory = 0;  ///< for all models; 0: what there is
  std::string page_store;
  std::size_t file_bytes_per_step = std::size_t{16} << 20;
  std::filesystem::path model;  ///< another one in place of the tiny model
  /// Given to the engine with scale 1 and 0.5.
  std::function<std::vector<std::shared_ptr<const models::Adapter>>(const models::Model&)> adapters;
  std::string chat_template =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  server::ServerOptions server;
  std::chrono::milliseconds load_delay{0};
};

class TestServer {
 public:
  explicit TestServer(ServerSettings s = {}) {
    TinyModelOptions tiny;
    tiny.trained_context = static_cast<std::uint32_t>(s.context);
    tiny.spm = s.spm;
    if (!s.chat_template.empty())
      tiny.extra.emplace_back("tokenizer.chat_template", tiny::text(s.chat_template));
    tiny.extra.insert(tiny.extra.end(), s.extra.begin(), s.extra.end());
    if (s.model.empty()) write_tiny_model(folder_ / "tiny.gguf", tiny);
    std::vector<server::ModelEntry> entries{
        {"tiny", {"alias"}, s.model.empty() ? folder_ / "tiny.gguf" : s.model}};
    for (const std::string& name : s.further) {
      ++tiny.seed;
      write_tiny_model(folder_ / (name + ".gguf"), tiny);
      entries.push_back({name, {}, folder_ / (name + ".gguf")});
    }
    s.server.http.host = s.server.http.host == "127.0.0.1" ? "127.0.0.1" : s.server.http.host;
    s.server.http.port = 0;
    s.server.version = "test";
    auto load = [s](const server::ModelEntry& entry, std::uint64_t taken) {
      std::this_thread::sleep_for(s.load_delay);
      auto served = std::make_unique<server::Served>();
      served->entry = entry;
      served->loaded_at = 1;
      engine::EngineOptions options;
      options.context = s.context;
      options.sequences = s.sequences;
      options.batch = s.batch;
      options.pool_pages = s.pool_pages;
      options.prefix_cache = s.prefix_cache;
      options.k_dtype = options.v_dtype = s.cache;
      options.page_store = s.page_store;
      options.file_bytes_per_step = s.file_bytes_per_step;
      options.page_store_bytes = std::uint64_t{1} << 30;
      if (s.memory > 0 && taken >= s.memory) fail(ErrorCode::out_of_memory, "{} bytes are taken", taken);
      if (s.memory > 0) options.memory_budget = s.memory - taken;
      backends::CpuOptions cpu;
      cpu.threads = std::make_shared<ThreadPool>(1);
      options.backends.push_back(backends::make_cpu_backend(std::move(cpu)));
      server::ServiceOptions service;
      service.queue = s.queue;
      service.keep_slots = s.keep_slots;
      auto model = models::Model::load(entry.path);
      if (s.adapters) {
        options.adapters = s.adapters(*model);
        served->adapters.reset({"a.gguf", "b.gguf"}, {1, 0.5F});
      }
      served->service =
          std::make_unique<server::EngineService>(std::move(model), std::move(options), service);
      return served;
    };
    server_ = std::make_unique<server::Server>(
        std::move(s.server), std::make_unique<server::Models>(std::move(entries), load, s.models));
    server_->start();
  }

  std::uint16_t port() const { return server_->port(); }
  server::Server& server() { return *server_; }
  TemporaryFolder& folder() { return folder_; }
  /// The engine of the model, which must be loaded.
  std::shared_ptr<server::Served> served() {
    return wait_for<std::shared_ptr<server::Served>>([&] { return server_->models().list().front().served; });
  }

  HttpReply post(const std::string& path, const std::string& body,
                 const std::vector<std::string>& headers = {}) {
    return HttpClient(port()).request("POST", path, body, headers);
  }
  HttpReply get(const std::string& path, const std::vector<std::string>& headers = {}) {
    return HttpClient(port()).request("GET", path, {}, headers);
  }
  json::object post_json(const std::string& path, const std::string& body) {
    const HttpReply reply = post(path, body);
    return json::parse(reply.body).as_object();
  }

  /// Asks again until the answer is true, for at most half a minute.
  template <class T>
  static T wait_for(const std::function<T()>& ask) {
    for (int i = 0; i < 6000; ++i) {
      if (T answer = ask()) return answer;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return T{};
  }
  /// True once no sequence runs or waits.
  bool becomes_idle() {
    return wait_for<bool>([&] {
      const auto s = served();
      return s->service->queued() == 0 && s->service->running() == 0;  // what waits runs next
    });
  }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<server::Server> server_;
};

/// Fields of a request that make any model say `text`.
inline std::string saying(const std::string& text) {
  return R"("grammar":)" + json::serialize(json::value("root ::= " + json::serialize(json::value(text))));
}

inline std::string str(const json::value& value) { return json::value_to<std::string>(value); }

/// The objects of a server-sent event stream; "[DONE]" is left out.
inline std::vector<json::object> events_of(std::string_view body) {
  std::vector<json::object> list;
  for (std::size_t at = 0; (at = body.find("data: ", at)) != std::string_view::npos;) {
    const std::size_t end = body.find("\n\n", at);
    const std::string_view data = body.substr(at + 6, end - at - 6);
    if (data != "[DONE]") list.push_back(json::parse(std::string(data)).as_object());
    at = end;
  }
  return list;
}

}  // namespace quipu::test
