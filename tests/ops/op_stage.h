// What the cases of the op table have in common: a scene under construction, and steps of sequences.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "op_cases.h"

namespace llm::test {

using Parts = std::vector<TestSequences::Part>;

/// Tokens 0, 7, 14, ... of the input table, so that rows differ from step to step.
inline std::vector<std::int32_t> some_tokens(int n, int first = 0) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((first + 7 * i) % kInputRows);
  return tokens;
}
inline std::vector<Parts> one_step(int tokens) { return {{{0, some_tokens(tokens)}}}; }
/// The bucket filled, then partly.
inline std::vector<Parts> full_and_partial(int tokens) {
  std::vector<Parts> steps = one_step(tokens);
  if (tokens > 1) steps.push_back({{0, some_tokens((tokens + 1) / 2, 4)}});
  return steps;
}

/// A scene under construction: what the cases have in common.
class Stage {
 public:
  explicit Stage(int tokens, int sequences = 1) : builder({tokens, sequences, tokens}) {}

  /// [width, tokens], rows of a random table.
  Act input(const std::string& name, std::int64_t width, std::uint32_t seed, float deviation = 1.0f) {
    return input_rows(name, width, random_values(width * kInputRows, seed, deviation));
  }
  Act input_rows(const std::string& name, std::int64_t width, std::span<const float> rows) {
    const TensorType type{DType::F32, {width, kInputRows}};
    scene.weights.add(name, type, rows);
    return builder.embed(builder.weight(name, type), builder.step_input(StepInput::Tokens), name + "_in");
  }
  Weight weight(const std::string& name, DType dtype, Shape shape, std::uint32_t seed, float deviation = 1.0f) {
    const TensorType type{dtype, shape};
    scene.weights.add_random(name, type, seed, deviation);
    return builder.weight(name, type);
  }
  /// Like norm weights: around 1.
  Weight gains(const std::string& name, std::int64_t n, std::uint32_t seed) {
    std::vector<float> values = random_values(n, seed, 0.3f);
    for (float& v : values) v += 1.0f;
    scene.weights.add(name, {DType::F32, {n}}, values);
    return builder.weight(name, {DType::F32, {n}});
  }

  OpScene finish(Act output, std::vector<Parts> steps, std::int64_t terms) && {
    scene.graph = std::move(builder).finish(output);
    scene.steps = std::move(steps);
    scene.terms = terms;
    return std::move(scene);
  }

  GraphBuilder builder;
  OpScene scene;
};

inline std::string label(std::string_view op, std::initializer_list<std::pair<std::string_view, std::int64_t>> sizes,
                         std::string_view type = {}) {
  std::string text(op);
  if (!type.empty()) text += " " + std::string(type);
  for (const auto& [name, size] : sizes) text += " " + std::string(name) + "=" + std::to_string(size);
  return text;
}

/// Of layers with a recurrent state.
void add_recurrent(std::vector<OpCase>&);

}  // namespace llm::test
