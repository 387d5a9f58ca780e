#include "text/jinja/resolver.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "text/jinja/builtins.h"
#include "text/jinja/operands.h"
#include "text/jinja/undeclared.h"

namespace llm::jinja {
namespace {

/// One activation's worth of variables: the template, a macro, a recursive loop, a loop's condition. Scopes of one
/// level in it that do not overlap share the slots of equal names.
struct FunctionSlots {
  FunctionSlots* parent;
  std::uint32_t depth;
  std::map<std::pair<int, std::string>, std::uint32_t> slots = {};

  std::uint32_t slot(int level, const std::string& name) {
    return slots.emplace(std::pair(level, name), static_cast<std::uint32_t>(slots.size())).first->second;
  }
};

struct Variable {
  FunctionSlots* function;
  std::uint32_t slot;
};

enum class LoadKind { Parameter, Context, Alias, Nothing };
struct LoadRule {
  LoadKind kind;
  std::string name = {};  ///< of Context
  Variable alias = {};    ///< of Alias
};

/// What is known of the names of one scope. A branch of a condition is looked at as a layer over its scope that holds
/// only what it adds.
struct Symbols {
  Symbols* parent = nullptr;  ///< the scope around; of a layer, that of its scope
  Symbols* base = nullptr;    ///< of a layer
  FunctionSlots* function = nullptr;
  int level = 0;
  std::map<std::string, Variable> refs;
  std::map<std::uint32_t, LoadRule> loads;  ///< by slot
  std::set<std::string> stores;

  const Variable* own(const std::string& name) const {
    for (const Symbols* s = this; s != nullptr; s = s->base) {
      if (const auto found = s->refs.find(name); found != s->refs.end()) return &found->second;
    }
    return nullptr;
  }
  const Variable* find(const std::string& name) const {
    for (const Symbols* s = this; s != nullptr; s = s->parent) {
      if (const Variable* v = s->own(name)) return v;
    }
    return nullptr;
  }
  bool stored(const std::string& name) const {
    for (const Symbols* s = this; s != nullptr; s = s->base) {
      if (s->stores.contains(name)) return true;
    }
    return false;
  }
  Variable define(const std::string& name, LoadRule rule) {
    const Variable v{function, function->slot(level, name)};
    refs[name] = v;
    loads[v.slot] = std::move(rule);
    return v;
  }
  Variable parameter(const std::string& name) {
    stores.insert(name);
    return define(name, {LoadKind::Parameter});
  }
  void load(const std::string& name) {
    if (find(name) == nullptr) define(name, {LoadKind::Context, name});
  }
  void store(const std::string& name) {
    stores.insert(name);
    if (own(name) != nullptr) return;
    const Variable* outer = parent == nullptr ? nullptr : parent->find(name);
    define(name, outer == nullptr ? LoadRule{LoadKind::Nothing} : LoadRule{LoadKind::Alias, {}, *outer});
  }
  /// After a condition: what any branch assigned has a value, from before the condition, on every way.
  void join(const std::deque<Symbols>& branches) {
    std::set<std::string> assigned;
    for (const Symbols& b : branches) {
      for (const std::string& name : b.stores) {
        if (!stored(name)) assigned.insert(name);
      }
    }
    for (const Symbols& b : branches) {
      for (const auto& [name, v] : b.refs) refs[name] = v;
      for (const auto& [slot, rule] : b.loads) loads[slot] = rule;
      stores.insert(b.stores.begin(), b.stores.end());
    }
    for (const std::string& name : assigned) {
      const Variable* outer = parent == nullptr ? nullptr : parent->find(name);
      loads[own(name)->slot] =
          outer == nullptr ? LoadRule{LoadKind::Context, name} : LoadRule{LoadKind::Alias, {}, *outer};
    }
  }
};

/// Collects the names of a scope. It stops where inner scopes begin.
class Analysis {
 public:
  explicit Analysis(Symbols& s) : symbols_(&s) {}

  void body(Body& b) {
    for (StmtPtr& s : b) stmt(*s);
  }
  void expr(Expr& e) {
    if (e.kind == Expr::Kind::Name) return symbols_->load(static_cast<NameExpr&>(e).name);
    for_each_operand(e, [this](Expr& part) { expr(part); });
  }
  void target(const Target& t) {
    if (t.kind == Target::Kind::Name) symbols_->store(t.name);
    if (t.kind == Target::Kind::Attribute) symbols_->load(t.name);
    for (const Target& item : t.items) target(item);
  }
  void parameters(const Target& t) {
    if (t.kind == Target::Kind::Name) symbols_->parameter(t.name);
    for (const Target& item : t.items) parameters(item);
  }
  void function(Function& f) {
    for (const auto& p : f.parameters) symbols_->parameter(p.name);
    for (const auto& p : f.parameters) {
      if (p.fallback) expr(*p.fallback);
    }
    body(f.body);
  }

 private:
  void stmt(Stmt& s) {
    switch (s.kind) {
      case Stmt::Kind::Output:
        for (ExprPtr& e : static_cast<OutputStmt&>(s).parts) expr(*e);
        return;
      case Stmt::Kind::If:
        return condition(static_cast<IfStmt&>(s));
      case Stmt::Kind::For:
        return expr(*static_cast<ForStmt&>(s).iterable);
      case Stmt::Kind::Macro:
        return symbols_->store(static_cast<MacroStmt&>(s).name);
      case Stmt::Kind::CallBlock:
        return expr(*static_cast<CallBlockStmt&>(s).call);
      case Stmt::Kind::FilterBlock:
        return expr(*static_cast<FilterBlockStmt&>(s).filter);
      case Stmt::Kind::Set:
        expr(*static_cast<SetStmt&>(s).value);
        return target(static_cast<SetStmt&>(s).target);
      case Stmt::Kind::SetBlock:
        return target(static_cast<SetBlockStmt&>(s).target);
      case Stmt::Kind::With:
        for (auto& [t, value] : static_cast<WithStmt&>(s).bindings) expr(*value);
        return;
      case Stmt::Kind::Generation:
      case Stmt::Kind::Break:
      case Stmt::Kind::Continue:
        return;
    }
  }

  template <class Visit>
  void layer(std::deque<Symbols>& layers, Visit visit) {
    Symbols* const scope = symbols_;
    Symbols& top = layers.emplace_back();
    top.parent = scope->parent;
    top.base = scope;
    top.function = scope->function;
    top.level = scope->level;
    symbols_ = &top;
    visit();
    symbols_ = scope;
  }

  /// Jinja hangs the further branches, each a condition of its own, side by side into one layer of the first.
  void condition(IfStmt& s) {
    expr(*s.branches[0].test);
    std::deque<Symbols> layers;
    layer(layers, [&] { body(s.branches[0].body); });
    layer(layers, [&] {
      for (std::size_t i = 1; i < s.branches.size(); ++i) {
        expr(*s.branches[i].test);
        std::deque<Symbols> inner;
        layer(inner, [&] { body(s.branches[i].body); });
        symbols_->join(inner);
      }
    });
    layer(layers, [&] { body(s.otherwise); });
    symbols_->join(layers);
  }

  Symbols* symbols_;
};

enum class Unknown { Fails, FailsWhenUsed };  // a filter or test that does not exist

struct Frame {
  Symbols* symbols;
  Unknown unknown = Unknown::Fails;
};

class Resolver {
 public:
  Resolver(const Source& source, Tree& tree) : source_(source), tree_(tree) {}

  void run() {
    FunctionSlots& root = functions_.emplace_back(FunctionSlots{nullptr, 0});
    Symbols symbols;
    symbols.function = function_ = &root;
    Analysis(symbols).body(tree_.body);
    body(tree_.body, {&symbols});
    tree_.scope = scope(symbols);
    tree_.slots = static_cast<std::uint32_t>(root.slots.size());
  }

 private:
  Symbols inner(const Frame& frame) const { return inner(frame, function_); }
  static Symbols inner(const Frame& frame, FunctionSlots* function) {
    Symbols s;
    s.parent = frame.symbols;
    s.function = function;
    s.level = frame.symbols->level + 1;
    return s;
  }

  Place place(const Variable& v) const { return {function_->depth - v.function->depth, v.slot}; }

  Place place(const Frame& frame, const std::string& name, std::size_t offset) const {
    const Variable* v = frame.symbols->find(name);
    if (v == nullptr) source_.fail(offset, "the name '" + escaped(name) + "' cannot be resolved here");
    return place(*v);
  }

  std::uint32_t context_name(const std::string& name) {
    const auto [row, added] = names_.emplace(name, static_cast<std::uint32_t>(tree_.context_names.size()));
    if (added) tree_.context_names.push_back(name);
    return row->second;
  }

  Scope scope(const Symbols& symbols) {
    Scope out;
    for (const auto& [slot, rule] : symbols.loads) {
      out.slots.push_back(slot);
      switch (rule.kind) {
        case LoadKind::Parameter:
          break;
        case LoadKind::Context:
          out.loads.push_back({Load::From::Context, slot, context_name(rule.name)});
          break;
        case LoadKind::Alias:
          out.loads.push_back({Load::From::Place, slot, 0, place(rule.alias)});
          break;
        case LoadKind::Nothing:
          out.loads.push_back({Load::From::Nothing, slot});
          break;
      }
    }
    return out;
  }

  void expr(Expr& e, const Frame& frame) {
    switch (e.kind) {
      case Expr::Kind::Name: {
        auto& name = static_cast<NameExpr&>(e);
        name.place = place(frame, name.name, name.offset);
        return;
      }
      case Expr::Kind::Filter:
      case Expr::Kind::Test:
        named(static_cast<NamedExpr&>(e), frame);
        break;
      default:
        break;
    }
    const Frame inside{frame.symbols, e.kind == Expr::Kind::Condition ? Unknown::FailsWhenUsed : frame.unknown};
    for_each_operand(e, [&](Expr& part) { expr(part, inside); });
  }

  void named(NamedExpr& e, const Frame& frame) const {
    const bool filter = e.kind == Expr::Kind::Filter;
    e.function = filter ? find_filter(e.name) : find_test(e.name);
    if (e.function < 0 && frame.unknown == Unknown::Fails) {
      source_.fail(e.offset,
                   std::string("there is no ") + (filter ? "filter" : "test") + " named '" + escaped(e.name) + "'");
    }
  }

  void target(Target& t, const Frame& frame) {
    if (t.kind == Target::Kind::Name && t.name == "loop" && for_depth_ > 0) {
      source_.fail(t.offset, "cannot assign to the special variable 'loop'");
    }
    if (t.kind != Target::Kind::Tuple) t.place = place(frame, t.name, t.offset);
    for (Target& item : t.items) target(item, frame);
  }

  void body(Body& b, const Frame& frame) {
    for (StmtPtr& s : b) stmt(*s, frame);
  }

  void stmt(Stmt& s, const Frame& frame) {
    switch (s.kind) {
      case Stmt::Kind::Output:
        for (ExprPtr& e : static_cast<OutputStmt&>(s).parts) expr(*e, frame);
        return;
      case Stmt::Kind::If: {
        auto& node = static_cast<IfStmt&>(s);
        const Frame soft{frame.symbols, Unknown::FailsWhenUsed};
        for (Branch& b : node.branches) {
          expr(*b.test, soft);
          body(b.body, soft);
        }
        return body(node.otherwise, soft);
      }
      case Stmt::Kind::For:
        return for_loop(static_cast<ForStmt&>(s), frame);
      case Stmt::Kind::Macro: {
        auto& node = static_cast<MacroStmt&>(s);
        function(node.function, frame, node.offset);
        node.place = place(frame, node.name, node.offset);
        return;
      }
      case Stmt::Kind::CallBlock: {
        auto& node = static_cast<CallBlockStmt&>(s);
        function(node.function, frame, node.offset);
        return expr(*node.call, frame);
      }
      case Stmt::Kind::FilterBlock: {
        auto& node = static_cast<FilterBlockStmt&>(s);
        Symbols symbols = inner(frame);
        Analysis analysis(symbols);
        analysis.body(node.body);
        analysis.expr(*node.filter);
        body(node.body, {&symbols});
        expr(*node.filter, {&symbols});
        node.scope = scope(symbols);
        return;
      }
      case Stmt::Kind::Set: {
        auto& node = static_cast<SetStmt&>(s);
        target(node.target, frame);
        return expr(*node.value, frame);
      }
      case Stmt::Kind::SetBlock: {
        auto& node = static_cast<SetBlockStmt&>(s);
        Symbols symbols = inner(frame);
        Analysis(symbols).body(node.body);
        body(node.body, {&symbols});
        target(node.target, frame);
        if (node.filter) expr(*node.filter, {&symbols});
        node.scope = scope(symbols);
        return;
      }
      case Stmt::Kind::With: {
        auto& node = static_cast<WithStmt&>(s);
        Symbols symbols = inner(frame);
        Analysis analysis(symbols);
        for (auto& [t, value] : node.bindings) analysis.parameters(t);
        analysis.body(node.body);
        for (auto& [t, value] : node.bindings) {
          with_target(t, {&symbols});
          expr(*value, frame);
        }
        body(node.body, {&symbols});
        node.scope = scope(symbols);
        return;
      }
      case Stmt::Kind::Generation:
        return function(static_cast<GenerationStmt&>(s).function, frame, s.offset);
      case Stmt::Kind::Break:
      case Stmt::Kind::Continue:
        return;
    }
  }

  void with_target(Target& t, const Frame& frame) {
    if (t.kind == Target::Kind::Name) t.place = place(frame, t.name, t.offset);
    for (Target& item : t.items) with_target(item, frame);
  }

  void function(Function& f, const Frame& frame, std::size_t offset) {
    FunctionSlots& slots = functions_.emplace_back(FunctionSlots{function_, function_->depth + 1});
    FunctionSlots* const outer = function_;
    Symbols symbols = inner(frame, &slots);
    function_ = &slots;
    Analysis(symbols).function(f);
    special_parameters(f, symbols, offset);
    Analysis(symbols).function(f);
    for (auto& p : f.parameters) {
      p.slot = symbols.own(p.name)->slot;
      if (p.fallback) expr(*p.fallback, {&symbols});
    }
    body(f.body, {&symbols});
    f.scope = scope(symbols);
    f.slots = static_cast<std::uint32_t>(slots.slots.size());
    function_ = outer;
  }

  void special_parameters(Function& f, Symbols& symbols, std::size_t offset) {
    const auto parameter = [&](std::string_view name) {
      return std::find_if(f.parameters.begin(), f.parameters.end(), [&](const auto& p) { return p.name == name; });
    };
    const auto has = [&](std::string_view name) { return parameter(name) != f.parameters.end(); };
    const std::set<std::string> used = undeclared(f.body, {"caller", "kwargs", "varargs"});
    f.explicit_caller = has("caller");
    f.takes_caller = used.contains("caller");
    if (f.takes_caller && f.explicit_caller && !parameter("caller")->fallback) {
      source_.fail(offset, "the parameter 'caller' must be left out or have a default");
    }
    if (f.takes_caller && !f.explicit_caller) f.caller_slot = symbols.parameter("caller").slot;
    if (used.contains("kwargs") && !has("kwargs")) f.kwargs_slot = symbols.parameter("kwargs").slot;
    if (used.contains("varargs") && !has("varargs")) f.varargs_slot = symbols.parameter("varargs").slot;
  }

  void for_loop(ForStmt& node, const Frame& frame) {
    ++for_depth_;
    FunctionSlots* const outer = function_;
    if (node.test) test_function(node, frame);
    expr(*node.iterable, frame);
    if (node.recursive) function_ = &functions_.emplace_back(FunctionSlots{outer, outer->depth + 1});
    Symbols loop = inner(frame);
    node.extended = node.recursive || !undeclared(node.body, {"loop"}).empty();
    if (node.extended) node.loop_slot = loop.parameter("loop").slot;
    Analysis analysis(loop);
    analysis.parameters(node.target);
    analysis.body(node.body);
    Symbols otherwise = inner(frame);
    Analysis(otherwise).body(node.otherwise);
    target(node.target, {&loop});
    body(node.body, {&loop});
    body(node.otherwise, {&otherwise});
    node.scope = scope(loop);
    node.otherwise_scope = scope(otherwise);
    node.loop_slots = static_cast<std::uint32_t>(function_->slots.size());
    function_ = outer;
    --for_depth_;
  }

  /// The condition of a loop is a function that gives those values for which it holds.
  void test_function(ForStmt& node, const Frame& frame) {
    FunctionSlots& slots = functions_.emplace_back(FunctionSlots{function_, function_->depth + 1});
    FunctionSlots* const outer = function_;
    Symbols symbols = inner(frame, &slots);
    function_ = &slots;
    Analysis analysis(symbols);
    analysis.parameters(node.target);
    analysis.expr(*node.test);
    node.test_target = node.target;
    target(node.test_target, {&symbols});
    expr(*node.test, {&symbols});
    node.test_scope = scope(symbols);
    node.test_slots = static_cast<std::uint32_t>(slots.slots.size());
    function_ = outer;
  }

  const Source& source_;
  Tree& tree_;
  std::deque<FunctionSlots> functions_;
  FunctionSlots* function_ = nullptr;  ///< the one that code is in
  std::map<std::string, std::uint32_t> names_;
  int for_depth_ = 0;
};

}  // namespace

void resolve(const Source& source, Tree& tree) { Resolver(source, tree).run(); }

}  // namespace llm::jinja
