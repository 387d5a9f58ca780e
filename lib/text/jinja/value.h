// What template expressions compute with: Python's values, as far as templates can see them. Everything but namespaces,
// loops, cyclers and joiners is immutable, as in the sandbox that templates are written for, so values are shared
// freely.
#pragma once

#include <gmpxx.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/str.h"

namespace llm::jinja {

class Runtime;
class Value;

/// One row per kind: X(name, Python's name of the type).
#define LLM_JINJA_KINDS(X)  \
  X(Missing, "missing")     \
  X(Undefined, "Undefined") \
  X(None, "NoneType")       \
  X(Bool, "bool")           \
  X(Int, "int")             \
  X(BigInt, "int")          \
  X(Float, "float")         \
  X(String, "str")          \
  X(List, "list")           \
  X(Tuple, "tuple")         \
  X(Dict, "dict")           \
  X(Range, "range")         \
  X(View, "dict view")      \
  X(Iterator, "generator")  \
  X(Namespace, "Namespace") \
  X(Loop, "LoopContext")    \
  X(Macro, "Macro")         \
  X(Function, "function")   \
  X(Method, "method")       \
  X(Cycler, "Cycler")       \
  X(Joiner, "Joiner")

enum class Kind : std::uint8_t {
#define X(name, type) name,
  LLM_JINJA_KINDS(X)
#undef X
};

/// What a value shares with its copies.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

class Value {
 public:
  Value() = default;  ///< None
  static Value missing() { return Value(Kind::Missing); }
  static Value none(Origin origin = Origin::Template) { return Value(Kind::None, origin); }
  static Value boolean(bool b, Origin origin = Origin::Template);
  static Value integer(std::int64_t i, Origin origin = Origin::Template);
  static Value integer(const mpz_class& i, Origin origin = Origin::Template);  ///< an Int where it fits
  static Value real(double f, Origin origin = Origin::Template);
  static Value string(Str s);
  static Value string(std::string_view bytes, Origin origin = Origin::Template) {
    return string(Str(std::string(bytes), origin));
  }
  static Value object(Kind kind, std::shared_ptr<Object> o, Origin origin = Origin::Template) {
    return Value(kind, origin, std::move(o));
  }

  Kind kind() const { return kind_; }
  bool is(Kind k) const { return kind_ == k; }
  bool is_undefined() const { return kind_ <= Kind::Undefined; }
  bool is_none() const { return kind_ == Kind::None; }
  bool is_string() const { return kind_ == Kind::String; }
  bool is_integer() const { return kind_ >= Kind::Bool && kind_ <= Kind::BigInt; }  ///< as isinstance(x, int)
  bool is_number() const { return kind_ >= Kind::Bool && kind_ <= Kind::Float; }
  bool is_sequence() const { return kind_ == Kind::List || kind_ == Kind::Tuple; }
  bool is_dict() const { return kind_ == Kind::Dict; }

  bool as_bool() const { return int_ != 0; }    ///< of a Bool
  std::int64_t as_int() const { return int_; }  ///< of a Bool or an Int
  double as_float() const { return float_; }    ///< of a Float
  const Str& as_string() const;                 ///< of a String
  const std::vector<Value>& items() const;      ///< of a List or a Tuple
  mpz_class as_big() const;                     ///< of any integer
  const std::shared_ptr<Object>& object() const { return object_; }
  template <class T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  /// Of scalars and containers; a string has its own, byte by byte.
  Origin origin() const { return origin_; }
  Value with_origin(Origin) const;  ///< of a scalar

 private:
  explicit Value(Kind kind, Origin origin = Origin::Template, std::shared_ptr<Object> o = nullptr)
      : kind_(kind), origin_(origin), object_(std::move(o)) {}

  Kind kind_ = Kind::None;
  Origin origin_ = Origin::Template;
  union {
    std::int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  explicit StringObject(Str s) : text(std::move(s)) {}
  const Str text;
};

struct BigObject : Object {
  explicit BigObject(mpz_class v) : value(std::move(v)) {}
  const mpz_class value;
};

struct UndefinedObject : Object {
  explicit UndefinedObject(std::string m) : message(std::move(m)) {}
  const std::string message;  ///< what an operation on it that is not allowed says
};

/// Objects that hold values know how deep those nest, so that no walk over them runs out of stack.
struct Nested : Object {
  int depth = 1;
};

struct ListObject : Nested {
  std::vector<Value> items;
  bool group = false;  ///< a tuple of filter groupby, with attributes `grouper` and `list`
};

/// The order of dict keys in the index: equal exactly where Python's keys are.
struct KeyLess {
  using is_transparent = void;
  const std::vector<std::pair<Value, Value>>* entries;
  bool operator()(std::uint32_t a, std::uint32_t b) const;
  bool operator()(std::uint32_t a, const Value& b) const;
  bool operator()(const Value& a, std::uint32_t b) const;
};

class DictObject : public Nested {
 public:
  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const { return entries_; }
  /// nullptr if there is none. The key must be hashable.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// A key that is there keeps its place and gets the new value.
  void set(Value key, Value value);
  void erase(std::string_view key);
  void clear();

 private:
  static constexpr std::size_t kFewEntries = 8;  // looked through without an index
  std::size_t position(const Value& key) const;
  std::vector<Entry> entries_;
  std::set<std::uint32_t, KeyLess> index_{KeyLess{&entries_}};  ///< used if there are more than a few
};

struct RangeObject : Object {
  std::int64_t start = 0, stop = 0, step = 1, count = 0;
  std::int64_t at(std::int64_t i) const { return start + i * step; }
};

struct ViewObject : Nested {
  enum class Of : std::uint8_t { Keys, Values, Items } of = Of::Keys;
  std::shared_ptr<DictObject> dict;
  Value at(std::size_t i) const;
};

/// What gives values one after the other, once.
struct IteratorObject : Nested {
  virtual bool next(Runtime&, Value& out) = 0;
};

struct NamespaceObject : Nested {
  DictObject attributes;
};

struct CyclerObject : Nested {
  std::vector<Value> items;
  std::size_t at = 0;
};

struct JoinerObject : Nested {
  Value separator;
  bool used = false;
};

/// Arguments of a call as they were given.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<Str, Value>> keywords;  ///< ** takes their names from outside, and they may become keys
};

struct FunctionObject : Object {
  using Body = Value (*)(Runtime&, CallArguments&);
  FunctionObject(std::string_view n, Body b) : name(n), body(b) {}
  const std::string_view name;
  const Body body;
};

struct MethodObject : Nested {
  using Body = Value (*)(Runtime&, const Value& self, CallArguments&);
  Value self;
  std::string name;
  Body body = nullptr;
};

/// Variables that a template is given.
using Context = std::map<std::string, Value, std::less<>>;

/// Python's name of the type, as its messages have it.
std::string_view type_name(const Value&);
int depth(const Value&);

}  // namespace llm::jinja
