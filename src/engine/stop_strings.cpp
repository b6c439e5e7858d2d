#include "engine/stop_strings.hpp"

#include <algorithm>
#include <utility>

namespace quipu::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    Automaton& a = automata_.emplace_back();
    a.stop = std::move(stop);
    a.fallback.assign(a.stop.size() + 1, 0);
    for (std::size_t i = 1, border = 0; i < a.stop.size(); ++i) {
      while (border > 0 && a.stop[i] != a.stop[border]) border = a.fallback[border];
      if (a.stop[i] == a.stop[border]) ++border;
      a.fallback[i + 1] = border;
    }
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (matched_) return {};
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t longest = 0;
    for (Automaton& a : automata_) {
      while (a.state > 0 && text[i] != a.stop[a.state]) a.state = a.fallback[a.state];
      if (text[i] == a.stop[a.state]) ++a.state;
      if (a.state == a.stop.size() && a.state > longest) {
        longest = a.state;
        found_ = a.stop;
      }
    }
    if (longest > 0) {
      matched_ = true;
      held_.append(text.substr(0, i + 1));
      held_.resize(held_.size() - longest);
      std::string released = std::exchange(held_, {});
      released_ += released.size();
      return released;
    }
  }
  held_.append(text);
  std::size_t keep = 0;
  for (const Automaton& a : automata_) keep = std::max(keep, a.state);
  std::string released = held_.substr(0, held_.size() - keep);
  held_.erase(0, released.size());
  released_ += released.size();
  return released;
}

std::string StopMatcher::finish() {
  released_ += held_.size();
  return std::exchange(held_, {});
}

}  // namespace quipu::engine
