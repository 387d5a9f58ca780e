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
    "              --in-file model.imatrix.gguf\n"
    "  llm-imatrix --in-file one.gguf --in-file other.gguf -o sum.gguf";

struct Options {
  app::ModelOptions model;
  std::string text, output = "imatrix.gguf";
  std::vector<std::string> earlier;
  std::int64_t chunk = 512;
  std::int64_t chunks = 0;  ///< 0: all
  LastProduct last = LastProduct::Leave;
  app::Existing existing = app::Existing::Refuse;
};

/// Without a text there is no model, and nothing is measured.
void require_sum_alone(const app::Command& cli, const Options& o) {
  if (o.earlier.empty())
    throw Error(ErrorKind::Usage, "option -f, --file is missing: the text, or --in-file with matrices to add up");
  for (const char* option : {"--model", "--ctx-size", "--chunks", "--process-output"}) {
    if (cli.times_given(option) > 0)
      throw Error(ErrorKind::Usage, std::string("option ") + option +
                                        " needs -f: without a text the matrices of --in-file are added up as they are");
  }
}

std::optional<int> read_options(int argc, char** argv, Options& o) {
  app::Command cli{kDescription};
  app::add_model_options(cli, o.model);
  o.model.needed = [&o] { return !o.text.empty() || o.earlier.empty(); };
  cli.add_option("-f,--file", o.text, "the text, - for stdin; none: --in-file alone is added up")
      ->type_name("FILE")
      ->take_last();
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
  if (o.text.empty()) require_sum_alone(cli, o);
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

std::vector<ImportanceMatrix> read_earlier(const Options& o) {
  std::vector<ImportanceMatrix> earlier;
  Warnings warnings;
  for (const std::string& file : o.earlier) earlier.push_back(ImportanceMatrix::read(file, warnings));
  app::print_warnings(warnings);
  return earlier;
}

ImportanceMatrix sum_of(std::span<const ImportanceMatrix> parts) {
  ImportanceMatrix sum = parts.front();
  for (const ImportanceMatrix& part : parts.subspan(1)) sum.add(part);
  return sum;
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

/// Writes the sum of the parts and says what it is made of; `whole`: what is said of all beside the last part.
void write(const Options& o, std::span<const ImportanceMatrix> parts, const std::string& whole) {
  const ImportanceMatrix matrix = sum_of(parts);
  warn_of_unseen_experts(matrix);
  const GgufWriter file = matrix.file();
  const std::filesystem::path output = o.output;
  app::write_models({&file, 1}, {&output, 1}, "writing");
  const std::uint32_t chunks = parts.back().chunk_count;
  app::say(o.output + ": " + std::to_string(matrix.entries.size()) + " tensors, " + number_text(chunks) +
           (chunks == 1 ? " chunk of " : " chunks of ") + number_text(matrix.chunk_size) + " tokens" +
           (parts.size() == 1 ? "" : ", " + number_text(matrix.chunk_count) + whole));
}

/// Of the text alone.
ImportanceMatrix collect(const Options& o, Model& model, Collector& collector) {
  std::vector<Token> tokens = app::read_text_file(o.text, model.tokenizer());
  const std::int64_t chunks = app::count_stretches(std::ssize(tokens), o.chunk, o.chunks, "chunk");
  if (o.chunk > model.dims().context)
    app::note("chunks of " + number_text(o.chunk) + " tokens are longer than the " + number_text(model.dims().context) +
              " that the model was trained with");
  run(model, std::move(tokens), o.chunk, chunks, collector);
  ImportanceMatrix matrix;
  matrix.entries = collector.entries();
  matrix.datasets = {o.text == "-" ? "stdin" : o.text};
  matrix.chunk_count = static_cast<std::uint32_t>(chunks);
  matrix.chunk_size = static_cast<std::uint32_t>(o.chunk);
  return matrix;
}

int body(int argc, char** argv) {
  Options o;
  if (const auto code = read_options(argc, argv, o)) return *code;
  app::install_signal_handlers();
  if (o.text.empty()) {
    write(o, read_earlier(o), " in all files");
    return 0;
  }
  o.model.placement.room = {.context = o.chunk};
  const std::unique_ptr<Model> model = app::load_model(o.model);
  std::vector<ImportanceMatrix> parts = read_earlier(o);
  Collector collector(model->graph({}), model->file().tensors(), o.last);
  for (const ImportanceMatrix& e : parts) require_same_model(collector.entries(), e);
  parts.push_back(collect(o, *model, collector));
  write(o, parts, " with the earlier ones");
  return 0;
}

}  // namespace
}  // namespace llm::importance

int main(int argc, char** argv) {
  return llm::app::run("llm-imatrix", argc, argv, [&] { return llm::importance::body(argc, argv); });
}
