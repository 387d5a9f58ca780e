// Filters on lists and other values that can be walked over. Like Jinja's, those that give one value per value are
// lazy.
#include <algorithm>
#include <charconv>

#include "text/jinja/arguments.h"
#include "text/jinja/attributes.h"
#include "text/jinja/builtins.h"
#include "text/jinja/loop.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace llm::jinja {
namespace {

enum class Letters { AsTheyAre, Lower };

Value in_case(Runtime& rt, const Value& v, Letters letters) {
  if (letters == Letters::AsTheyAre || !v.is_string()) return v;
  return rt.string(change_case(v.as_string(), Case::Lower));
}

/// "a.0.b": names and, of digits alone, places.
std::vector<Value> attribute_path(Runtime& rt, const Value& attribute) {
  if (attribute.is_none()) return {};
  if (!attribute.is_string()) return {attribute};
  std::vector<Value> path = split_string(rt, attribute.as_string(), Value::string("."), -1);
  for (Value& part : path) {
    const std::string_view text = part.as_string().view();
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    const bool digits = !text.empty() && text[0] != '-' && end == text.data() + text.size() && error == std::errc();
    if (digits) part = Value::integer(n);
  }
  return path;
}

/// The value that an attribute path leads to.
struct Getter {
  std::vector<Value> path;
  Letters letters = Letters::AsTheyAre;
  Value fallback;  ///< for what is undefined on the way; None: nothing

  Value operator()(Runtime& rt, Value v) const {
    for (const Value& part : path) {
      v = get_item(rt, v, part);
      if (v.is_undefined() && !fallback.is_none()) v = fallback;
    }
    return in_case(rt, v, letters);
  }
};

Letters letters_of(const Arguments& a, std::size_t case_sensitive) {
  return a.flag(case_sensitive, false) ? Letters::AsTheyAre : Letters::Lower;
}

void sort_by(Runtime& rt, std::vector<Value>& items, const std::vector<Value>& keys, bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
    return reverse ? less(rt, keys[y], keys[x]) : less(rt, keys[x], keys[y]);
  });
  std::vector<Value> sorted;
  for (const std::size_t i : order) sorted.push_back(items[i]);
  items = std::move(sorted);
}

template <class Key>
std::vector<Value> keys_of(Runtime& rt, const std::vector<Value>& items, Key key) {
  std::vector<Value> keys;
  for (const Value& v : items) keys.push_back(key(rt, v));
  return keys;
}

Value sort(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "sort", given, {"reverse", "case_sensitive", "attribute"});
  const Value attribute = a.get(2, Value());
  std::vector<Getter> getters;
  if (attribute.is_string()) {
    for (const Value& part : split_string(rt, attribute.as_string(), Value::string(","), -1)) {
      getters.push_back({attribute_path(rt, part), letters_of(a, 1), Value()});
    }
  } else {
    getters.push_back({attribute_path(rt, attribute), letters_of(a, 1), Value()});
  }
  std::vector<Value> items = to_items(rt, v);
  const auto key = [&](Runtime& r, const Value& item) {
    std::vector<Value> parts;
    for (const Getter& getter : getters) parts.push_back(getter(r, item));
    return r.list(std::move(parts));
  };
  sort_by(rt, items, keys_of(rt, items, key), a.flag(0, false));
  return rt.list(std::move(items));
}

Value dictsort(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "dictsort", given, {"case_sensitive", "by", "reverse"});
  const std::string by = a.has(1) ? str(rt, a[1]).bytes() : "key";
  if (by != "key" && by != "value") rt.fail("dictsort: you can only sort by either \"key\" or \"value\"");
  require_defined(rt, v);
  if (!v.is_dict()) rt.fail("dictsort: a mapping is needed, not " + std::string(type_name(v)));
  std::vector<Value> items;
  for (const auto& [key, value] : v.as<DictObject>().entries()) items.push_back(rt.tuple({key, value}));
  const Letters letters = letters_of(a, 0);
  const auto key = [&](Runtime& r, const Value& pair) {
    return in_case(r, pair.items()[by == "key" ? 0 : 1], letters);
  };
  sort_by(rt, items, keys_of(rt, items, key), a.flag(2, false));
  return rt.list(std::move(items));
}

Value groupby(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "groupby", given, {"attribute", "default", "case_sensitive"}, 1);
  const Getter shown{attribute_path(rt, a[0]), Letters::AsTheyAre, a.get(1, Value())};
  Getter compared = shown;
  compared.letters = letters_of(a, 2);
  std::vector<Value> items = to_items(rt, v);
  sort_by(rt, items, keys_of(rt, items, compared), false);
  std::vector<Value> groups;
  for (std::size_t from = 0; from < items.size();) {
    const Value key = compared(rt, items[from]);
    std::size_t to = from + 1;
    while (to < items.size() && equal(rt, compared(rt, items[to]), key)) ++to;
    const auto first = items.begin() + static_cast<std::ptrdiff_t>(from),
               last = items.begin() + static_cast<std::ptrdiff_t>(to);
    Value group = rt.tuple({shown(rt, items[from]), rt.list({first, last})});
    group.as<ListObject>().group = true;
    groups.push_back(std::move(group));
    from = to;
  }
  return rt.list(std::move(groups));
}

template <bool largest>
Value extreme(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, largest ? "max" : "min", given, {"case_sensitive", "attribute"});
  const Getter key{attribute_path(rt, a.get(1, Value())), letters_of(a, 0), Value()};
  const std::vector<Value> items = to_items(rt, v);
  if (items.empty()) return rt.undefined("no aggregated item, the sequence was empty");
  Value best = items[0], best_key = key(rt, best);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value k = key(rt, items[i]);
    if (!(largest ? less(rt, best_key, k) : less(rt, k, best_key))) continue;
    best = items[i];
    best_key = std::move(k);
  }
  return best;
}

Value sum(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "sum", given, {"attribute", "start"});
  const Getter getter{attribute_path(rt, a.get(0, Value())), Letters::AsTheyAre, Value()};
  Value total = a.get(1, Value::integer(0));
  if (total.is_string()) rt.fail("sum() cannot sum strings");
  for (const Value& item : to_items(rt, v)) total = binary(rt, BinaryOp::Add, total, getter(rt, item));
  return total;
}

Value join(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "join", given, {"d", "attribute"});
  std::vector<Value> items = to_items(rt, v);
  if (a.given(1)) {
    const Getter getter{attribute_path(rt, a[1]), Letters::AsTheyAre, Value()};
    for (Value& item : items) item = getter(rt, item);
  }
  return joined(rt, a.has(0) ? str(rt, a[0]).as_markup(false) : Str(), items);
}

Value length_of(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "length", given, {});
  if (v.is(Kind::Loop)) return Value::integer(v.as<LoopObject>().count(rt));
  if (const auto n = length(v)) return Value::integer(static_cast<std::int64_t>(*n));
  rt.fail("object of type '" + std::string(type_name(v)) + "' has no len()");
}

Value first(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "first", given, {});
  Value found;
  return iterate(rt, v)->next(rt, found) ? found : rt.undefined("no first item, the sequence was empty");
}

/// The last character, without walking over the text.
Value last_character(const Str& s) { return Value::string(s.substr(previous_character(s.view(), s.size()))); }

bool is_reversible(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_sequence() || v.is_dict() || v.is(Kind::Range) || v.is(Kind::View);
}

Value last(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "last", given, {});
  if (!is_reversible(v)) rt.fail("'" + std::string(type_name(v)) + "' object is not reversible");
  if (v.is_string() && !v.as_string().empty()) return last_character(v.as_string());
  if (v.is_sequence() && !v.items().empty()) return v.items().back();
  const std::vector<Value> items = to_items(rt, v);
  return items.empty() ? rt.undefined("no last item, the sequence was empty") : items.back();
}

Value reverse(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "reverse", given, {});
  if (v.is_string()) return get_slice(rt, v, {Value(), Value(), Value::integer(-1)});
  std::vector<Value> items = to_items(rt, v);
  std::reverse(items.begin(), items.end());
  const Value list = rt.list(std::move(items));
  if (!is_reversible(v)) return list;
  return generator(rt, list, [list, at = std::size_t{0}](Runtime&, Value& out) mutable {
    if (at == list.items().size()) return false;
    out = list.items()[at++];
    return true;
  });
}

Value list(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "list", given, {});
  return rt.list(to_items(rt, v));
}

Value items(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "items", given, {});
  return generator(rt, v, [v, at = std::size_t{0}](Runtime& r, Value& out) mutable {
    if (v.is_undefined()) return false;
    if (!v.is_dict()) r.fail("items: can only get item pairs from a mapping");
    const auto& entries = v.as<DictObject>().entries();
    if (at == entries.size()) return false;
    out = r.tuple({entries[at].first, entries[at].second});
    ++at;
    return true;
  });
}

Value unique(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "unique", given, {"case_sensitive", "attribute"});
  const Getter getter{attribute_path(rt, a.get(1, Value())), letters_of(a, 0), Value()};
  auto seen = std::make_shared<DictObject>();
  return generator(rt, v, [=, source = std::shared_ptr<IteratorObject>()](Runtime& r, Value& out) mutable {
    if (!source) source = iterate(r, v);
    while (source->next(r, out)) {
      const Value key = getter(r, out);
      require_hashable(r, key);
      if (seen->find(key) != nullptr) continue;
      seen->set(key, Value());
      r.check_depth(seen->depth);
      return true;
    }
    return false;
  });
}

Value batch(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "batch", given, {"linecount", "fill_with"}, 1);
  const std::int64_t size = a.integer(0, 1);
  const Value fill = a.get(1, Value());
  if (size > rt.limits().range_items) rt.fail_limit("items of a batch");
  return generator(
      rt, v,
      [=, source = std::shared_ptr<IteratorObject>(), held = std::optional<Value>()](Runtime& r, Value& out) mutable {
        if (!source) source = iterate(r, v);
        std::vector<Value> row;
        if (held) row.push_back(std::move(*held));
        held.reset();
        Value item;
        while (source->next(r, item)) {
          if (std::ssize(row) == size) {
            held = item;
            out = r.list(std::move(row));
            return true;
          }
          row.push_back(item);
        }
        if (row.empty()) return false;
        if (!fill.is_none())
          row.resize(std::max(row.size(), static_cast<std::size_t>(std::max<std::int64_t>(size, 0))), fill);
        out = r.list(std::move(row));
        return true;
      });
}

Value slice(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "slice", given, {"slices", "fill_with"}, 1);
  const std::int64_t slices = a.integer(0, 1);
  const Value fill = a.get(1, Value());
  return generator(
      rt, v,
      [=, all = std::optional<Value>(), at = std::int64_t{0}, begin = std::size_t{0}](Runtime& r, Value& out) mutable {
        if (!all) {
          all = r.list(to_items(r, v));
          if (slices == 0) r.fail("division by zero");
        }
        if (at >= slices) return false;
        const auto n = static_cast<std::int64_t>(all->items().size());
        const bool extra = at < n % slices;
        const std::size_t size = static_cast<std::size_t>(n / slices + (extra ? 1 : 0));
        const auto from = all->items().begin() + static_cast<std::ptrdiff_t>(begin);
        std::vector<Value> row(from, from + static_cast<std::ptrdiff_t>(size));
        if (!fill.is_none() && !extra) row.push_back(fill);
        begin += size;
        ++at;
        out = r.list(std::move(row));
        return true;
      });
}

Value map(Runtime& rt, const Value& v, CallArguments& given) {
  struct State {
    CallArguments arguments;
    std::optional<Getter> getter;
    Value filter;
    std::shared_ptr<IteratorObject> source;
  };
  auto state = std::make_shared<State>();
  state->arguments = std::move(given);
  const auto prepare = [](Runtime& r, State& s) {
    auto& keywords = s.arguments.keywords;
    const auto attribute =
        std::find_if(keywords.begin(), keywords.end(), [](const auto& k) { return k.first.view() == "attribute"; });
    if (!s.arguments.positional.empty()) {
      s.filter = s.arguments.positional.front();
      s.arguments.positional.erase(s.arguments.positional.begin());
      return;
    }
    if (attribute == keywords.end()) r.fail("map requires a filter argument");
    const Arguments a(r, "map", s.arguments, {"attribute", "default"}, 1);
    s.getter = Getter{attribute_path(r, a[0]), Letters::AsTheyAre, a.get(1, Value())};
  };
  return generator(rt, v, [v, state, prepare](Runtime& r, Value& out) {
    if (!state->source) {
      if (!truth(r, v)) return false;
      prepare(r, *state);
      state->source = iterate(r, v);
    }
    Value item;
    if (!state->source->next(r, item)) return false;
    if (state->getter) {
      out = (*state->getter)(r, item);
    } else {
      CallArguments arguments = state->arguments;
      out = call_filter(r, state->filter, item, arguments);
    }
    return true;
  });
}

/// select, reject, selectattr, rejectattr.
template <bool wanted, bool by_attribute>
Value filtered(Runtime& rt, const Value& v, CallArguments& given) {
  auto arguments = std::make_shared<CallArguments>(std::move(given));
  return generator(rt, v,
                   [v, arguments, source = std::shared_ptr<IteratorObject>(), getter = Getter(),
                    test = std::optional<Value>()](Runtime& r, Value& out) mutable {
                     if (!source) {
                       if (!truth(r, v)) return false;
                       auto& positional = arguments->positional;
                       const auto take = [&] {
                         const Value first = positional.front();
                         positional.erase(positional.begin());
                         return first;
                       };
                       if (by_attribute) {
                         if (positional.empty()) r.fail("missing parameter for attribute name");
                         getter.path = attribute_path(r, take());
                       }
                       if (!positional.empty()) test = take();
                       source = iterate(r, v);
                     }
                     while (source->next(r, out)) {
                       const Value key = getter(r, out);
                       CallArguments copy = *arguments;
                       if ((test ? call_test(r, *test, key, copy) : truth(r, key)) == wanted) return true;
                     }
                     return false;
                   });
}

Value default_(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "default", given, {"default_value", "boolean"});
  if (v.is_undefined() || (a.flag(1, false) && !truth(rt, v))) return a.get(0, Value::string(""));
  return v;
}

Value attr(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "attr", given, {"name"}, 1);
  const Str& name = a.string(0);
  require_defined(rt, v);
  const auto found = find_attribute(rt, v, name.view());
  return found ? *found : rt.undefined_element(v, a[0]);
}

}  // namespace

std::span<const detail::FilterRow> detail::sequence_filters() {
  static constexpr FilterRow kRows[] = {
      {"attr", attr},
      {"batch", batch},
      {"count", length_of},
      {"d", default_},
      {"default", default_},
      {"dictsort", dictsort},
      {"first", first},
      {"groupby", groupby},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length_of},
      {"list", list},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", filtered<false, false>},
      {"rejectattr", filtered<false, true>},
      {"reverse", reverse},
      {"select", filtered<true, false>},
      {"selectattr", filtered<true, true>},
      {"slice", slice},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  return kRows;
}

}  // namespace llm::jinja
