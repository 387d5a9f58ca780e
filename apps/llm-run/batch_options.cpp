#include "batch_options.h"

#include "base/error.h"
#include "common/numbers.h"
#include "row_template.h"

namespace llm::app {
namespace {

constexpr int kMostParallel = 256;

void set_parallel(BatchOptions& o, const std::string& text) {
  o.parallel = text == "auto" ? 0 : static_cast<int>(parse_integer("-np", text, 1, kMostParallel));
}

void set_order(BatchOptions& o, const std::string& text) {
  if (text != "done" && text != "input") {
    throw Error(ErrorKind::Usage, "option --batch-order: \"" + escaped(text) + "\" is not done or input");
  }
  o.order = text == "input" ? BatchOptions::Order::Input : BatchOptions::Order::Done;
}

void set_max_failures(BatchOptions& o, const std::string& text) {
  if (text.ends_with('%')) {
    const double percent = parse_real("--max-failures", text.substr(0, text.size() - 1), 0, 100);
    o.max_failures = {percent, true};
  } else {
    o.max_failures = {static_cast<double>(parse_integer("--max-failures", text, 0, kMaxInt32)), false};
  }
}

/// The first option that means nothing without a batch, or nothing.
std::string_view given_without_batch(const BatchOptions& o) {
  if (o.resume) return "--resume";
  if (o.retry_failed) return "--retry-failed";
  if (o.overwrite) return "--force";
  if (o.parallel > 0) return "--parallel";
  if (o.order == BatchOptions::Order::Input) return "--batch-order";
  if (!o.format.empty()) return "--batch-format";
  if (o.template_row) return "--template-row";
  if (o.max_failures) return "--max-failures";
  return o.limit > 0 ? "--limit" : "";
}

}  // namespace

void add_batch_options(Command& cli, BatchOptions& o) {
  const auto text = [&cli](const std::string& names, auto set, const std::string& help, const std::string& type) {
    cli.add_option_function<std::string>(names, set, help)->type_name(type)->take_last()->group("Batch");
  };
  cli.add_option("--batch", o.input, "file with a prompt per line (JSONL, CSV or text), - for stdin")
      ->type_name("FILE")
      ->take_last()
      ->group("Batch");
  text(
      "--batch-format", [&o](const std::string& t) { o.format = t; },
      "form of the rows (default: by the name's ending .csv or .txt, else jsonl)", "jsonl|csv|lines");
  text(
      "--template-row",
      [&o](const std::string& t) {
        if (RowTemplate(t).columns().empty())
          throw Error(ErrorKind::Usage,
                      "option --template-row: no {COLUMN} in it: every row would have the same prompt");
        o.template_row = t;
      },
      "a row's prompt, made of its columns: 'Translate: {text}'", "TEXT");
  text(
      "--parallel", [&o](const std::string& t) { set_parallel(o, t); },
      "rows at once (default auto: up to 32, 256 where GPUs have the whole model)", "N|auto");
  text(
      "--batch-order", [&o](const std::string& t) { set_order(o, t); },
      "done: rows as they finish (default); input: in their order", "done|input");
  text(
      "--limit",
      [&o](const std::string& t) { o.limit = static_cast<std::size_t>(parse_integer("--limit", t, 1, kMaxInt32)); },
      "only the first N rows", "N");
  text(
      "--max-failures", [&o](const std::string& t) { set_max_failures(o, t); }, "stop when more rows than this failed",
      "N|P%");
  cli.add_flag("--resume", o.resume, "go on after the rows that the output has")->group("Batch");
  cli.add_flag("--retry-failed", o.retry_failed, "the same, and run the rows again that failed")->group("Batch");
  cli.add_flag("--force", o.overwrite, "begin anew although the output has rows")->group("Batch");
}

void check_batch_options(const BatchOptions& o) {
  const auto refuse = [](const std::string& problem) { throw Error(ErrorKind::Usage, problem); };
  const bool resume = o.resume || o.retry_failed;
  const bool file = !o.output.empty() && o.output != "-";
  if (!o.wanted()) {
    const std::string_view given = given_without_batch(o);
    if (!given.empty()) refuse(std::string(given) + " is for a batch: give --batch FILE, or leave it out (see --help)");
    return;
  }
  if (resume && o.overwrite) refuse("--force begins anew, --resume goes on: give one of them");
  if (resume && !file) refuse("--resume needs -o FILE with the rows that are done");
}

}  // namespace llm::app
