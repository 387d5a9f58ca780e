// What the interpreter puts back when it leaves something, by whatever way.
#pragma once

#include "text/jinja/interpreter.h"

namespace llm::jinja {

/// Sets a variable until the end of the block.
template <class T>
class Restore {
 public:
  Restore(T& variable, T value) : variable_(variable), old_(std::move(variable)) { variable_ = std::move(value); }
  ~Restore() { variable_ = std::move(old_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& variable_;
  T old_;
};

/// Counts how deep something is nested, up to a limit.
class Count {
 public:
  Count(const Runtime& rt, int& n, int most, std::string_view what) : n_(n) {
    if (n_ >= most) rt.fail_limit(what);
    ++n_;
  }
  ~Count() { --n_; }
  Count(const Count&) = delete;
  Count& operator=(const Count&) = delete;

 private:
  int& n_;
};

class Interpreter::DepthCount : Count {
 public:
  explicit DepthCount(Interpreter& i)
      : Count(i, i.depth_, kMaxEvaluationDepth, "blocks and operators in one another") {}
};

/// Sends output into a string of its own.
class Interpreter::Capture : Restore<Str*> {
 public:
  Capture(Interpreter& i, Str& text) : Restore(i.out_, &text) {}
};

/// Runs a function's code: with variables of its own, inside those of its closure.
class Interpreter::Enter {
 public:
  Enter(Interpreter& i, const std::shared_ptr<Activation>& closure, std::uint32_t slots,
        std::shared_ptr<Activation> again = nullptr)
      : interpreter_(i), outer_(i.activation_) {
    if (!again) {
      i.charge_items(slots);
      again = std::make_shared<Activation>();
      again->parent = closure;
      again->slots.resize(slots, Value::missing());
    }
    i.activation_ = std::move(again);
  }
  ~Enter() { interpreter_.activation_ = std::move(outer_); }
  Enter(const Enter&) = delete;
  Enter& operator=(const Enter&) = delete;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Activation> outer_;
};

}  // namespace llm::jinja
