// llm-imatrix: how much each column of a model's matrices matters on a text, for llm-quantize.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "collector.h"
#include "common/accepted_options.h"
#include "common/app.h"
#include "common/messages.h"
#include "common/model_output.h"
#include "common/numbers.h"
#include "common/output.h"
#include "common/progress.h"
#include "common/run_files.h"
#include "common/signals.h"
#include "common/token_input.h"
#include "quantize/imatrix.h"
#include "runtime/session.h"

namespace llm::importance {
namespace {

constexpr std::size_t kRowBytes = std::size_t{64} << 20;  // of logits held at once; nobody reads them

constexpr const char* kDescription =
    "Runs a text through a model and writes its importance matrix: for each matrix the sums of the squares of what\n"
    "enters its columns, expert by expert. llm-quantize --imatrix and llama.cpp's quantiser read the file. The text "
    "is\n"
    "cut into chunks that do not overlap; the first token of each becomes BOS where the vocabulary adds one. Some 100\n"
    "chunks of text like what the model will be used for are enough.\n\n"
    "Examples:\n"
    "  llm-imatrix -m model-f16.gguf -f text.txt -o model.imatrix.gguf\n"
    "  llm-imatrix -m model-f16.gguf -f more.txt -o both.gguf \\\n"
    "              --in-file model.imatrix.gguf";

struct Options {
  app::ModelOptions model;
  std::string text, output = "imatrix.gguf";
  std::vector<std::string> earlier;
  std::int64_t chunk = 512;
  std::int64_t chunks = 0;  ///< 0: all
  LastProduct last = LastProduct::Leave;
  app::Existing existing = app::Existing::Refuse;
};

std::optional<int> read_options(int argc, char** argv, Options& o) {
  app::Command cli{kDescription};
  app::add_model_options(cli, o.model);
  cli.add_option("-f,--file", o.text, "the text, - for stdin")->type_name("FILE")->required()->take_last();
  cli.add_option("-o,--output-file", o.output, "file to write (default imatrix.gguf)")->type_name("FILE")->take_last();
  app::add_integer(cli, "-c,--ctx-size", o.chunk, 2, app::kMaxInt32, "tokens of a chunk (default 512)");
  app::add_integer(cli, "--chunks", o.chunks, 1, app::kMaxInt32, "use only the first N chunks (default: all)");
  cli.add_option("--in-file", o.earlier, "add to an earlier matrix of this model; may be repeated")
      ->type_name("FILE")
      ->one_value();
  cli.add_flag_callback(
      "--process-output", [&o] { o.last = LastProduct::Watch; }, "also the matrix that gives the logits");
  cli.add_flag_callback(
      "--force", [&o] { o.existing = app::Existing::Replace; }, "replace a file that exists");
  app::add_accepted_options(cli);
  app::add_accepted_flag(cli, "--no-warmup", app::kNoWarmUp);
  app::add_common_options(cli);
  constexpr std::array<std::string_view, 1> kWritten{"--output-file"};
  constexpr std::array<std::string_view, 13> kCommon{
      "--model",   "--threads",        "--gpu-layers", "--file", "--output-file", "--ctx-size", "--chunks",
      "--in-file", "--process-output", "--force",      "--help", "--help-all",    "--version"};
  if (const auto code =
          app::parse(cli, argc, argv, {.common = kCommon, .written = kWritten, .takes_stdout = kWritten[0]}))
    return code;
  if (cli.times_given("--output-file") == 0) app::will_write("-o", o.output);
  const std::filesystem::path output = o.output;
  app::check_outputs({&output, 1}, o.existing);
  return std::nullopt;
}

void run(Model& model, std::vector<Token> tokens, std::int64_t chunk, std::int64_t chunks, Collector& collector) {
  const SpecialTokens& special = model.tokenizer().special();
  const auto rows = static_cast<std::int64_t>(
      std::max<std::size_t>(16, kRowBytes / sizeof(float) / static_cast<std::size_t>(model.dims().vocab)));
  Session session(model, {.context = chunk});
  session.observer = &collector;
  const SequenceId sequence = session.create();
  app::Progress progress("watching");
  for (std::int64_t c = 0; c < chunks; ++c) {
    session.rewind(sequence, 0);
    const std::span<Token> part =
        std::span(tokens).subspan(static_cast<std::size_t>(c * chunk), static_cast<std::size_t>(chunk));
    if (special.add_bos && special.bos != kNoToken) part.front() = special.bos;
    for (std::int64_t at = 0; at < chunk; at += rows) {
      const std::int64_t n = std::min(rows, chunk - at);
      // With the logits of all rows wanted, every row goes through the last layer too.
      const Append work{sequence, part.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)), Logits::All};
      session.eval({&work, 1});
      progress.update((static_cast<double>(c) + static_cast<double>(at + n) / static_cast<double>(chunk)) /
                      static_cast<double>(chunks));
    }
  }
}

/// Throws ErrorKind::Model for what cannot be added to these entries.
void require_same_model(const std::vector<ImportanceEntry>& entries, const ImportanceMatrix& earlier) {
  if (earlier.chunk_size == 0)
    throw Error(ErrorKind::Model, ErrorParts{.file = earlier.path,
                                             .problem = "does not say how many tokens its chunks have, as files of the "
                                                        "older form: it cannot be added to"});
  for (const ImportanceEntry& e : earlier.entries) {
    const auto mine = std::ranges::find(entries, e.tensor, &ImportanceEntry::tensor);
    const bool same =
        mine != entries.end() && mine->sums.size() == e.sums.size() && mine->counts.size() == e.counts.size();
    if (!same)
      throw Error(ErrorKind::Model,
                  ErrorParts{.file = earlier.path,
                             .subject = tensor_subject(e.tensor),
                             .problem = "is not in this model with this shape; the matrix is of another model"});
  }
}

/// `earlier` is of the same model.
void add(ImportanceMatrix& to, const ImportanceMatrix& earlier) {
  for (const ImportanceEntry& e : earlier.entries) {
    const auto mine = std::ranges::find(to.entries, e.tensor, &ImportanceEntry::tensor);
    for (std::size_t i = 0; i < e.sums.size(); ++i) mine->sums[i] += e.sums[i];
    for (std::size_t i = 0; i < e.counts.size(); ++i) mine->counts[i] += e.counts[i];
  }
  to.datasets.insert(to.datasets.begin(), earlier.datasets.begin(), earlier.datasets.end());
  to.chunk_count += earlier.chunk_count;
}

void warn_of_unseen_experts(const ImportanceMatrix& matrix) {
  std::size_t tensors = 0, experts = 0;
  for (const ImportanceEntry& e : matrix.entries) {
    const auto unseen = static_cast<std::size_t>(std::ranges::count(e.counts, 0));
    tensors += unseen > 0 ? 1 : 0;
    experts += unseen;
  }
  if (experts == 0) return;
  app::print_warnings({{"unseen-experts", "no token of the text was routed to " + std::to_string(experts) +
                                              " experts in " + std::to_string(tensors) +
                                              " tensors: their columns count the same; a longer text reaches more"}});
}

int body(int argc, char** argv) {
  Options o;
  if (const auto code = read_options(argc, argv, o)) return *code;
  app::install_signal_handlers();
  o.model.placement.room = {.context = o.chunk};
  const std::unique_ptr<Model> model = app::load_model(o.model);
  std::vector<ImportanceMatrix> earlier;
  Warnings warnings;
  for (const std::string& file : o.earlier) earlier.push_back(ImportanceMatrix::read(file, warnings));
  app::print_warnings(warnings);
  Collector collector(model->graph({}), model->file().tensors(), o.last);
  for (const ImportanceMatrix& e : earlier) require_same_model(collector.entries(), e);
  std::vector<Token> tokens = app::read_text_file(o.text, model->tokenizer());
  const std::int64_t chunks = app::count_stretches(std::ssize(tokens), o.chunk, o.chunks, "chunk");
  if (o.chunk > model->dims().context)
    app::note("chunks of " + number_text(o.chunk) + " tokens are longer than the " +
              number_text(model->dims().context) + " that the model was trained with");

  run(*model, std::move(tokens), o.chunk, chunks, collector);
  ImportanceMatrix matrix;
  matrix.entries = collector.entries();
  matrix.datasets = {o.text == "-" ? "stdin" : o.text};
  matrix.chunk_count = static_cast<std::uint32_t>(chunks);
  matrix.chunk_size = static_cast<std::uint32_t>(o.chunk);
  for (const ImportanceMatrix& e : earlier) add(matrix, e);
  warn_of_unseen_experts(matrix);
  const GgufWriter file = matrix.file();
  const std::filesystem::path output = o.output;
  app::write_models({&file, 1}, {&output, 1}, "writing");
  const std::string all = earlier.empty() ? "" : ", " + number_text(matrix.chunk_count) + " with the earlier ones";
  app::say(o.output + ": " + std::to_string(matrix.entries.size()) + " tensors, " + number_text(chunks) +
           (chunks == 1 ? " chunk of " : " chunks of ") + number_text(o.chunk) + " tokens" + all);
  return 0;
}

}  // namespace
}  // namespace llm::importance

int main(int argc, char** argv) {
  return llm::app::run("llm-imatrix", argc, argv, [&] { return llm::importance::body(argc, argv); });
}
