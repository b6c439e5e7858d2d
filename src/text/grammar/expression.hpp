// Languages as expressions. A state of the automaton is an expression: the language of the texts that may
// still come. Reading a byte takes the derivative (Brzozowski, "Derivatives of Regular Expressions", 1964);
// expressions are stored once each, so that a state is a number, derivatives are remembered, and copying a
// state or going back to an earlier one costs nothing. A call of a rule leaves what follows it as the tail of
// a concatenation: that tail is the pushdown automaton's stack, shared among all states that have it. Counted
// repeats carry their counts, so that nothing is unrolled.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar/byte_set.hpp"
#include "text/grammar/growing.hpp"

namespace quipu::text::grammar {

using Id = std::uint32_t;
inline constexpr Id kNever = 0;  ///< the empty language
inline constexpr Id kEmpty = 1;  ///< the empty text
inline constexpr std::uint32_t kUnbounded = 0xffffffff;

enum class Kind : std::uint8_t {
  never,
  empty,
  bytes,        ///< one byte of a set
  special,      ///< one token, by name: usually one that writes no text
  not_special,  ///< any one token but one, by name, and those that end the generation
  concat,       ///< first · second; first is never a concat itself
  choice,       ///< one of the children
  both,         ///< all of the children at once
  complement,   ///< every text that the child does not have
  repeat,       ///< low to high times the body
  lexeme,       ///< the body, kept together: what it accepts does not depend on what follows
  rule,         ///< a call of a rule
  modulo,       ///< digits whose number, appended to one of value `high`, is divisible by `low`; points are
                ///< skipped
  until,        ///< free text up to the first of some tags, then that tag's continuation
  members,      ///< entries in any order, each at most once
};

/// Whether a language has a text.
enum class Life : std::uint8_t { unknown, alive, dead };

inline bool is_list_kind(Kind kind) { return kind == Kind::choice || kind == Kind::both; }

struct Node {
  Kind kind = Kind::never;
  bool nullable = false;      ///< has the empty text
  bool intersects = false;    ///< has `both` or `complement` inside: may be empty without being kNever
  bool wide = false;          ///< repeats a large class of characters
  bool unit = false;          ///< the encodings of a class of characters: no one is the prefix of another
  bool universal = false;     ///< a unit that holds every character
  bool textual = false;       ///< made of bytes alone: no tokens by name, no rules
  std::uint16_t depth = 0;    ///< nesting, tails not counted
  Life life = Life::unknown;  ///< as far as that was searched for
  Id a = 0;  ///< concat: first; choice, both: index of the children; others: body, set, name, rule, tags
  Id b = 0;  ///< concat: second; choice, both: number of children; until: place in the tags' automaton;
             ///< members: set of those that came
  std::uint32_t low = 0, high = 0;  ///< repeat: counts; modulo: divisor and remainder; members: entries that
                                    ///< came, as far as that matters, and place in the keys' trie
};

/// The tags that end a free text, as an Aho-Corasick automaton over bytes.
struct Tags {
  struct Place {
    std::vector<std::pair<unsigned char, std::uint32_t>> next;  ///< sorted by byte; others lead to `start`
    std::int32_t found = -1;                                    ///< tag that ends here
  };
  std::vector<Place> places;
  std::vector<Id> then;                               ///< continuation of each tag
  std::vector<std::pair<std::uint32_t, Id>> special;  ///< control tokens that are tags, with continuation
  bool may_end = false;                               ///< the text may end without a tag
  Id otherwise = kNever;     ///< else: the tags stand at the text's start only; this follows where none does
  std::uint32_t budget = 0;  ///< tokens of free text; 0: no limit
  std::vector<Id> forced;    ///< what must follow at each place when they are used up
};

/// What a name of the grammar is in a vocabulary.
struct NamedToken {
  std::uint32_t same_as = 0;  ///< the first name of the same token
  bool text = false;          ///< it writes text: what it spells is read by bytes as well
  bool end = false;           ///< it ends the generation
};

/// Entries with commas between them, in any order: those of certain keys at most once each, and others.
struct Members {
  struct Entry {
    std::string key;   ///< what the entry begins with
    Id rest = kEmpty;  ///< what follows the key
    bool required = false;
  };
  std::vector<Entry> entries;
  Id others = kNever;                          ///< an entry that has none of these keys
  Id comma = kEmpty;                           ///< between two entries
  Id close = kEmpty;                           ///< after the last one, when there is any
  std::uint32_t least = 0, most = kUnbounded;  ///< of entries, others included
};

/// Deeper nesting is refused: derivatives recurse on it.
inline constexpr std::uint16_t kMaxDepth = 300;

/// Expressions, each stored once. Constructors simplify; they throw `Error` (unsupported) beyond the limits.
class Store {
 public:
  Store();

  Id bytes(const ByteSet& set);
  Id byte(unsigned char value) { return bytes(ByteSet::one(value)); }
  Id literal(std::string_view text);
  /// One token, by its text or, as <[id]>, by its number. It is read as a whole, never by bytes.
  Id special(std::string_view name);
  /// Any one token but that.
  Id not_special(std::string_view name);
  Id concat(Id first, Id second);
  Id concat(std::initializer_list<Id> parts);
  Id choice(std::vector<Id> children);
  Id choice(Id first, Id second) { return choice(std::vector<Id>{first, second}); }
  Id optional(Id body) { return choice(body, kEmpty); }
  Id both(std::vector<Id> children);
  Id both(Id first, Id second) { return both(std::vector<Id>{first, second}); }
  Id complement(Id body);
  /// `high` may be kUnbounded.
  Id repeat(Id body, std::uint32_t low, std::uint32_t high);
  /// kNever when the body's language is empty (which is searched for when it intersects).
  Id lexeme(Id body);
  /// The same for a body that is known not to be empty.
  Id living_lexeme(Id body);
  Id modulo(std::uint32_t divisor, std::uint32_t remainder);
  Id until(Tags tags);
  /// kNever when the entries that must come cannot.
  Id members(Members members);
  /// Marks a class of characters: see Node::unit, wide, universal.
  Id unit(Id body, bool wide, bool universal);

  /// Rules may be called before they have a body.
  std::uint32_t new_rule(std::string name);
  void set_rule(std::uint32_t rule, Id body) { rules_[rule].body = body; }
  Id call(std::uint32_t rule);
  std::size_t rules() const { return rules_.size(); }
  Id rule_body(std::uint32_t rule) const { return rules_[rule].body; }
  const std::string& rule_name(std::uint32_t rule) const { return rules_[rule].name; }

  const Node& node(Id id) const { return nodes_[id]; }
  std::span<const Id> children(const Node& node) const { return {lists_.data() + node.a, node.b}; }
  /// What a chain of concatenations joins, in order; a node that is none: itself.
  std::vector<Id> parts_of(Id id) const;
  const ByteSet& set(const Node& node) const { return sets_[node.a]; }
  const Tags& tags(const Node& node) const { return tags_[node.a]; }
  const Members& members(const Node& node) const { return members_[node.a].members; }
  /// Of a place in members: which entries have come, those that may be meant, and bytes of their keys so far
  /// (none: before a comma).
  struct MembersPlace {
    std::span<const std::uint64_t> seen;
    std::uint32_t begin, end, depth;
    bool between;
  };
  MembersPlace members_place(const Node& node) const;
  const std::vector<std::string>& specials() const { return specials_; }
  bool nullable(Id id) const { return nodes_[id].nullable; }
  std::size_t size() const { return nodes_.size(); }
  std::size_t memory() const;

  // ---- the automaton; symbols are classes of bytes, then tokens: those with a name, then all others ----

  using Symbol = std::uint32_t;
  /// Divides the bytes into classes that no set tells apart. Afterwards no new sets or names may be made.
  /// `names`: what the names are in a vocabulary, one each; none: all control tokens, all different.
  void freeze(std::vector<NamedToken> names = {});
  bool frozen() const { return symbols_ != 0; }
  Symbol symbol(unsigned char byte) const { return class_of_[byte]; }
  Symbol byte_symbols() const { return classes_; }
  Symbol special_symbol(std::size_t name) const { return classes_ + names_[name].same_as; }
  /// Any control token that the grammar does not name: allowed in free text and as a token other than one.
  Symbol other_special() const { return symbols_ - 2; }
  /// Any token that writes text and that the grammar does not name, read as a whole.
  Symbol other_text() const { return symbols_ - 1; }
  /// Whether the grammar reads tokens that write text as wholes somewhere, and not by their bytes alone.
  bool reads_text_tokens() const { return reads_text_tokens_; }
  /// Language of the texts that follow `symbol` in `id`.
  Id derive(Id id, Symbol symbol);
  /// The same, quickly where it is remembered.
  Id next(Id id, Symbol symbol) {
    if (id < row_.size() && row_[id] != nullptr) {
      const Id known = row_[id][symbol];
      if (known != kUnknown) return known;
    }
    return derive(id, symbol);
  }
  /// Gives the derivatives that follow a new allowance of work. Beyond it they throw `Error` (unsupported):
  /// the text can be read in too many ways.
  void begin_work() { work_ = 0; }
  /// Whether the language has a text. Searches when the expression intersects; throws `Error` (unsupported)
  /// when the search is too long.
  bool alive(Id id);

  /// The expression of another store, with its rules. `map`, of the other's size, is filled with ids here
  /// (kUnknown elsewhere); rules are carried over by number and must exist here.
  Id import(const Store& from, Id id, std::vector<Id>& map);
  static constexpr Id kUnknown = 0xffffffff;
  /// A finished grammar with its rules, into an empty store.
  Id import_grammar(const Store& from, Id start, std::vector<Id>& map);

  void set_rule_nullable(std::uint32_t rule, bool nullable) { rules_[rule].nullable = nullable; }

  // ---- limits ----
  std::size_t max_nodes = 4'000'000;
  std::uint64_t max_search = 400'000;  ///< derivatives that one `alive` may take
  std::uint64_t max_work = 2'000'000;  ///< parts that derivatives may look at, see begin_work

 private:
  struct Rule {
    std::string name;
    Id body = kNever;
    bool nullable = false;
  };

  Id intern(const Node& node, std::span<const Id> list = {});
  std::uint32_t name_index(std::string_view name);
  bool is_text(Symbol symbol) const;
  bool is_end(Symbol symbol) const;
  bool same(const Node& x, const Node& node, std::span<const Id> list) const;
  std::uint64_t hash(const Node& node, std::span<const Id> list) const;
  Id* new_row();
  std::uint32_t set_index(const ByteSet& set);
  Id list_node(Kind kind, const std::vector<Id>& children);
  bool factor(std::vector<Id>& children);
  bool unite_counts(std::vector<Id>& children);
  Id unite_bytes(std::vector<Id>& children);
  bool merge_repeats(std::vector<Id>& children);
  Id compute(Id id, Symbol symbol);
  Id derive_concat(Id id, Symbol symbol);
  Id derive_until(const Node& node, Symbol symbol);
  Id until_at(std::uint32_t tags, std::uint32_t place);
  Id derive_members(const Node& node, Symbol symbol);
  Id members_at(std::uint32_t members, std::uint32_t seen, std::uint32_t count, std::uint32_t place);
  std::uint32_t seen_index(std::uint32_t members, std::vector<std::uint64_t> words);
  Id import_members(const Store& from, const Node& node, const std::vector<Id>& map);
  std::uint16_t depth_above(std::span<const Id> children) const;

  std::uint64_t serial_;  // no two stores have the same
  int factoring_ = 0;     // depth of the recursion
  std::uint64_t work_ = 0;
  Growing<Node> nodes_;
  std::vector<Id> lists_;
  /// All nodes by their hash: several tables with open addressing, so that none takes long to grow.
  class Table {
   public:
    static constexpr Id kNone = 0xffffffff;
    /// The id of that hash for which `same` holds, or kNone.
    template <class Same>
    Id find(std::uint64_t hash, Same&& same) const {
      const Part& part = parts_[hash >> 61];
      if (part.slots.empty()) return kNone;
      const std::size_t mask = part.slots.size() - 1;
      for (std::size_t at = hash & mask; part.slots[at].id != kNone; at = (at + 1) & mask)
        if (part.slots[at].hash == static_cast<std::uint32_t>(hash) && same(part.slots[at].id))
          return part.slots[at].id;
      return kNone;
    }
    void add(std::uint64_t hash, Id id);

   private:
    struct Slot {
      std::uint32_t hash = 0;
      Id id = kNone;
    };
    struct Part {
      std::vector<Slot> slots;
      std::size_t used = 0;
    };
    std::array<Part, 8> parts_;
  };
  Table table_;
  std::vector<ByteSet> sets_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> set_index_;
  std::vector<Tags> tags_;
  std::map<std::pair<std::uint64_t, Id>, std::uint32_t> tags_map_;  // imported ones
  struct CompiledMembers {
    struct Place {
      std::vector<std::pair<unsigned char, std::uint32_t>> next;  // sorted by byte
      std::uint32_t begin = 0, end = 0;                           // entries below
      std::uint32_t depth = 0;                                    // bytes of the key so far
      std::uint32_t found = kUnknown;                             // entry whose key ends here
    };
    Members members;            // by key
    std::vector<Place> places;  // 0: before a comma; 1: the trie's root
  };
  struct Seen {
    std::vector<std::uint64_t> words;  // one bit an entry
    std::uint32_t missing = 0;         // required entries that have not come
  };
  std::vector<CompiledMembers> members_;
  std::vector<Seen> seen_;
  std::map<std::pair<std::uint32_t, std::vector<std::uint64_t>>, std::uint32_t> seen_index_;
  std::map<std::pair<std::uint64_t, Id>, std::uint32_t> members_map_;  // imported ones
  std::vector<std::string> specials_;
  std::vector<NamedToken> names_;  // by special
  bool reads_text_tokens_ = false;
  std::vector<Rule> rules_;

  std::array<Symbol, 256> class_of_{};
  std::vector<unsigned char> representative_;
  Symbol classes_ = 0, symbols_ = 0;
  static constexpr std::size_t kRowBlock = 16;  // rows of derivatives
  std::vector<std::unique_ptr<Id[]>> rows_;
  std::size_t row_count_ = 0;
  std::vector<Id*> row_;  // of derivatives, by id; nullptr: none yet
  Life known_life(Id id) const;
};

}  // namespace quipu::text::grammar
