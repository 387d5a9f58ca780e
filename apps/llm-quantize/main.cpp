// llm-quantize: writes a model in another storage type.
#include <chrono>
#include <optional>

#include "base/clock.h"
#include "common/app.h"
#include "common/messages.h"
#include "common/model_output.h"
#include "common/output.h"
#include "common/run_files.h"
#include "common/signals.h"
#include "gguf/file.h"
#include "options.h"
#include "plan.h"
#include "quantize/imatrix.h"

namespace llm::quantization {
namespace {

std::optional<ImportanceMatrix> read_importance(const Options& o, Warnings& warnings) {
  if (o.imatrix.empty()) return std::nullopt;
  return ImportanceMatrix::read(o.imatrix, warnings);
}

int body(int argc, char** argv) {
  Options options;
  if (const auto code = read_options(argc, argv, options)) return *code;
  Warnings warnings;
  const GgufFile file = GgufFile::open(options.input, warnings);
  const std::optional<ImportanceMatrix> importance = read_importance(options, warnings);
  app::print_warnings(warnings);
  const Plan plan(options, file, importance);
  if (options.dry_run) {
    app::print_warnings(plan.warnings());
    app::write_stdout(plan.table());
    return 0;
  }
  for (const std::filesystem::path& path : plan.paths()) app::will_write("OUT", path.string());
  app::check_outputs(plan.paths(), options.existing);
  app::print_warnings(plan.warnings());
  app::install_signal_handlers();
  const auto start = Clock::now();
  app::write_models(plan.files(), plan.paths(), "quantising");
  const double seconds = seconds_since(start);
  app::say(plan.summary() + ", " + fixed_text(seconds, 1) + " s");
  return 0;
}

}  // namespace
}  // namespace llm::quantization

int main(int argc, char** argv) {
  return llm::app::run("llm-quantize", argc, argv, [&] { return llm::quantization::body(argc, argv); });
}
