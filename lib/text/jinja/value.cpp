#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/numbers.h"

namespace llm::jinja {
namespace {

/// Keys of different classes are never equal.
int key_class(const Value& v) {
  if (v.is_none()) return 0;
  if (v.is(Kind::Float) && std::isnan(v.as_float())) return 1;
  if (v.is_number()) return 2;
  if (v.is_string()) return 3;
  if (v.is(Kind::Tuple)) return 4;
  if (v.is_undefined()) return 5;
  return 6;
}

int sign(std::int64_t n) { return n < 0 ? -1 : n > 0 ? 1 : 0; }

/// A total order of hashable values.
int compare_keys(const Value& a, const Value& b) {
  const int c = key_class(a);
  if (c != key_class(b)) return c - key_class(b);
  switch (c) {
    case 2:
      return compare_numbers(a, b);
    case 3:
      return a.as_string().bytes().compare(b.as_string().bytes());
    case 4: {
      const auto &x = a.items(), &y = b.items();
      for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
        if (const int order = compare_keys(x[i], y[i]); order != 0) return order;
      }
      return sign(std::ssize(x) - std::ssize(y));
    }
    case 6:
      return std::less<>()(a.object().get(), b.object().get()) ? -1 : a.object() == b.object() ? 0 : 1;
    default:
      return 0;
  }
}

}  // namespace

Value Value::boolean(bool b, Origin origin) {
  Value v(Kind::Bool, origin);
  v.int_ = b ? 1 : 0;
  return v;
}

Value Value::integer(std::int64_t i, Origin origin) {
  Value v(Kind::Int, origin);
  v.int_ = i;
  return v;
}

Value Value::integer(const mpz_class& i, Origin origin) {
  static_assert(sizeof(long) == sizeof(std::int64_t));
  if (i.fits_slong_p()) return integer(std::int64_t{i.get_si()}, origin);
  return Value(Kind::BigInt, origin, std::make_shared<BigObject>(i));
}

Value Value::real(double f, Origin origin) {
  Value v(Kind::Float, origin);
  v.float_ = f;
  return v;
}

Value Value::string(Str s) {
  return Value(Kind::String, Origin::Template, std::make_shared<StringObject>(std::move(s)));
}

const Str& Value::as_string() const { return as<StringObject>().text; }

const std::vector<Value>& Value::items() const { return as<ListObject>().items; }

mpz_class Value::as_big() const { return is(Kind::BigInt) ? as<BigObject>().value : mpz_class(long{int_}); }

Value Value::with_origin(Origin origin) const {
  Value v = *this;
  v.origin_ = origin;
  return v;
}

bool KeyLess::operator()(std::uint32_t a, std::uint32_t b) const {
  return compare_keys((*entries)[a].first, (*entries)[b].first) < 0;
}
bool KeyLess::operator()(std::uint32_t a, const Value& b) const { return compare_keys((*entries)[a].first, b) < 0; }
bool KeyLess::operator()(const Value& a, std::uint32_t b) const { return compare_keys(a, (*entries)[b].first) < 0; }

std::size_t DictObject::position(const Value& key) const {
  if (entries_.size() > kFewEntries) {
    const auto found = index_.find(key);
    return found == index_.end() ? entries_.size() : *found;
  }
  const auto equal = [&](const Entry& e) { return compare_keys(e.first, key) == 0; };
  return static_cast<std::size_t>(std::find_if(entries_.begin(), entries_.end(), equal) - entries_.begin());
}

const Value* DictObject::find(const Value& key) const {
  const std::size_t at = position(key);
  return at == entries_.size() ? nullptr : &entries_[at].second;
}

const Value* DictObject::find(std::string_view key) const {
  if (entries_.size() > kFewEntries) return find(Value::string(key));
  for (const auto& [k, v] : entries_) {
    if (k.is_string() && k.as_string().view() == key) return &v;
  }
  return nullptr;
}

void DictObject::set(Value key, Value value) {
  depth = std::max({depth, jinja::depth(key) + 1, jinja::depth(value) + 1});
  if (const std::size_t at = position(key); at != entries_.size()) {
    entries_[at].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  const auto n = static_cast<std::uint32_t>(entries_.size());
  if (n == kFewEntries + 1) {
    for (std::uint32_t i = 0; i < n; ++i) index_.insert(i);
  } else if (n > kFewEntries) {
    index_.insert(n - 1);
  }
}

void DictObject::erase(std::string_view key) {
  index_.clear();
  std::erase_if(entries_, [&](const Entry& e) { return e.first.is_string() && e.first.as_string().view() == key; });
  if (entries_.size() <= kFewEntries) return;
  for (std::uint32_t i = 0; i < entries_.size(); ++i) index_.insert(i);
}

void DictObject::clear() {
  index_.clear();
  entries_.clear();
}

Value ViewObject::at(std::size_t i) const {
  const auto& [key, value] = dict->entries()[i];
  if (of == Of::Keys) return key;
  if (of == Of::Values) return value;
  auto pair = std::make_shared<ListObject>();
  pair->items = {key, value};
  pair->depth = dict->depth + 1;
  return Value::object(Kind::Tuple, std::move(pair));
}

std::string_view type_name(const Value& v) {
  if (v.is(Kind::View)) {
    switch (v.as<ViewObject>().of) {
      case ViewObject::Of::Keys:
        return "dict_keys";
      case ViewObject::Of::Values:
        return "dict_values";
      case ViewObject::Of::Items:
        return "dict_items";
    }
  }
  static constexpr std::string_view kNames[] = {
#define X(name, type) type,
      LLM_JINJA_KINDS(X)
#undef X
  };
  return kNames[static_cast<std::size_t>(v.kind())];
}

int depth(const Value& v) {
  switch (v.kind()) {
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::View:
    case Kind::Iterator:
    case Kind::Namespace:
    case Kind::Loop:
    case Kind::Method:
    case Kind::Cycler:
    case Kind::Joiner:
      return v.as<Nested>().depth;
    default:
      return 0;
  }
}

}  // namespace llm::jinja
