#include "text/grammar/lazy.hpp"

#include "core/error.hpp"
#include "text/grammar/free_text.hpp"

namespace quipu::text::grammar {

Grammar lazy(const Grammar& grammar, std::span<const Trigger> triggers) {
  if (triggers.empty()) fail(ErrorCode::invalid_argument, "a lazy grammar has no triggers");
  Store read;
  std::vector<Id> map(grammar.store().size(), Store::kUnknown);
  const Id start = read.import_grammar(grammar.store(), grammar.start(), map);
  read.freeze();
  std::vector<Id> after;  // what follows each trigger in the grammar
  std::vector<std::string> names, controls;
  for (const Trigger& trigger : triggers) {
    if (trigger.text.empty()) fail(ErrorCode::invalid_argument, "a trigger of a lazy grammar is empty");
    Id then = start;
    for (const char c : trigger.text) {
      read.begin_work();
      then = read.derive(then, read.symbol(static_cast<unsigned char>(c)));
    }
    names.push_back(trigger.text);
    if (trigger.token >= 0) {
      names.back() = fmt::format("<[{}]>", trigger.token);
      controls.push_back(names.back());
      for (std::size_t i = 0; i < read.specials().size(); ++i)
        if (read.specials()[i] == trigger.text || read.specials()[i] == names.back())
          then = read.choice(then, read.derive(start, read.special_symbol(i)));
    }
    if (then == kNever)
      fail(ErrorCode::invalid_argument, "the grammar does not begin with its trigger \"{}\"",
           printable(trigger.text, 80));
    after.push_back(then);
  }
  return Grammar::from([&](Store& store) {
    std::vector<Id> ids(read.size(), Store::kUnknown);
    store.import_grammar(read, start, ids);
    FreeText text;
    text.may_end = true;
    text.controls = controls;
    for (std::size_t i = 0; i < names.size(); ++i)
      text.tags.push_back({names[i], store.import(read, after[i], ids)});
    return free_text(store, text);
  });
}

}  // namespace quipu::text::grammar
