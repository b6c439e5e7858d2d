#include "server/dialects/ollama_model.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string_view>

#include "core/error.hpp"

namespace quipu::server {

namespace json = boost::json;

std::string ollama_model_name(const Fields& fields) {
  constexpr std::string_view kLatest = ":latest";
  std::string name = fields.text("model").value_or(fields.text("name").value_or(""));
  if (name.size() > kLatest.size() && name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
  return name;
}

std::optional<KeepAlive> read_keep_alive(const Fields& fields) {
  const json::value* value = fields.find("keep_alive");
  if (value == nullptr) return std::nullopt;
  double seconds = 0;
  if (!value->is_string()) {
    seconds = *fields.number("keep_alive");
  } else {
    static const std::map<std::string_view, double> kUnits{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1},
                                                           {"m", 60},    {"h", 3600},  {"", 1}};
    const std::string_view text = as_text(*value);
    const bool negative = !text.empty() && text.front() == '-';
    std::size_t at = negative ? 1 : 0;
    bool good = at < text.size();
    while (good && at < text.size()) {
      const std::size_t digits = std::min(text.find_first_not_of("0123456789.", at), text.size());
      const std::size_t unit = std::min(text.find_first_of("0123456789.", digits), text.size());
      const auto factor = kUnits.find(text.substr(digits, unit - digits));
      good = digits > at && digits - at < 16 && factor != kUnits.end();
      if (good)
        seconds += std::strtod(std::string(text.substr(at, digits - at)).c_str(), nullptr) * factor->second;
      at = unit;
    }
    if (!good)
      bad_field("keep_alive", "\"keep_alive\" is \"{}\", expected seconds or a duration such as \"5m\"",
                printable(text, 40));
    if (negative) seconds = -seconds;
  }
  constexpr double kLongest = 10 * 365 * 86400.0;
  if (seconds < 0 || seconds > kLongest) return KeepAlive{};
  return KeepAlive{std::chrono::seconds(static_cast<std::int64_t>(std::ceil(seconds)))};
}

}  // namespace quipu::server
