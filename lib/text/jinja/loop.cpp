#include "text/jinja/loop.h"

#include <algorithm>

namespace llm::jinja {
namespace {

struct FunctionIterator : IteratorObject {
  NextFunction function;
  bool next(Runtime& rt, Value& out) override {
    rt.step();
    return function(rt, out);
  }
};

/// Over what has a place for each element.
template <class At>
struct IndexIterator : IteratorObject {
  IndexIterator(Value v, std::size_t n, At a) : value(std::move(v)), count(n), at(std::move(a)) {}
  Value value;
  std::size_t count, index = 0;
  At at;
  bool next(Runtime&, Value& out) override {
    if (index == count) return false;
    out = at(value, index++);
    return true;
  }
};

template <class At>
std::shared_ptr<IteratorObject> by_index(const Value& v, std::size_t n, At at) {
  auto iterator = std::make_shared<IndexIterator<At>>(v, n, std::move(at));
  iterator->depth = depth(v) + 1;
  return iterator;
}

struct CharacterIterator : IteratorObject {
  explicit CharacterIterator(Value v) : text(std::move(v)), origins(text.as_string()) {}
  Value text;
  OriginCursor origins;
  std::size_t at = 0;
  bool next(Runtime&, Value& out) override {
    const std::string_view view = text.as_string().view();
    if (at == view.size()) return false;
    const std::size_t end = next_character(view, at);
    out = Value::string(view.substr(at, end - at), origins.at(at));
    at = end;
    return true;
  }
};

/// Walking over `loop` itself takes the values from the loop that runs.
struct RunningLoopIterator : IteratorObject {
  explicit RunningLoopIterator(Value v) : loop(std::move(v)) { depth = loop.as<LoopObject>().depth + 1; }
  Value loop;
  bool next(Runtime& rt, Value& out) override {
    rt.step();
    Value item;
    if (!loop.as<LoopObject>().next(rt, item)) return false;
    out = rt.tuple({item, loop});
    return true;
  }
};

}  // namespace

std::shared_ptr<IteratorObject> iterate(Runtime& rt, const Value& v) {
  switch (v.kind()) {
    case Kind::Missing:
    case Kind::Undefined:
      return by_index(Value(), 0, [](const Value&, std::size_t) { return Value(); });
    case Kind::List:
    case Kind::Tuple:
      return by_index(v, v.items().size(), [](const Value& l, std::size_t i) { return l.items()[i]; });
    case Kind::Dict:
      return by_index(v, v.as<DictObject>().entries().size(),
                      [](const Value& d, std::size_t i) { return d.as<DictObject>().entries()[i].first; });
    case Kind::Range:
      return by_index(v, static_cast<std::size_t>(v.as<RangeObject>().count), [](const Value& r, std::size_t i) {
        return Value::integer(r.as<RangeObject>().at(static_cast<std::int64_t>(i)), r.origin());
      });
    case Kind::View:
      return by_index(v, v.as<ViewObject>().dict->entries().size(),
                      [](const Value& view, std::size_t i) { return view.as<ViewObject>().at(i); });
    case Kind::String:
      return std::make_shared<CharacterIterator>(v);
    case Kind::Iterator:
      return std::static_pointer_cast<IteratorObject>(v.object());
    case Kind::Loop:
      return std::make_shared<RunningLoopIterator>(v);
    default:
      rt.fail("'" + std::string(type_name(v)) + "' object is not iterable");
  }
}

bool is_iterable(const Value& v) {
  switch (v.kind()) {
    case Kind::Missing:
    case Kind::Undefined:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::Range:
    case Kind::View:
    case Kind::String:
    case Kind::Iterator:
    case Kind::Loop:
      return true;
    default:
      return false;
  }
}

std::optional<std::size_t> length(const Value& v) {
  switch (v.kind()) {
    case Kind::Missing:
    case Kind::Undefined:
      return 0;
    case Kind::String:
      return v.as_string().length();
    case Kind::List:
    case Kind::Tuple:
      return v.items().size();
    case Kind::Dict:
      return v.as<DictObject>().entries().size();
    case Kind::View:
      return v.as<ViewObject>().dict->entries().size();
    case Kind::Range:
      return static_cast<std::size_t>(v.as<RangeObject>().count);
    default:
      return std::nullopt;
  }
}

std::vector<Value> to_items(Runtime& rt, const Value& v) {
  if (v.is_sequence()) {
    rt.charge_items(v.items().size());
    return v.items();
  }
  const auto iterator = iterate(rt, v);
  std::vector<Value> items;
  for (Value item; iterator->next(rt, item);) {
    items.push_back(item);
    if (items.size() % kItemsPerStep == 0) rt.step();
  }
  return items;
}

Value generator(Runtime& rt, const Value& source, NextFunction next) {
  auto iterator = std::make_shared<FunctionIterator>();
  iterator->depth = depth(source) + 1;
  iterator->function = std::move(next);
  return rt.nested(Kind::Iterator, std::move(iterator));
}

bool LoopObject::next(Runtime& rt, Value& out) {
  if (after) {
    out = std::move(*after);
    after.reset();
  } else if (!iterator->next(rt, out)) {
    return false;
  }
  ++index0;
  before = std::move(current);
  current = out;
  return true;
}

bool LoopObject::peek(Runtime& rt) {
  if (after) return true;
  Value value;
  if (!iterator->next(rt, value)) return false;
  after = std::move(value);
  return true;
}

std::int64_t LoopObject::count(Runtime& rt) {
  if (known_length) return *known_length;
  if (const auto n = length(iterable)) {
    known_length = static_cast<std::int64_t>(*n);
    return *known_length;
  }
  // What is left has to be read to be counted.
  const Value rest = rt.list(to_items(rt, Value::object(Kind::Iterator, iterator)));
  const auto n = static_cast<std::int64_t>(rest.items().size());
  iterator = iterate(rt, rest);
  known_length = n + index0 + 1 + (after ? 1 : 0);
  return *known_length;
}

}  // namespace llm::jinja
