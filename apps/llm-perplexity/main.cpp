// llm-perplexity: how well a model predicts a text, and how far its predictions are from another's.
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/machine.h"
#include "common/accepted_options.h"
#include "common/app.h"
#include "common/cache_type.h"
#include "common/messages.h"
#include "common/model_output.h"
#include "common/numbers.h"
#include "common/output.h"
#include "common/signals.h"
#include "common/token_input.h"
#include "evaluate.h"
#include "npy.h"
#include "windows.h"

namespace llm::perplexity {
namespace {

constexpr int kLeastWindow = 4;  ///< scores one token

constexpr const char* kDescription =
    "Perplexity of a text by llama.cpp's definition: windows of N tokens that do not overlap, the first token of each\n"
    "replaced by BOS where the vocabulary adds one, the second half scored. nll is the sum over the scored tokens in\n"
    "nats, ppl is exp(nll / n_tokens). --save-logits writes the logits of the scored positions as float32 [n_tokens,\n"
    "vocabulary], window by window; --kl-base compares with such a file, row by row: KL(base || this model).\n\n"
    "Examples:\n"
    "  llm-perplexity -m model.gguf -f wiki.test.raw\n"
    "  llm-perplexity -m model-f16.gguf -f text --chunks 20 --save-logits base.npy\n"
    "  llm-perplexity -m model-q4.gguf -f text --chunks 20 --kl-base base.npy --json";

struct Options {
  app::ModelOptions model;
  std::string text, tokens;  ///< files; one of them is given
  std::int64_t window = 512;
  std::int64_t chunks = 0;  ///< 0: all
  std::string save_logits, kl_base;
  CacheFormat cache;
  bool json = false;
};

constexpr std::array<std::string_view, 1> kWritten{"--save-logits"};
constexpr std::array<std::string_view, 13> kCommon{
    "--model", "--threads",     "--gpu-layers", "--file", "--tokens",   "--ctx-size", "--chunks",
    "--json",  "--save-logits", "--kl-base",    "--help", "--help-all", "--version"};
constexpr std::array kAliases{app::Alias{"-ctk", "--cache-type-k"}, app::Alias{"-ctv", "--cache-type-v"}};

std::optional<int> read_options(int argc, char** argv, Options& o) {
  app::Command cli{kDescription};
  app::add_model_options(cli, o.model);
  app::add_adapter_options(cli, o.model.adapters);
  const auto add_file = [&cli](const std::string& names, std::string& file, const std::string& help) {
    cli.add_option(names, file, help)->type_name("FILE")->take_last();
  };
  add_file("-f,--file", o.text, "the text, - for stdin; one line feed at its end is dropped");
  add_file("--tokens", o.tokens, "token ids in place of a text: a JSON array, or numbers between white space");
  app::add_integer(cli, "-c,--ctx-size", o.window, kLeastWindow, app::kMaxInt32, "tokens of a window (default 512)");
  app::add_integer(cli, "--chunks", o.chunks, 1, app::kMaxInt32, "use only the first N windows (default: all)");
  cli.add_flag("--json", o.json, "one JSON object");
  add_file("--save-logits", o.save_logits, "write the logits of the scored positions to this .npy file");
  add_file("--kl-base", o.kl_base, "compare with the logits in this .npy file");
  app::add_cache_types(cli, o.cache.k, o.cache.v);
  app::add_accepted_options(cli);
  app::add_accepted_flag(cli, "--no-warmup", app::kNoWarmUp);
  app::add_common_options(cli);
  if (const auto code = app::parse(cli, argc, argv, {.aliases = kAliases, .common = kCommon, .written = kWritten}))
    return code;
  if (o.text.empty() == o.tokens.empty())
    throw Error(ErrorKind::Usage, "give a text with -f FILE (-f - reads stdin), or token ids with --tokens FILE");
  require_npy_or_nothing(o.save_logits);
  return std::nullopt;
}

void require_same_shape(const NpyReader& base, const Windows& windows, const ModelDims& dims) {
  const auto rows = static_cast<std::uint64_t>(windows.scored()), columns = static_cast<std::uint64_t>(dims.vocab);
  if (base.rows() == rows && base.columns() == columns) return;
  const auto shape = [](std::uint64_t r, std::uint64_t c) {
    return "[" + std::to_string(r) + ", " + std::to_string(c) + "]";
  };
  throw Error(ErrorKind::Usage,
              ErrorParts{.file = base.path(),
                         .problem = "has shape " + shape(base.rows(), base.columns()) + ", this run gives " +
                                    shape(rows, columns) + ": text, -c, --chunks and vocabulary must be the same"});
}

/// A file of an earlier version, or of another program, does not say what it was made from.
void require_same_text(const NpyReader& base, const Windows& windows) {
  if (base.source().empty()) {
    return app::note(escaped(base.path()) +
                     " does not say of which text it is; only the number of tokens and the vocabulary were compared");
  }
  if (base.source() == windows.digest()) return;
  throw Error(ErrorKind::Usage,
              ErrorParts{.file = base.path(),
                         .problem = "was made from other tokens: text, -c and vocabulary must be the same"});
}

struct Report {
  const Totals& totals;
  std::uint64_t bytes;
  bool with_base;
  double ppl() const { return std::exp(totals.nll.mean()); }
  double ppl_error() const { return ppl() * totals.nll.standard_error(); }  // delta method
  double agreement() const { return static_cast<double>(totals.same_top) / static_cast<double>(totals.nll.count()); }
};

nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

std::string json_of(const Report& r) {
  nlohmann::ordered_json j;
  j["ppl"] = number(r.ppl());
  j["ppl_stderr"] = number(r.ppl_error());
  j["nll"] = number(r.totals.nll.sum());
  j["n_tokens"] = r.totals.nll.count();
  j["n_bytes"] = r.bytes;
  if (r.with_base) {
    j["kl_mean"] = number(r.totals.kl.mean());
    j["kl_stderr"] = number(r.totals.kl.standard_error());
    j["kl_max"] = number(r.totals.kl_max);
    j["top1_agreement"] = r.agreement();
    j["max_abs_logit_diff"] = number(r.totals.max_logit_diff);
  }
  return j.dump() + "\n";
}

std::string exponent_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3e", value);
  return text;
}

std::string text_of(const Report& r) {
  const double bits = r.totals.nll.sum() / std::log(2.0) / static_cast<double>(r.bytes);
  // Of a single value there is no error.
  const auto plus_minus = [](double error, auto&& text) {
    return std::isfinite(error) ? " +/- " + text(error) : std::string();
  };
  const auto fixed = [](double value) { return fixed_text(value, 4); };
  std::string text = "ppl " + fixed(r.ppl()) + plus_minus(r.ppl_error(), fixed) + "\n";
  text += "nll " + fixed_text(r.totals.nll.sum(), 3) + " nats over " + number_text(r.totals.nll.count()) + " tokens" +
          (r.bytes == 0 ? "\n"  // control tokens, which stand for no text
                        : ", " + number_text(r.bytes) + " bytes (" + fixed_text(bits, 4) + " bits per byte)\n");
  if (!r.with_base) return text;
  text += "KL mean " + exponent_text(r.totals.kl.mean()) + plus_minus(r.totals.kl.standard_error(), exponent_text) +
          ", max " + exponent_text(r.totals.kl_max) + "\n";
  text += "top-1 agreement " + fixed_text(100 * r.agreement(), 3) + " %, max |logit difference| " +
          exponent_text(r.totals.max_logit_diff) + "\n";
  return text;
}

std::vector<Token> read_tokens(const Options& o, const Model& model) {
  return o.tokens.empty() ? app::read_text_file(o.text, model.tokenizer())
                          : app::read_token_file(o.tokens, model.dims().vocab);
}

int body(int argc, char** argv) {
  Options options;
  if (const auto code = read_options(argc, argv, options)) return *code;
  app::install_signal_handlers();
  options.model.placement.room = {.context = options.window, .cache = options.cache};
  const std::unique_ptr<Model> model = app::load_model(options.model);
  const ModelDims& dims = model->dims();
  const Windows windows(read_tokens(options, *model), options.window, model->tokenizer(), options.chunks);
  if (windows.size() > dims.context) {
    app::note("windows of " + number_text(windows.size()) + " tokens are longer than the " + number_text(dims.context) +
              " that the model was trained with");
  }
  std::optional<NpyReader> base;
  if (!options.kl_base.empty()) {
    require_same_shape(base.emplace(options.kl_base), windows, dims);
    require_same_text(*base, windows);
  }
  std::optional<NpyWriter> save;
  if (!options.save_logits.empty()) {
    save.emplace(options.save_logits, static_cast<std::uint64_t>(windows.scored()),
                 static_cast<std::uint64_t>(dims.vocab), windows.digest());
  }

  const int threads = options.model.threads > 0 ? options.model.threads : default_threads().threads;
  const Streams streams{base ? &*base : nullptr, save ? &*save : nullptr};
  const Totals totals = evaluate(*model, windows, streams, options.cache, threads);
  if (save) save->finish();
  const Report report{totals, windows.scored_bytes(), base.has_value()};
  app::write_stdout(options.json ? json_of(report) : text_of(report));
  return 0;
}

}  // namespace
}  // namespace llm::perplexity

int main(int argc, char** argv) {
  return llm::app::run("llm-perplexity", argc, argv, [&] { return llm::perplexity::body(argc, argv); });
}
