#include "runtime/checked_backend.h"

#include <cmath>
#include <cstdio>
#include <unordered_map>
#include <vector>

#include "base/error.h"

namespace llm {
namespace {

constexpr double kTolerance = 0.01;

// Two of each kind: what the tested backend made, and the reference's.

struct CheckedWeights final : WeightStore {
  CheckedWeights(std::unique_ptr<WeightStore> t, std::unique_ptr<WeightStore> r)
      : tested(std::move(t)), reference(std::move(r)) {}
  std::unique_ptr<WeightStore> tested, reference;
};

struct CheckedStates final : StateStore {
  CheckedStates(std::unique_ptr<StateStore> t, std::unique_ptr<StateStore> r)
      : tested(std::move(t)), reference(std::move(r)) {}
  std::size_t bytes_per_block() const override { return tested->bytes_per_block() + reference->bytes_per_block(); }
  void copy_block(std::int32_t from, std::int32_t to) override {
    tested->copy_block(from, to);
    reference->copy_block(from, to);
  }
  std::unique_ptr<StateStore> tested, reference;
};

struct CheckedWorkspace final : Workspace {
  CheckedWorkspace(std::unique_ptr<Workspace> t, std::unique_ptr<Workspace> r)
      : tested(std::move(t)), reference(std::move(r)) {}
  std::size_t bytes() const override { return tested->bytes() + reference->bytes(); }
  std::unique_ptr<Workspace> tested, reference;
};

std::span<const float> floats(const TensorView& v) {
  return {reinterpret_cast<const float*>(v.data), static_cast<std::size_t>(v.type.shape.elements())};
}

/// Keeps what the reference computed.
class Recorder final : public Observer {
 public:
  bool wants_value(std::string_view) override { return true; }
  void value(std::string_view name, const TensorView& view) override {
    if (view.type.dtype != DType::F32) return;
    const auto values = floats(view);
    values_[std::string(name)].assign(values.begin(), values.end());
  }
  const std::vector<float>* find(std::string_view name) const {
    const auto found = values_.find(std::string(name));
    return found == values_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<std::string, std::vector<float>> values_;
};

/// Compares, and passes everything on to the caller's observer.
class Comparer final : public Observer {
 public:
  Comparer(const Recorder& recorded, Observer* next) : recorded_(recorded), next_(next) {}
  bool wants_value(std::string_view) override { return true; }
  bool wants_timings() override { return next_ && next_->wants_timings(); }
  void timing(const StepTiming& t) override { next_->timing(t); }
  void value(std::string_view name, const TensorView& view) override {
    if (next_ && next_->wants_value(name)) next_->value(name, view);
    const std::vector<float>* expected = recorded_.find(name);
    if (expected && view.type.dtype == DType::F32) compare(name, floats(view), *expected);
  }

 private:
  static void compare(std::string_view name, std::span<const float> got, const std::vector<float>& expected) {
    check(got.size() == expected.size(), "the reference computed as many values");
    double difference = 0, scale = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double d = static_cast<double>(got[i]) - static_cast<double>(expected[i]);
      difference += d * d;
      scale += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
    }
    if (std::sqrt(difference) <= kTolerance * std::sqrt(scale)) return;
    char figures[96];
    std::snprintf(figures, sizeof figures, "relative difference %.3g, at most %.3g is rounding",
                  std::sqrt(difference / scale), kTolerance);
    throw Error(ErrorKind::Internal,
                "value \"" + std::string(name) + "\" diverges from the reference backend: " + figures);
  }

  const Recorder& recorded_;
  Observer* next_;
};

class CheckedExecutable final : public Executable {
 public:
  CheckedExecutable(std::unique_ptr<Executable> tested, std::unique_ptr<Executable> reference)
      : tested_(std::move(tested)), reference_(std::move(reference)) {}

  Ticket submit(const StepData& step, std::span<const Binding> in, std::span<const Binding> out) override {
    Recorder recorder;
    reference_->observe(&recorder);
    reference_->wait(reference_->submit(step, in, out));  // the tested one writes over its results
    Comparer comparer(recorder, observer_);
    tested_->observe(&comparer);
    const Ticket ticket = tested_->submit(step, in, out);
    tested_->wait(ticket);
    tested_->observe(nullptr);
    return ticket;
  }
  void wait(Ticket) override {}
  std::string describe() const override { return tested_->describe() + "checked against the reference backend\n"; }
  void observe(Observer* observer) override { observer_ = observer; }

 private:
  std::unique_ptr<Executable> tested_, reference_;
  Observer* observer_ = nullptr;
};

class CheckedBackend final : public Backend {
 public:
  CheckedBackend(std::unique_ptr<Backend> tested, std::unique_ptr<Backend> reference)
      : tested_(std::move(tested)), reference_(std::move(reference)) {}

  std::string_view name() const override { return tested_->name(); }
  std::string describe() const override { return tested_->describe() + ", checked against the reference backend"; }
  Support supports(const Graph& g, const Node& n) const override {
    const Support support = tested_->supports(g, n);
    return support.ok ? reference_->supports(g, n) : support;
  }
  Graph legalise(const Graph& g) const override { return tested_->legalise(g); }
  Layout choose_layout(const WeightUse& use) const override { return tested_->choose_layout(use); }

  std::unique_ptr<WeightStore> load(const WeightSource& source, std::span<const WeightPlan> plans) override {
    return std::make_unique<CheckedWeights>(tested_->load(source, plans), reference_->load(source, plans));
  }
  std::unique_ptr<StateStore> allocate(std::span<const CacheType> types, CacheFormat format,
                                       std::int32_t n_blocks) override {
    return std::make_unique<CheckedStates>(tested_->allocate(types, format, n_blocks),
                                           reference_->allocate(types, format, n_blocks));
  }
  std::unique_ptr<Workspace> make_workspace(const Graph& largest) override {
    return std::make_unique<CheckedWorkspace>(tested_->make_workspace(largest), reference_->make_workspace(largest));
  }
  std::unique_ptr<Executable> compile(const Graph& g, const WeightStore& weights, StateStore& states,
                                      Workspace& workspace) override {
    const auto& w = dynamic_cast<const CheckedWeights&>(weights);
    auto& s = dynamic_cast<CheckedStates&>(states);
    auto& m = dynamic_cast<CheckedWorkspace&>(workspace);
    // The reference evaluates the operands that the tested backend quantises, so that what is left is the kernels'
    // rounding.
    return std::make_unique<CheckedExecutable>(
        tested_->compile(g, *w.tested, *s.tested, *m.tested),
        reference_->compile(tested_->legalise(g), *w.reference, *s.reference, *m.reference));
  }

 private:
  std::unique_ptr<Backend> tested_, reference_;
};

}  // namespace

std::unique_ptr<Backend> make_checked_backend(std::unique_ptr<Backend> tested, std::unique_ptr<Backend> reference) {
  return std::make_unique<CheckedBackend>(std::move(tested), std::move(reference));
}

}  // namespace llm
