// What grammars over one vocabulary share, by the structure of their parts.
#include "text/grammar/masks.hpp"

namespace quipu::text::grammar {

namespace {

std::uint64_t stir(std::uint64_t h, std::uint64_t value) {
  h ^= value + 0x9e3779b97f4a7c15 + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccd;
  return h ^ (h >> 32);
}

}  // namespace

void PrefixCache::make_room(std::size_t bytes) {
  if (bytes_ + bytes > kMaxBytes) {
    runs_.clear();
    prefixes_.clear();
    bytes_ = 0;
  }
  bytes_ += bytes;
}

std::shared_ptr<const RunTable> PrefixCache::find_run(const Fingerprint& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = runs_.find(key);
  return it == runs_.end() ? nullptr : it->second;
}

void PrefixCache::add_run(const Fingerprint& key, std::shared_ptr<const RunTable> table, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  make_room(bytes);
  runs_[key] = std::move(table);
}

std::shared_ptr<const Prefix> PrefixCache::find_prefix(const Fingerprint& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = prefixes_.find(key);
  return it == prefixes_.end() ? nullptr : it->second;
}

void PrefixCache::add_prefix(const Fingerprint& key, std::shared_ptr<const Prefix> prefix,
                             std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  make_room(bytes);
  prefixes_[key] = std::move(prefix);
}

Fingerprint joined(const Fingerprint& x, const Fingerprint& y) {
  return {stir(x.first, y.first), stir(x.second, y.second)};
}

Fingerprint Masks::fingerprint(Id id) {
  const auto it = fingerprints_.find(id);
  if (it != fingerprints_.end()) return it->second;
  const Node node = store_.node(id);
  const auto start = static_cast<std::uint64_t>(node.kind) * 0x100000001b3 + 17;
  Fingerprint h{stir(1, start), stir(2, start)};
  const auto take = [&](std::uint64_t x, std::uint64_t y) { h = {stir(h.first, x), stir(h.second, y)}; };
  take(node.low, node.high);
  take(node.high, node.low);
  switch (node.kind) {
    case Kind::bytes:
      for (const std::uint64_t word : store_.set(node).words) take(word, word);
      break;
    case Kind::concat:
      // A loop: chains may be long.
      for (const Id part : store_.parts_of(id)) {
        const Fingerprint f = fingerprint(part);
        take(f.first, f.second);
      }
      break;
    case Kind::choice:
    case Kind::both: {
      Fingerprint sum{0, 0};  // their order differs between stores
      const auto list = store_.children(node);
      const std::vector<Id> children(list.begin(), list.end());
      for (const Id child : children) {
        const Fingerprint f = fingerprint(child);
        sum = {sum.first + f.first, sum.second + f.second};
      }
      take(sum.first, sum.second);
      break;
    }
    case Kind::complement:
    case Kind::repeat:
    case Kind::lexeme: {
      const Fingerprint f = fingerprint(node.a);
      take(f.first, f.second);
      break;
    }
    default:
      break;
  }
  fingerprints_.emplace(id, h);
  return h;
}

}  // namespace quipu::text::grammar
