// The programs of a session, one for each size of steps that was needed, compiled when it first is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "runtime/model.h"

namespace llm {

/// Capacity of the largest program.
inline constexpr int kMaxBatchTokens = 4096;
/// Rows of logits of one step: those of a vocabulary of 128 k take 256 MiB.
inline constexpr int kMaxOutputs = 512;

/// The bucket whose programs take so many tokens of so many sequences.
Bucket bucket_for(std::int64_t tokens, int sequences);

struct Program {
  Graph graph;
  std::unique_ptr<Executable> executable;
};

class Programs {
 public:
  using GraphOf = std::function<Graph(Bucket)>;
  Programs(Model& model, GraphOf graph, int sequences, StateStore& store, Workspace& workspace)
      : model_(model), graph_(std::move(graph)), sequences_(sequences), store_(store), workspace_(workspace) {}
  /// Of the model's own graph.
  Programs(Model& model, int sequences, StateStore& store, Workspace& workspace)
      : Programs(
            model, [&model](Bucket b) { return model.graph(b); }, sequences, store, workspace) {}

  /// One for a step of so many tokens, at most kMaxBatchTokens; it stays where it is.
  Program& of(std::int64_t tokens);
  std::size_t compiled() const { return programs_.size(); }
  std::string describe() const;

 private:
  Model& model_;
  GraphOf graph_;
  int sequences_;
  StateStore& store_;
  Workspace& workspace_;
  std::map<int, Program> programs_;  ///< by their buckets' tokens
};

}  // namespace llm
