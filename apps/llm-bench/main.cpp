// llm-bench: how fast a model runs here, and how near that is to what the machine can do.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/machine.h"
#include "common/app.h"
#include "common/messages.h"
#include "common/output.h"
#include "options.h"
#include "runner.h"

namespace llm::bench {
namespace {

using Json = nlohmann::ordered_json;

/// What all rows of one loaded model have in common.
struct Subject {
  std::string model;  ///< name of its file
  std::uint64_t size_bytes = 0;
  std::uint64_t n_params = 0;
  std::string backend;
  Threads threads;
  CacheFormat cache;
};

Subject subject(const Options& o, const Model& model) {
  Subject s;
  s.model = model.title();
  s.size_bytes = model.weight_bytes();
  s.n_params = model.parameter_count();
  s.backend = model.backend().name();
  s.cache = o.cache;
  const bool one = model.kind() == "reference" || model.kind() == "cuda";  // they never use more
  if (one && !model.has_host_part()) return s;
  s.threads.few = o.model.threads > 0 ? o.model.threads : default_threads().threads;
  const bool other = o.model.prompt_threads > 0 && (model.kind() == "cpu" || model.has_host_part());
  s.threads.many = other ? o.model.prompt_threads : s.threads.few;
  return s;
}

/// A name as it can stand in a table of Markdown.
std::string in_cell(const std::string& name) {
  std::string text;
  for (const char c : escaped(name)) text += c == '|' ? std::string("\\|") : std::string(1, c);
  return text;
}

std::string dumped(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// By RFC 4180: in quotes where the text has what would end it, quotes twice. What is not known is empty.
std::string csv_field(const Json& value) {
  if (value.is_null()) return {};
  if (!value.is_string()) return dumped(value);
  const auto& text = value.get_ref<const std::string&>();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? std::string("\"\"") : std::string(1, c);
  return field + "\"";
}

Json figure(const std::optional<double>& value, double unit) { return value ? Json(*value / unit) : Json(); }

/// Rows go out as they are measured: a long run that is interrupted has shown what it found. The head comes with the
/// first one: where the model cannot be loaded, there is none.
class Table {
 public:
  explicit Table(const Options& o) : options_(o) {}

  void row(const Subject& subject, const Test& test, const Result& r) {
    app::write_stdout((rows_ == 0 ? head() : "") + text(subject, test, r));
    if (options_.roofline) nodes_ += bench::markdown(title(subject, test), r.nodes);
    ++rows_;
  }
  /// What nodes took comes behind all rows.
  void end() const {
    if (options_.format == Format::Markdown) app::write_stdout(nodes_);
    if (options_.format == Format::Json) app::write_stdout("\n]\n");
  }

 private:
  std::string head() const {
    if (options_.format == Format::Markdown) return markdown_head();
    return options_.format == Format::Json ? "[" : "";
  }

  /// The test, and where it runs more than once what tells the runs apart.
  std::string title(const Subject& subject, const Test& test) const {
    if (options_.threads.size() == 1) return test.name();
    const int threads = subject.threads.of(test);
    return test.name() + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  }

  std::string text(const Subject& subject, const Test& test, const Result& r) const {
    switch (options_.format) {
      case Format::Markdown:
        return markdown(subject, test, r);
      case Format::Json:
        return (rows_ > 0 ? ",\n " : "\n ") + dumped(json(subject, test, r));
      case Format::JsonLines:
        return dumped(json(subject, test, r)) + "\n";
      case Format::Csv:
        return csv(json(subject, test, r));
    }
    return {};
  }

  /// Behind the first row's names.
  std::string csv(Json row) const {
    row.erase("nodes");
    std::string head, line;
    for (const auto& [name, value] : row.items()) {
      head += (head.empty() ? "" : ",") + name;
      line += (line.empty() ? "" : ",") + csv_field(value);
    }
    return (rows_ == 0 ? head + "\n" : "") + line + "\n";
  }

  Json json(const Subject& subject, const Test& test, const Result& r) const {
    Json j;
    j["model"] = subject.model;
    j["size_bytes"] = subject.size_bytes;
    j["n_params"] = subject.n_params;
    j["backend"] = subject.backend;
    j["threads"] = subject.threads.of(test);
    j["cache_type_k"] = name(subject.cache.k);
    j["cache_type_v"] = name(subject.cache.v);
    j["test"] = test.name();
    j["t_s"] = r.tokens_per_second;
    j["t_s_stddev"] = r.deviation;
    j["pct_of_limit"] = figure(r.share_of_limit, 0.01);
    j["read_bytes_per_token"] = r.read_bytes_per_token;
    j["read_gbps"] = figure(r.limits.read_bytes, 1e9);
    j["int8_tops"] = figure(r.limits.int8_ops, 1e12);
    j["bf16_gflops"] = figure(r.limits.bf16_ops, 1e9);
    j["f32_gflops"] = figure(r.limits.f32_ops, 1e9);
    if (options_.roofline) {
      j["limit"] = r.ceiling ? Json(name(r.ceiling->bound)) : Json();
      j["limit_t_s"] = r.ceiling ? Json(r.ceiling->tokens_per_second) : Json();
      j["nodes"] = bench::json(r.nodes);
    }
    return j;
  }

  std::string markdown_head() const {
    std::string names = "| model | size | params | backend | threads | cache | test | t/s | % of limit |";
    std::string rule = "|---|---:|---:|---|---:|---|---|---:|---:|";
    if (options_.roofline) {
      names += " limit | t/s at limit |";
      rule += "---|---:|";
    }
    return names + "\n" + rule + "\n";
  }

  std::string markdown(const Subject& subject, const Test& test, const Result& r) const {
    std::string text = "| " + in_cell(subject.model) + " | " + bytes_text(subject.size_bytes) + " | " +
                       fixed_text(static_cast<double>(subject.n_params) / 1e6, 2) + " M | " + in_cell(subject.backend) +
                       " | " + std::to_string(subject.threads.of(test)) + " | " + std::string(name(subject.cache.k)) +
                       "/" + std::string(name(subject.cache.v)) + " | " + test.name() + " | " +
                       fixed_text(r.tokens_per_second, 2) + " ± " + fixed_text(r.deviation, 2) + " | " +
                       (r.share_of_limit ? fixed_text(100 * *r.share_of_limit, 1) : "-") + " |";
    if (options_.roofline) {
      text += r.ceiling ? " " + limit_text(r) + " | " + fixed_text(r.ceiling->tokens_per_second, 1) + " |" : " - | - |";
    }
    return text + "\n";
  }

  static std::string limit_text(const Result& r) {
    const std::string what(name(r.ceiling->bound));
    switch (r.ceiling->bound) {
      case Bound::ReadBandwidth:
        return what + " " + fixed_text(r.limits.read_bytes.value_or(0) / 1e9, 1) + " GB/s";
      case Bound::Int8Peak:
        return what + " " + fixed_text(r.limits.int8_ops.value_or(0) / 1e12, 2) + " TOP/s";
      case Bound::Bf16Peak:
        return what + " " + fixed_text(r.limits.bf16_ops.value_or(0) / 1e9, 0) + " GFLOP/s";
      case Bound::F32Peak:
        return what + " " + fixed_text(r.limits.f32_ops.value_or(0) / 1e9, 0) + " GFLOP/s";
    }
    return what;
  }

  const Options& options_;
  std::string nodes_;
  int rows_ = 0;
};

/// All tests with the number of threads that the model's options have.
void measure(const Options& o, std::span<const Test> list, Table& table) {
  const std::unique_ptr<Model> model = app::load_model(o.model);
  app::verbose(model->backend().describe());
  const Subject what = subject(o, *model);
  Runner runner(*model, what.threads, list, o.cache);
  for (const Test& test : list) {
    Result result = runner.run(test, o.sampling);
    if (o.roofline) result.nodes = runner.nodes(test);
    table.row(what, test, result);
  }
}

int body(int argc, char** argv) {
  Options options;
  if (const auto code = read_options(argc, argv, options)) return *code;
  const std::vector<Test> list = tests(options);
  const SessionOptions session = session_options(list, options.cache);
  options.model.placement.room = {.context = (*session.pool + session.sequences - 1) / session.sequences,
                                  .sequences = session.sequences,
                                  .cache = session.cache};
  Table table(options);
  for (const int threads : options.threads) {
    options.model.threads = std::max(threads, 0);
    measure(options, list, table);
  }
  table.end();
  return 0;
}

}  // namespace
}  // namespace llm::bench

int main(int argc, char** argv) {
  return llm::app::run("llm-bench", argc, argv, [&] { return llm::bench::body(argc, argv); });
}
