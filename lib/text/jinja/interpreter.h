// Runs a template's tree.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/loop.h"
#include "text/jinja/runtime.h"

namespace llm::jinja {

/// The variables of a function that is running, or that a macro keeps.
struct Activation : Object {
  std::shared_ptr<Activation> parent;
  std::vector<Value> slots;
  bool kept = false;
};

struct MacroObject : Object {
  const Function* function = nullptr;
  std::shared_ptr<Activation> closure;
  std::string name;  ///< empty: the body of a call block
};
std::string macro_name(const MacroObject&);
std::optional<Value> macro_attribute(Runtime&, const Value& macro, std::string_view name);

class Interpreter : public Runtime {
 public:
  /// All of them must outlive the interpreter.
  Interpreter(const Source&, const Tree&, const Limits&, const Now&);
  ~Interpreter() override;

  Str run(const Context&);
  void keep(std::shared_ptr<Object> object) override { kept_.push_back(std::move(object)); }

 private:
  enum class Flow : std::uint8_t { Normal, Break, Continue };
  class DepthCount;
  class Enter;
  class Capture;
  struct LoopFunction;

  Flow exec(const Body&);
  Flow exec(const Stmt&);
  Flow exec_if(const IfStmt&);
  Flow exec_for(const ForStmt&);
  Flow run_loop(const ForStmt&, const Value& iterable, const std::shared_ptr<LoopFunction>& recursive, int depth0);
  Value call_loop(const std::shared_ptr<LoopFunction>&, const Value& iterable, int depth0);
  Value tested(const ForStmt&, const Value& iterable, const std::shared_ptr<Activation>& outer);
  Flow exec_filter_block(const FilterBlockStmt&);
  Flow exec_set_block(const SetBlockStmt&);
  Flow exec_with(const WithStmt&);
  void exec_output(const OutputStmt&);
  void exec_call_block(const CallBlockStmt&);
  void output(const Value&);
  void output_text(const Value&);

  void enter(const Scope&);
  void leave(const Scope&);
  void keep_activation(const std::shared_ptr<Activation>&);
  Value& variable(const Place&);
  Value& own(std::uint32_t slot) { return activation_->slots[slot]; }
  void assign(const Target&, Value);
  void require_namespaces(const Target&);
  Value target_value(const Target&);
  void set_attribute(const Value& object, const std::string& name, Value);

  Value eval(const Expr&);
  Value eval_operands(const OperandsExpr&);
  bool has_written_base(const OperandsExpr&);
  bool is_constant(Expr&);
  bool is_constant_choice(OperandsExpr&);
  Value eval_name(const NameExpr&);
  Value eval_dict(const DictExpr&);
  Value eval_condition(const OperandsExpr&);
  Value eval_concat(const OperandsExpr&);
  Value eval_compare(const CompareExpr&);
  Value eval_slice(const OperandsExpr&);
  Value eval_call(const CallExpr&, const Value* caller);
  Value eval_named(const NamedExpr&);
  std::vector<Value> eval_all(const std::vector<ExprPtr>&);
  CallArguments eval_arguments(const ArgumentList&);

  Value call(const Value& callee, CallArguments&);
  Value call_macro(const MacroObject&, CallArguments&);
  Value make_macro(const Function&, std::string name);

  const Tree& tree_;
  std::vector<Value> context_;  ///< by index of Tree::context_names
  std::shared_ptr<Activation> activation_;
  Str* out_ = nullptr;
  const Value* block_value_ = nullptr;  ///< what the filter of a block gets
  int depth_ = 0, calls_ = 0;
  std::uint64_t evaluations_ = 0;
  std::vector<std::shared_ptr<Object>> kept_;
};

}  // namespace llm::jinja
