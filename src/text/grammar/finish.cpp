#include "text/grammar/finish.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace quipu::text::grammar {

namespace {

/// The expressions that `node` is directly made of, but for a rule's body.
template <class F>
void for_each_part(const Store& store, const Node& node, F&& f) {
  switch (node.kind) {
    case Kind::concat:
      f(node.a);
      f(node.b);
      break;
    case Kind::choice:
    case Kind::both:
      for (const Id child : store.children(node)) f(child);
      break;
    case Kind::complement:
    case Kind::repeat:
    case Kind::lexeme:
      f(node.a);
      break;
    case Kind::until:
      for (const Id then : store.tags(node).then) f(then);
      for (const auto& [name, then] : store.tags(node).special) f(then);
      for (const Id forced : store.tags(node).forced) f(forced);
      f(store.tags(node).otherwise);
      break;
    case Kind::members: {
      const Members& members = store.members(node);
      for (const Members::Entry& entry : members.entries) f(entry.rest);
      for (const Id part : {members.others, members.comma, members.close}) f(part);
      break;
    }
    default:
      break;
  }
}

class Finisher {
 public:
  Finisher(const Store& from, Store& to) : from_(from), to_(to) {}

  Id run(Id root) {
    find_users();
    productive_ = least_fixpoint([&](Id id) { return is_productive(id); });
    if (!productive_[root])
      fail(ErrorCode::invalid_argument, "the grammar has no text: nothing finite can fulfil it");
    nullable_ = least_fixpoint([&](Id id) { return is_nullable(id); });
    find_regular_parts();
    for (std::uint32_t rule = 0; rule < from_.rules(); ++rule) {
      to_.new_rule(from_.rule_name(rule));
      to_.set_rule_nullable(rule, nullable_[from_.rule_body(rule)]);
    }
    plain_.assign(from_.size(), Store::kUnknown);
    inner_.assign(from_.size(), Store::kUnknown);
    const Id start = plain(root, 0);
    // Rules that are called and not yet copied, until there is no more.
    std::vector<bool> copied(from_.rules(), false);
    for (std::size_t next = 0; next < called_.size(); ++next) {
      const std::uint32_t rule = called_[next];
      if (copied[rule]) continue;
      copied[rule] = true;
      to_.set_rule(rule, plain(from_.rule_body(rule), 0));
    }
    refuse_left_recursion(start);
    to_.freeze();
    return start;
  }

 private:
  /// Which expressions have this one as a part; a rule's body has its calls.
  void find_users() {
    users_.resize(from_.size());
    for (Id id = 0; id < from_.size(); ++id) {
      const Node& node = from_.node(id);
      for_each_part(from_, node, [&](Id part) { users_[part].push_back(id); });
      if (node.kind == Kind::rule) users_[from_.rule_body(node.a)].push_back(id);
    }
  }

  template <class Test>
  std::vector<bool> least_fixpoint(Test&& test) {
    value_.assign(from_.size(), false);
    std::vector<Id> work;
    for (Id id = 0; id < from_.size(); ++id) {
      if (!value_[id] && test(id)) value_[id] = true, work.push_back(id);
      while (!work.empty()) {
        const Id changed = work.back();
        work.pop_back();
        for (const Id user : users_[changed])
          if (!value_[user] && test(user)) value_[user] = true, work.push_back(user);
      }
    }
    return std::move(value_);
  }

  bool is_productive(Id id) const {
    const Node& node = from_.node(id);
    switch (node.kind) {
      case Kind::never:
        return false;
      case Kind::concat:
        return value_[node.a] && value_[node.b];
      case Kind::choice: {
        const auto list = from_.children(node);
        return std::any_of(list.begin(), list.end(), [&](Id child) { return value_[child]; });
      }
      case Kind::repeat:
        return node.low == 0 || value_[node.a];
      case Kind::rule:
        return value_[from_.rule_body(node.a)];
      case Kind::until: {
        const Tags& tags = from_.tags(node);
        bool any = tags.may_end || value_[tags.otherwise];
        for (const Id then : tags.then) any |= value_[then];
        for (const auto& [name, then] : tags.special) any |= value_[then];
        return any;
      }
      case Kind::members: {
        const Members& members = from_.members(node);
        std::uint32_t possible = 0;
        for (const Members::Entry& entry : members.entries) {
          if (entry.required && !value_[entry.rest]) return false;
          possible += value_[entry.rest] ? 1 : 0;
        }
        return possible >= members.least || value_[members.others];
      }
      default:
        return true;  // lexemes were searched when they were made
    }
  }

  bool is_nullable(Id id) const {
    const Node& node = from_.node(id);
    switch (node.kind) {
      case Kind::concat:
        return value_[node.a] && value_[node.b];
      case Kind::choice: {
        const auto list = from_.children(node);
        return std::any_of(list.begin(), list.end(), [&](Id child) { return value_[child]; });
      }
      case Kind::repeat:
        return node.low == 0 || value_[node.a];
      case Kind::rule:
        return value_[from_.rule_body(node.a)];
      default:
        return node.nullable;
    }
  }

  /// Which rules are finite (no repeats, no calls of other rules than such) and which expressions are made of
  /// them and repeats alone: those can become lexemes.
  void find_regular_parts() {
    const auto count = static_cast<std::uint32_t>(from_.rules());
    std::vector<std::vector<std::uint32_t>> callers(count);
    std::vector<std::size_t> open(count, 0);
    std::vector<std::uint32_t> mark(from_.size(), UINT32_MAX);
    std::vector<std::uint32_t> ready;
    finite_.assign(count, false);
    const auto is_other = [](Kind kind) {
      return kind == Kind::until || kind == Kind::special || kind == Kind::not_special ||
             kind == Kind::lexeme || kind == Kind::members;
    };
    for (std::uint32_t rule = 0; rule < count; ++rule) {
      std::vector<Id> work{from_.rule_body(rule)};
      bool possible = true;
      while (!work.empty() && possible) {
        const Id id = work.back();
        work.pop_back();
        if (mark[id] == rule) continue;
        mark[id] = rule;
        const Node& node = from_.node(id);
        possible = !is_other(node.kind) && node.kind != Kind::repeat;
        if (node.kind == Kind::rule) callers[node.a].push_back(rule), ++open[rule];
        for_each_part(from_, node, [&](Id part) { work.push_back(part); });
      }
      if (!possible) open[rule] = SIZE_MAX / 2;
      if (open[rule] == 0) ready.push_back(rule);
    }
    while (!ready.empty()) {
      const std::uint32_t rule = ready.back();
      ready.pop_back();
      finite_[rule] = true;
      for (const std::uint32_t caller : callers[rule])
        if (--open[caller] == 0) ready.push_back(caller);
    }
    regular_.assign(from_.size(), true);
    repeats_.assign(from_.size(), false);
    for (Id id = 0; id < from_.size(); ++id) {  // parts come before what they are part of
      const Node& node = from_.node(id);
      bool regular = !is_other(node.kind) && (node.kind != Kind::rule || finite_[node.a]);
      bool repeats = node.kind == Kind::repeat;
      for_each_part(from_, node, [&](Id part) {
        regular = regular && regular_[part];
        repeats = repeats || repeats_[part];
      });
      regular_[id] = regular;
      repeats_[id] = repeats;
    }
  }

  static void check_depth(int depth) {
    if (depth > kMaxDepth) fail(ErrorCode::unsupported, "the grammar nests deeper than {} levels", kMaxDepth);
  }

  /// A copy as part of a lexeme: rules are put in place, lexemes inside are dropped.
  Id inner(Id id, int depth) {
    check_depth(depth);
    if (!productive_[id]) return kNever;
    if (inner_[id] != Store::kUnknown) return inner_[id];
    const Node& node = from_.node(id);
    Id made = kNever;
    switch (node.kind) {
      case Kind::concat: {
        const std::vector<Id> parts = from_.parts_of(id);
        made = kEmpty;
        for (std::size_t i = parts.size(); i-- > 0;) made = to_.concat(inner(parts[i], depth + 1), made);
        break;
      }
      case Kind::choice:
      case Kind::both: {
        std::vector<Id> list;
        for (const Id child : from_.children(node)) list.push_back(inner(child, depth + 1));
        made = node.kind == Kind::choice ? to_.choice(std::move(list)) : to_.both(std::move(list));
        break;
      }
      case Kind::complement:
        made = to_.complement(inner(node.a, depth + 1));
        break;
      case Kind::repeat:
        made = to_.repeat(inner(node.a, depth + 1), node.low, node.high);
        break;
      case Kind::lexeme:
        made = inner(node.a, depth + 1);
        break;
      case Kind::rule:
        made = inner(from_.rule_body(node.a), depth + 1);
        break;
      case Kind::bytes:
        made = to_.bytes(from_.set(node));
        break;
      case Kind::modulo:
        made = to_.modulo(node.low, node.high);
        break;
      default:
        made = id;
        break;
    }
    if (node.unit) to_.unit(made, node.wide, node.universal);
    return inner_[id] = made;
  }

  Id chain(Id id, int depth) {
    const std::vector<Id> parts = from_.parts_of(id);
    Id made = kEmpty;
    std::size_t end = parts.size();
    while (end > 0) {
      std::size_t begin = end - 1;
      if (!regular_[parts[begin]]) {
        made = to_.concat(plain(parts[begin], depth + 1), made);
        end = begin;
        continue;
      }
      while (begin > 0 && regular_[parts[begin - 1]]) --begin;
      bool repeats = false;
      for (std::size_t i = begin; i < end; ++i) repeats = repeats || repeats_[parts[i]];
      Id run = repeats ? kEmpty : made;
      for (std::size_t i = end; i-- > begin;) run = to_.concat(inner(parts[i], depth + 1), run);
      made = repeats ? to_.concat(to_.living_lexeme(run), made) : run;
      end = begin;
    }
    return made;
  }

  Id plain(Id id, int depth) {
    check_depth(depth);
    if (!productive_[id]) return kNever;
    if (plain_[id] != Store::kUnknown) return plain_[id];
    const Node& node = from_.node(id);
    Id made = kNever;
    if (node.kind == Kind::lexeme || (regular_[id] && repeats_[id] && node.kind != Kind::concat)) {
      made = to_.living_lexeme(inner(id, depth + 1));
    } else {
      switch (node.kind) {
        case Kind::concat:
          made = chain(id, depth);
          break;
        case Kind::choice: {
          std::vector<Id> list;
          for (const Id child : from_.children(node)) list.push_back(plain(child, depth + 1));
          made = to_.choice(std::move(list));
          break;
        }
        case Kind::repeat:
          made = to_.repeat(plain(node.a, depth + 1), node.low, node.high);
          break;
        case Kind::rule:
          if (finite_[node.a]) {
            made = inner(from_.rule_body(node.a), depth + 1);
          } else {
            called_.push_back(node.a);
            made = to_.call(node.a);
          }
          break;
        case Kind::special:
          made = to_.special(from_.specials()[node.a]);
          break;
        case Kind::not_special:
          made = to_.not_special(from_.specials()[node.a]);
          break;
        case Kind::until:
          made = until(id, node, depth);
          break;
        case Kind::members: {
          Members members = from_.members(node);
          for (Members::Entry& entry : members.entries) entry.rest = plain(entry.rest, depth + 1);
          for (Id* part : {&members.others, &members.comma, &members.close}) *part = plain(*part, depth + 1);
          made = to_.members(std::move(members));
          break;
        }
        default:
          made = inner(id, depth);
          break;
      }
    }
    return plain_[id] = made;
  }

  Id until(Id id, const Node& node, int depth) {
    if (node.b != 0) fail(ErrorCode::internal, "a free text that has begun, at expression {}", id);
    Tags tags = from_.tags(node);
    for (Id& then : tags.then) then = plain(then, depth + 1);
    for (Id& forced : tags.forced) forced = plain(forced, depth + 1);
    tags.otherwise = plain(tags.otherwise, depth + 1);
    for (auto& [name, then] : tags.special) {
      then = plain(then, depth + 1);
      name = to_.node(to_.special(from_.specials()[name])).a;
    }
    return to_.until(std::move(tags));
  }

  /// Follows what can be reached without reading a byte.
  void refuse_left_recursion(Id start) {
    enum : char { fresh, open, closed };
    std::vector<char> state(to_.size(), fresh);
    std::vector<std::uint16_t> height(to_.size(), 0);
    struct Frame {
      Id id;
      std::vector<Id> next;
      std::size_t done = 0;
    };
    std::vector<Frame> path;
    const auto enter = [&](Id id) {
      state[id] = open;
      Frame frame{id, {}, 0};
      const Node& node = to_.node(id);
      if (node.kind == Kind::concat) {
        frame.next.push_back(node.a);
        if (to_.nullable(node.a)) frame.next.push_back(node.b);
      } else if (node.kind == Kind::rule) {
        frame.next.push_back(to_.rule_body(node.a));
      } else if (node.kind == Kind::members) {
        frame.next.push_back(to_.members(node).others);  // keys are read at once
      } else if (node.kind != Kind::until && node.kind != Kind::lexeme) {
        for_each_part(to_, node, [&](Id part) { frame.next.push_back(part); });
      }
      path.push_back(std::move(frame));
    };
    // All rules: what is not at the start may come later.
    std::vector<Id> starts{start};
    for (std::uint32_t rule = 0; rule < to_.rules(); ++rule) starts.push_back(to_.rule_body(rule));
    for (const Id from : starts) {
      if (state[from] == fresh) enter(from);
      while (!path.empty()) {
        Frame& top = path.back();
        if (top.done < top.next.size()) {
          const Id next = top.next[top.done++];
          if (state[next] == open) name_recursion(next, path);
          if (state[next] == fresh) enter(next);
          continue;
        }
        std::uint16_t most = 0;
        const Node& node = to_.node(top.id);
        for (const Id next : top.next) {
          const std::uint16_t added = node.kind == Kind::concat && next == node.b ? 0 : 1;
          most = std::max(most, static_cast<std::uint16_t>(height[next] + added));
        }
        check_depth(most);
        height[top.id] = most;
        state[top.id] = closed;
        path.pop_back();
      }
    }
  }

  template <class Path>
  [[noreturn]] void name_recursion(Id again, const Path& path) const {
    std::string name = "a rule";
    bool inside = false;
    for (const auto& frame : path) {
      inside |= frame.id == again;
      const Node& node = to_.node(frame.id);
      if (inside && node.kind == Kind::rule) {
        name = fmt::format("the rule \"{}\"", printable(to_.rule_name(node.a), 80));
        break;
      }
    }
    fail(ErrorCode::unsupported, "{} calls itself before it reads anything (left recursion)", name);
  }

  const Store& from_;
  Store& to_;
  std::vector<std::vector<Id>> users_;
  std::vector<bool> value_, productive_, nullable_, finite_, regular_, repeats_;
  std::vector<Id> plain_, inner_;
  std::vector<std::uint32_t> called_;
};

}  // namespace

Id finish(const Store& from, Id root, Store& to) { return Finisher(from, to).run(root); }

}  // namespace quipu::text::grammar
