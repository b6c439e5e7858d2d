#include "server/adapters.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

namespace quipu::server {

void AdapterScales::reset(std::vector<std::string> paths, std::vector<float> scales) {
  paths_ = std::move(paths);
  set(std::move(scales));
}

std::vector<float> AdapterScales::scales() const {
  const std::lock_guard lock(mutex_);
  return scales_;
}

void AdapterScales::set(std::vector<float> scales) {
  const std::lock_guard lock(mutex_);
  scales_ = std::move(scales);
}

std::vector<float> AdapterScales::read(const boost::json::array& list, const std::string& path) const {
  std::vector<float> scales(paths_.size());
  std::vector<bool> named(paths_.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    const boost::json::object* object = list[i].if_object();
    if (object == nullptr) bad_field(at, "\"{}\" is {}, expected an id and a scale", at, kind_of(list[i]));
    const Fields fields(*object, at);
    if (paths_.empty()) bad_field(at, "\"{}\" names an adapter, but the model has none (--lora)", at);
    const auto id = fields.integer("id", 0, static_cast<std::int64_t>(paths_.size()) - 1);
    const auto scale = fields.number("scale");
    if (!id || !scale) bad_field(at, "\"{}\" lacks \"{}\"", at, id ? "scale" : "id");
    const auto factor = static_cast<float>(*scale);
    if (!std::isfinite(factor)) bad_field(at, "\"{}.scale\" is {}, which is too large", at, *scale);
    const auto index = static_cast<std::size_t>(*id);
    if (named[index]) bad_field(at, "\"{}\" names adapter {} a second time", at, *id);
    named[index] = true;
    scales[index] = factor;
  }
  return scales;
}

}  // namespace quipu::server
