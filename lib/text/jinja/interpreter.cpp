// Statements, loops and calls. Expressions are in expressions.cpp.
#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter_guards.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace llm::jinja {

struct Interpreter::LoopFunction : Object {
  const ForStmt* statement = nullptr;
  std::shared_ptr<Activation> closure;
};

std::string macro_name(const MacroObject& macro) { return macro.name.empty() ? "anonymous" : "'" + macro.name + "'"; }

std::optional<Value> macro_attribute(Runtime& rt, const Value& v, std::string_view name) {
  const auto& macro = v.as<MacroObject>();
  const Function& f = *macro.function;
  if (name == "name") return macro.name.empty() ? Value() : Value::string(macro.name);
  if (name == "catch_kwargs") return Value::boolean(f.kwargs_slot.has_value());
  if (name == "catch_varargs") return Value::boolean(f.varargs_slot.has_value());
  if (name == "caller") return Value::boolean(f.takes_caller);
  if (name == "explicit_caller") return Value::boolean(f.explicit_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const auto& p : f.parameters) names.push_back(Value::string(p.name));
  return rt.tuple(std::move(names));
}

Interpreter::Interpreter(const Source& source, const Tree& tree, const Limits& limits, const Now& now)
    : Runtime(source, limits, now), tree_(tree) {}

/// Whatever may be part of a cycle lets go of its values. As all of it is still held here, none of that recurses.
Interpreter::~Interpreter() {
  for (const auto& object : kept_) {
    if (auto* activation = dynamic_cast<Activation*>(object.get())) activation->slots.clear();
    if (auto* loop = dynamic_cast<LoopObject*>(object.get())) loop->changed.reset();
    if (auto* ns = dynamic_cast<NamespaceObject*>(object.get())) ns->attributes.clear();
  }
}

Str Interpreter::run(const Context& context) {
  for (const std::string& name : tree_.context_names) {
    const auto given = context.find(name);
    const Value* global = find_global(name);
    context_.push_back(given != context.end() ? given->second : global != nullptr ? *global : Value::missing());
  }
  activation_ = std::make_shared<Activation>();
  activation_->slots.resize(tree_.slots, Value::missing());
  keep_activation(activation_);
  Str out;
  out_ = &out;
  enter(tree_.scope);
  exec(tree_.body);
  return out;
}

// ---- variables

void Interpreter::keep_activation(const std::shared_ptr<Activation>& a) {
  if (a->kept) return;
  a->kept = true;
  keep(a);
}

Value& Interpreter::variable(const Place& place) {
  Activation* a = activation_.get();
  for (std::uint32_t i = 0; i < place.hops; ++i) a = a->parent.get();
  return a->slots[place.slot];
}

void Interpreter::enter(const Scope& scope) {
  step(scope.loads.size() / kVariablesPerStep);
  for (const Load& load : scope.loads) {
    switch (load.from) {
      case Load::From::Context:
        own(load.slot) = context_[load.name];
        break;
      case Load::From::Place:
        own(load.slot) = Value(variable(load.place));
        break;
      case Load::From::Nothing:
        own(load.slot) = Value::missing();
        break;
    }
  }
}

void Interpreter::leave(const Scope& scope) {
  for (const std::uint32_t slot : scope.slots) own(slot) = Value::missing();
}

void Interpreter::require_namespaces(const Target& t) {
  if (t.kind == Target::Kind::Attribute && !variable(t.place).is(Kind::Namespace)) {
    set_position(t.offset);
    fail("cannot assign an attribute of '" + t.name + "', which is no namespace");
  }
  for (const Target& item : t.items) require_namespaces(item);
}

void Interpreter::assign(const Target& t, Value v) {
  switch (t.kind) {
    case Target::Kind::Name:
      variable(t.place) = std::move(v);
      return;
    case Target::Kind::Attribute:
      require_namespaces(t);
      set_position(t.offset);
      return set_attribute(variable(t.place), t.attribute, std::move(v));
    case Target::Kind::Tuple: {
      set_position(t.offset);
      const std::vector<Value> items = to_items(*this, v);
      if (items.size() != t.items.size()) {
        fail("cannot unpack " + std::to_string(items.size()) + " values into " + std::to_string(t.items.size()) +
             " names");
      }
      for (std::size_t i = 0; i < items.size(); ++i) assign(t.items[i], items[i]);
      return;
    }
  }
}

void Interpreter::set_attribute(const Value& object, const std::string& name, Value v) {
  auto& ns = object.as<NamespaceObject>();
  if (name.starts_with("_"))
    fail("a namespace cannot have the attribute '" + name + "': names that begin with _ are reserved");
  ns.attributes.set(Value::string(name), std::move(v));
  ns.depth = std::max(ns.depth, ns.attributes.depth + 1);
  check_depth(ns.depth);
}

Value Interpreter::target_value(const Target& t) {
  if (t.kind == Target::Kind::Name) return variable(t.place);
  std::vector<Value> items;
  for (const Target& item : t.items) items.push_back(target_value(item));
  return tuple(std::move(items));
}

// ---- statements

Interpreter::Flow Interpreter::exec(const Body& body) {
  for (const StmtPtr& s : body) {
    if (const Flow flow = exec(*s); flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::exec(const Stmt& s) {
  const DepthCount depth(*this);
  set_position(s.offset);
  step();
  switch (s.kind) {
    case Stmt::Kind::Output:
      exec_output(static_cast<const OutputStmt&>(s));
      return Flow::Normal;
    case Stmt::Kind::If:
      return exec_if(static_cast<const IfStmt&>(s));
    case Stmt::Kind::For:
      return exec_for(static_cast<const ForStmt&>(s));
    case Stmt::Kind::Macro: {
      const auto& macro = static_cast<const MacroStmt&>(s);
      variable(macro.place) = make_macro(macro.function, macro.name);
      return Flow::Normal;
    }
    case Stmt::Kind::CallBlock:
      exec_call_block(static_cast<const CallBlockStmt&>(s));
      return Flow::Normal;
    case Stmt::Kind::FilterBlock:
      return exec_filter_block(static_cast<const FilterBlockStmt&>(s));
    case Stmt::Kind::Set: {
      const auto& set = static_cast<const SetStmt&>(s);
      require_namespaces(set.target);
      assign(set.target, eval(*set.value));
      return Flow::Normal;
    }
    case Stmt::Kind::SetBlock:
      return exec_set_block(static_cast<const SetBlockStmt&>(s));
    case Stmt::Kind::With:
      return exec_with(static_cast<const WithStmt&>(s));
    case Stmt::Kind::Generation: {
      CallArguments none;
      output(call(make_macro(static_cast<const GenerationStmt&>(s).function, {}), none));
      return Flow::Normal;
    }
    case Stmt::Kind::Break:
      return Flow::Break;
    case Stmt::Kind::Continue:
      return Flow::Continue;
  }
  return Flow::Normal;
}

void Interpreter::output(const Value& v) {
  const std::size_t bytes = out_->size(), runs = out_->n_runs();
  append_str(*this, v, *out_);
  charge_bytes(out_->size() - bytes);
  charge_runs(out_->n_runs() - runs);
  limit_runs(out_->n_runs());
  if (out_->size() > limits().output_bytes) fail_limit("characters of output");
}

/// Blocks print what a filter or a call gives only if it is text.
void Interpreter::output_text(const Value& v) {
  if (!v.is_string()) fail("this block's result must be text, not " + std::string(type_name(v)));
  output(v);
}

void Interpreter::exec_output(const OutputStmt& s) {
  for (const ExprPtr& part : s.parts) {
    const Value v = eval(*part);
    set_position(part->offset);
    output(v);
  }
}

Interpreter::Flow Interpreter::exec_if(const IfStmt& s) {
  for (const Branch& branch : s.branches) {
    if (truth(*this, eval(*branch.test))) return exec(branch.body);
  }
  return exec(s.otherwise);
}

Interpreter::Flow Interpreter::exec_filter_block(const FilterBlockStmt& s) {
  enter(s.scope);
  Str text;
  {
    const Capture capture(*this, text);
    if (const Flow flow = exec(s.body); flow != Flow::Normal) return flow;
  }
  const Value captured = string(std::move(text));
  const Restore<const Value*> block(block_value_, &captured);
  output_text(eval(*s.filter));
  leave(s.scope);
  return Flow::Normal;
}

Interpreter::Flow Interpreter::exec_set_block(const SetBlockStmt& s) {
  enter(s.scope);
  Str text;
  {
    const Capture capture(*this, text);
    if (const Flow flow = exec(s.body); flow != Flow::Normal) return flow;
  }
  Value v = string(std::move(text));
  if (s.filter) {
    const Value captured = v;
    const Restore<const Value*> block(block_value_, &captured);
    v = eval(*s.filter);
  }
  assign(s.target, std::move(v));
  leave(s.scope);
  return Flow::Normal;
}

Interpreter::Flow Interpreter::exec_with(const WithStmt& s) {
  enter(s.scope);
  for (const auto& [target, value] : s.bindings) assign(target, eval(*value));
  const Flow flow = exec(s.body);
  if (flow == Flow::Normal) leave(s.scope);
  return flow;
}

void Interpreter::exec_call_block(const CallBlockStmt& s) {
  const Value caller = make_macro(s.function, {});
  output_text(eval_call(static_cast<const CallExpr&>(*s.call), &caller));
}

// ---- loops

Interpreter::Flow Interpreter::exec_for(const ForStmt& s) {
  const Value iterable = eval(*s.iterable);
  set_position(s.iterable->offset);
  if (!s.recursive) return run_loop(s, iterable, nullptr, 0);
  auto function = std::make_shared<LoopFunction>();
  function->statement = &s;
  function->closure = activation_;
  keep_activation(activation_);
  output(call_loop(function, iterable, 0));
  return Flow::Normal;
}

Value Interpreter::call_loop(const std::shared_ptr<LoopFunction>& f, const Value& iterable, int depth0) {
  const Count call(*this, calls_, limits().call_depth, "calls in calls");
  Str text;
  const Capture capture(*this, text);
  const Enter inside(*this, f->closure, f->statement->loop_slots);
  run_loop(*f->statement, iterable, f, depth0);
  return string(std::move(text));
}

/// The values for which a loop's condition holds, as they are asked for.
Value Interpreter::tested(const ForStmt& s, const Value& iterable, const std::shared_ptr<Activation>& outer) {
  keep_activation(outer);
  auto next = [this, &s, iterable, outer, source = std::shared_ptr<IteratorObject>(),
               own_variables = std::shared_ptr<Activation>()](Runtime&, Value& out) mutable {
    if (!source) source = iterate(*this, iterable);
    while (source->next(*this, out)) {
      step();
      const Enter inside(*this, outer, s.test_slots, own_variables);
      if (!own_variables) {
        own_variables = activation_;
        enter(s.test_scope);
      }
      assign(s.test_target, std::move(out));
      if (!truth(*this, eval(*s.test))) continue;
      out = target_value(s.test_target);
      return true;
    }
    return false;
  };
  return generator(*this, iterable, std::move(next));
}

Interpreter::Flow Interpreter::run_loop(const ForStmt& s, const Value& iterable,
                                        const std::shared_ptr<LoopFunction>& recursive, int depth0) {
  const Value source = s.test ? tested(s, iterable, recursive ? recursive->closure : activation_) : iterable;
  const auto iterator = iterate(*this, source);
  std::shared_ptr<LoopObject> loop;
  if (s.extended) {
    loop = std::make_shared<LoopObject>();
    loop->iterator = iterator;
    loop->iterable = source;
    loop->depth = depth(source) + 1;
    loop->depth0 = depth0;
    loop->recurse = recursive;
    check_depth(loop->depth);
  }
  bool finished_one = false;
  Flow flow = Flow::Normal;
  for (Value item; flow != Flow::Break && (loop ? loop->next(*this, item) : iterator->next(*this, item));) {
    step();
    assign(s.target, std::move(item));
    if (loop) own(s.loop_slot) = Value::object(Kind::Loop, loop);
    enter(s.scope);
    flow = exec(s.body);
    finished_one = finished_one || flow == Flow::Normal;
    set_position(s.offset);
  }
  leave(s.scope);
  if (finished_one || s.otherwise.empty()) return Flow::Normal;
  enter(s.otherwise_scope);
  flow = exec(s.otherwise);
  if (flow == Flow::Normal) leave(s.otherwise_scope);
  return flow;
}

// ---- calls

Value Interpreter::make_macro(const Function& f, std::string name) {
  auto macro = std::make_shared<MacroObject>();
  macro->function = &f;
  macro->closure = activation_;
  macro->name = std::move(name);
  keep_activation(activation_);
  return Value::object(Kind::Macro, std::move(macro));
}

Value Interpreter::call(const Value& callee, CallArguments& arguments) {
  step();
  switch (callee.kind()) {
    case Kind::Function:
      charge_reading(arguments);
      return callee.as<FunctionObject>().body(*this, arguments);
    case Kind::Method: {
      const auto& method = callee.as<MethodObject>();
      charge_reading(method.self);
      charge_reading(arguments);
      return method.body(*this, method.self, arguments);
    }
    case Kind::Macro:
      return call_macro(callee.as<MacroObject>(), arguments);
    case Kind::Loop: {
      const auto& loop = callee.as<LoopObject>();
      if (!loop.recurse) fail("the loop must have the 'recursive' marker to be called recursively");
      if (arguments.positional.size() != 1 || !arguments.keywords.empty()) fail("loop() takes one argument");
      return call_loop(std::static_pointer_cast<LoopFunction>(loop.recurse), arguments.positional[0], loop.depth0 + 1);
    }
    case Kind::Joiner: {
      auto& joiner = callee.as<JoinerObject>();
      if (joiner.used) return joiner.separator;
      joiner.used = true;
      return string("");
    }
    case Kind::Missing:
    case Kind::Undefined:
      fail_undefined(*this, callee);
    default:
      fail("'" + std::string(type_name(callee)) + "' object is not callable");
  }
}

namespace {

/// Takes a keyword argument out of those given.
std::optional<Value> take_keyword(CallArguments& arguments, std::string_view name) {
  const auto found = std::find_if(arguments.keywords.begin(), arguments.keywords.end(),
                                  [&](const auto& k) { return k.first.view() == name; });
  if (found == arguments.keywords.end()) return std::nullopt;
  Value v = std::move(found->second);
  arguments.keywords.erase(found);
  return v;
}

}  // namespace

Value Interpreter::call_macro(const MacroObject& macro, CallArguments& arguments) {
  const Count call(*this, calls_, limits().call_depth, "calls in calls");
  const Function& f = *macro.function;
  const std::size_t n = f.parameters.size(), given = std::min(arguments.positional.size(), n);
  const std::size_t position_of_call = position();
  const Enter inside(*this, macro.closure, f.slots);
  bool caller_found = given == n && f.explicit_caller;
  for (std::size_t i = 0; i < n; ++i) {
    Value& slot = own(f.parameters[i].slot);
    slot = Value::missing();
    if (i < given) {
      slot = arguments.positional[i];
    } else {
      if (f.parameters[i].name == "caller") caller_found = true;
      if (auto v = take_keyword(arguments, f.parameters[i].name)) slot = std::move(*v);
    }
  }
  if (f.takes_caller && !caller_found && f.caller_slot) {
    auto caller = take_keyword(arguments, "caller");
    own(*f.caller_slot) = caller && !caller->is_none() ? std::move(*caller) : undefined("no caller defined");
  }
  if (f.kwargs_slot) {
    auto rest = std::make_shared<DictObject>();
    for (auto& [name, value] : arguments.keywords) rest->set(Value::string(name), std::move(value));
    own(*f.kwargs_slot) = dict(std::move(rest));
  } else if (!arguments.keywords.empty()) {
    fail("macro " + macro_name(macro) + " takes no keyword argument '" + escaped(arguments.keywords[0].first.view()) +
         "'");
  }
  const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(given);
  if (f.varargs_slot) {
    own(*f.varargs_slot) = tuple({rest, arguments.positional.end()});
  } else if (arguments.positional.size() > n) {
    fail("macro " + macro_name(macro) + " takes not more than " + std::to_string(n) + " arguments");
  }

  Str text;
  const Capture capture(*this, text);
  enter(f.scope);
  for (const auto& p : f.parameters) {
    if (!own(p.slot).is(Kind::Missing)) continue;
    own(p.slot) = p.fallback ? eval(*p.fallback) : undefined("parameter '" + p.name + "' was not provided");
  }
  exec(f.body);
  set_position(position_of_call);
  return string(std::move(text));
}

}  // namespace llm::jinja
