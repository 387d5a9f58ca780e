// What operations on values need beside the values: a way to fail with a position, the limits, the clock.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "text/jinja/limits.h"
#include "text/jinja/source.h"
#include "text/jinja/value.h"

namespace llm::jinja {

/// The time that strftime_now() formats, as a calendar has it.
struct Now {
  std::tm calendar{};
  int microseconds = 0;
};

class Runtime {
 public:
  Runtime(const Source& source, const Limits& limits, const Now& now) : source_(source), limits_(limits), now_(now) {}
  virtual ~Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  [[noreturn]] void fail(std::string_view message) const { source_.fail(position_, message); }
  [[noreturn]] void fail_limit(std::string_view what) const;
  /// Where the operation stands that is evaluated now.
  std::size_t position() const { return position_; }
  void set_position(std::size_t offset) { position_ = offset; }

  void step(std::uint64_t n = 1) {
    steps_ += n;
    if (steps_ > limits_.steps) fail_limit("steps");
  }
  void charge_bytes(std::size_t n) { step(n / kBytesPerStep); }
  void charge_runs(std::size_t n) { step(n / kRunsPerStep); }
  void charge_items(std::size_t n) { step(n / kItemsPerStep); }
  /// Before something walks over a text.
  void charge_reading(const Str& s) {
    charge_bytes(s.size());
    charge_runs(s.n_runs());
  }
  void charge_reading(const Value& v) {
    if (v.is_string()) charge_reading(v.as_string());
  }
  void charge_reading(const CallArguments& arguments);
  /// Before a string of so many bytes and runs is made.
  void require_string(std::size_t bytes);
  void require_runs(std::size_t runs);
  void limit_runs(std::size_t runs) const;
  /// While one is made, which costs steps when it is whole.
  void limit_string(const Str& s) const;

  const Limits& limits() const { return limits_; }
  const Now& now() const { return now_; }

  Value string(Str s);
  Value string(std::string_view bytes, Origin origin = Origin::Template) {
    return string(Str(std::string(bytes), origin));
  }
  Value list(std::vector<Value> items, Origin origin = Origin::Template) {
    return sequence(Kind::List, std::move(items), origin);
  }
  Value tuple(std::vector<Value> items, Origin origin = Origin::Template) {
    return sequence(Kind::Tuple, std::move(items), origin);
  }
  Value dict(std::shared_ptr<DictObject> d, Origin origin = Origin::Template);
  Value undefined(std::string message) const;
  /// Of `value`, which has no such attribute or element.
  Value undefined_element(const Value& value, const Value& name) const;
  template <class T>
  Value nested(Kind kind, std::shared_ptr<T> object) {
    check_depth(object->depth);
    return Value::object(kind, std::move(object));
  }
  void check_depth(int depth) const {
    if (depth > kMaxValueDepth) fail_limit("values nested in values");
  }

  /// Keeps what can be part of a cycle until the rendering ends, when `release` breaks it.
  virtual void keep(std::shared_ptr<Object> object) = 0;

 private:
  Value sequence(Kind kind, std::vector<Value> items, Origin origin);
  const Source& source_;
  const Limits& limits_;
  const Now& now_;
  std::size_t position_ = 0;
  std::uint64_t steps_ = 0;
};

/// Counts a walk's way down into values.
class DepthGuard {
 public:
  DepthGuard(const Runtime& rt, int& depth) : depth_(depth) { rt.check_depth(++depth_); }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace llm::jinja
