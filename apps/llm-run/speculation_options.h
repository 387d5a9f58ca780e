// Speculation: what is drafted ahead of an answer, from its own text or by a smaller model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/app.h"
#include "common/command.h"
#include "runtime/model.h"
#include "runtime/session.h"
#include "runtime/speculation.h"

namespace llm::app {

struct SpeculationChoice {
  enum class Type : std::uint8_t { Ngram, Draft, Prediction };
  std::optional<std::vector<Type>> types;  ///< not given: n-grams, and the draft model if there is one
  std::string draft_model;
  std::optional<int> draft_layers;                   ///< on the GPU, as Placement has them; not given: as the model's
  std::vector<TensorOverride> draft_overrides = {};  ///< of its tensors; the model's are not about them
  std::optional<int> most, least;
  float p_min = 0;
  SpeculationOptions::Length length = SpeculationOptions::Length::Adaptive;
  std::string given;  ///< the last of these options on the command line, for messages
};

void add_speculation_options(Command&, SpeculationChoice&);
/// Throws ErrorKind::Usage for options that contradict each other.
void check_speculation_options(const SpeculationChoice&);
void refuse_speculation_in_batch(const SpeculationChoice&);
/// Whether the model is to be loaded with its prediction layer.
bool wants_prediction(const SpeculationChoice&);

/// What makes the drafts, if anything does.
class Drafting {
 public:
  /// Loads the draft model if there is to be one, with the threads of `options` and placed by the same rules. Nothing
  /// is drafted where that is asked for, and by default on a backend whose results depend on how many tokens a step
  /// has; drafts that are asked for there are ErrorKind::Usage, as is a draft model with another vocabulary.
  Drafting(const SpeculationChoice&, const ModelOptions& options, Model& model, CacheFormat cache,
           LoadOptions::Weights = LoadOptions::Weights::Load);

  /// The session whose answers are drafted for counts it where they share a memory.
  std::vector<MemoryNeeds> memory() const;
  /// The draft model's part of that in words; empty: there is none.
  std::string memory_text() const;
  /// Drafts for a session, which must not outlive this. Null: there are none.
  Speculation* start(Session&);
  std::string describe() const { return speculation_ ? speculation_->describe() : ""; }

 private:
  Model& model_;
  const SpeculationChoice& choice_;
  CacheFormat cache_;
  std::size_t most_ = 0;  ///< 0: nothing is drafted
  std::unique_ptr<Model> draft_;
  std::unique_ptr<Speculation> speculation_;
};

/// Behind an answer: of a draft model that was found to be at fault. Null: there is none.
void warn_of_drafts(Speculation*);
/// For the line of timings: " (250 of 430 drafted tokens came true)"; nothing was drafted: nothing.
std::string drafted_text(const SpeculationCounts&);

}  // namespace llm::app
