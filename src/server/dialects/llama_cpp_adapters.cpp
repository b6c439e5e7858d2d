// /lora-adapters: which adapters the model has, and the scales of requests that name none.
#include <boost/json.hpp>

#include "server/dialects/llama_cpp.hpp"
#include "server/request_fields.hpp"

namespace quipu::server::llama_cpp {

namespace json = boost::json;

void adapters(const std::shared_ptr<Call>& call) {
  call->with_model(call->request.parameter("model").value_or(""), [call](
                                                                      const std::shared_ptr<Served>& served) {
    json::array list;
    const std::vector<float> scales = served->adapters.scales();
    for (std::size_t id = 0; id < scales.size(); ++id)
      list.push_back(json::object{{"id", id}, {"path", served->adapters.paths()[id]}, {"scale", scales[id]}});
    call->respond_json(json::serialize(list));
  });
}

void set_adapters(const std::shared_ptr<Call>& call) {
  const auto body = std::make_shared<const json::value>(parse_value(call->request.body));
  if (!body->is_array())
    bad_field({}, "the body is {}, expected a list of adapter ids and scales", kind_of(*body));
  call->with_model(call->request.parameter("model").value_or(""),
                   [call, body](const std::shared_ptr<Served>& served) {
                     served->adapters.set(served->adapters.read(body->get_array(), "adapters"));
                     call->respond_json(R"({"success":true})");
                   });
}

}  // namespace quipu::server::llama_cpp
