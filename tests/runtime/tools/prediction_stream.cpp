// For scripts/compare-prediction: what a model's prediction layer gives, as float32 on stdout.
//
//   prediction_stream MODEL ID...
//
// First what the model's head reads of each token; then the layer's logits behind each pair of tokens, and behind a few
// of its own likeliest tokens after the last pair.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/logit_scan.h"
#include "runtime/prediction_steps.h"
#include "runtime/session.h"

using namespace llm;

namespace {

constexpr int kGuesses = 3;

void write(std::span<const float> values) { std::fwrite(values.data(), sizeof(float), values.size(), stdout); }

}  // namespace

int main(int argc, char** argv) {
  std::vector<Token> ids;
  for (int i = 2; i < argc; ++i) ids.push_back(std::atoi(argv[i]));
  const CacheFormat cache{DType::F32, DType::F32};
  Warnings warnings;
  const auto model = Model::load({.path = argv[1], .predicts = true, .progress = {}}, warnings);
  const auto context = static_cast<std::int64_t>(ids.size()) + kGuesses;
  Session session(*model, {.context = context, .cache = cache});
  std::vector<float> hidden;
  session.tell_hidden([&](const HiddenRows& h) { hidden.insert(hidden.end(), h.rows.begin(), h.rows.end()); });
  const Append work{session.create(), ids, Logits::Last};
  session.eval({&work, 1});
  write(hidden);
  PredictionSteps layer(*model, context, cache);
  const std::size_t width = hidden.size() / ids.size();
  PredictionSteps::Result result;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    result = layer.run({&ids[i + 1], 1}, std::span(hidden).subspan(i * width, width));
    write(result.logits);
  }
  for (int i = 0; i < kGuesses; ++i) {
    const std::vector<float> own(result.hidden.begin(), result.hidden.end());
    const Token best = best_of(result.logits).token;
    result = layer.run({&best, 1}, own);
    write(result.logits);
  }
}
