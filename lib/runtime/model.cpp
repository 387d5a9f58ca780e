// Loading: open, understand, check everything that can be checked without reading the weights, hand them to the
// backend.
#include "runtime/model.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <variant>

#include "base/environment.h"
#include "base/machine.h"
#include "base/sha256.h"
#include "gguf/fingerprint.h"
#include "graph/passes/passes.h"
#include "graph/weight_parts.h"
#include "model/stored_weight.h"
#include "models/registry.h"
#include "runtime/checked_backend.h"
#include "runtime/figures.h"
#include "runtime/place.h"
#include "runtime/screening.h"
#include "runtime/session.h"

namespace llm {
namespace {

/// The weights of a model's files, and how many bytes of those planned were asked for.
class FileWeights final : public WeightSource {
 public:
  FileWeights(const GgufFile& file, std::span<const LoraAdapter> adapters, std::uint64_t total,
              std::function<void(double)> progress)
      : file_(file), adapters_(adapters), total_(total), progress_(std::move(progress)) {}

  std::optional<std::span<const std::byte>> mapped(std::string_view name) const override {
    const StoredWeight w = find(name);
    if (w.file->foreign_byte_order()) return std::nullopt;
    count(w.tensor->type.bytes());
    return std::span(w.file->view(*w.tensor).data, w.tensor->type.bytes());
  }
  void read(std::string_view name, std::uint64_t offset, std::span<std::byte> dst) const override {
    const StoredWeight w = find(name);
    w.file->read(*w.tensor, offset, dst);
    count(dst.size());
  }

 private:
  StoredWeight find(std::string_view name) const {
    const StoredWeight found = find_weight(name, file_, adapters_);
    check(found.tensor.has_value(), "a weight that no file has: " + escaped(name));
    return found;
  }
  void count(std::uint64_t bytes) const {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (progress_)
      progress_(std::min(1.0, static_cast<double>(done_) / static_cast<double>(std::max<std::uint64_t>(total_, 1))));
  }

  const GgufFile& file_;
  std::span<const LoraAdapter> adapters_;
  std::uint64_t total_;
  std::function<void(double)> progress_;
  mutable std::mutex mutex_;  ///< of what follows, and of calls of `progress_`
  mutable std::uint64_t done_ = 0;
};

/// A factor of a weight that nothing applies changes the text, which a warning would not make up for.
void refuse_unused_factors(const std::vector<std::string>& unused, const GgufFile& file) {
  for (const std::string& name : unused) {
    if (name.starts_with("rope_factors_"))
      file.fail(*file.tensors().find(name),
                "changes the rotary angles and would be left out: this architecture has none");
    if (!name.ends_with(".scale") && !name.ends_with("_scale")) continue;
    file.fail(*file.tensors().find(name),
              "scales a weight and would be left out: scales are known as \"<name>.scale\" beside \"<name>.weight\" of "
              "a product; convert the model again");
  }
}

void warn_unused(const std::vector<std::string>& unused, const ModelDims& dims, Warnings& warnings) {
  if (unused.empty()) return;
  constexpr std::size_t kNamed = 4;
  std::string names;
  for (std::size_t i = 0; i < std::min(kNamed, unused.size()); ++i) {
    names += (i == 0 ? "" : ", ") + ("\"" + escaped(unused[i]) + "\"");
  }
  if (unused.size() > kNamed) names += " and " + number_text(unused.size() - kNamed) + " more";
  const bool one = unused.size() == 1;
  warnings.push_back({"unused-tensors", number_text(unused.size()) +
                                            (one ? " tensor of the file is" : " tensors of the file are") +
                                            " not used by architecture " + dims.architecture + ": " + names});
}

/// Mapped weights that are larger than memory are read again and again; those that a backend keeps itself must fit.
void check_memory(const Backend& backend, std::span<const Graph> graphs, const std::string& placement,
                  Warnings& warnings) {
  for (const MemoryShare& share : backend.memory(graphs)) {
    if (share.weights <= share.available) continue;
    const std::string figures = bytes_text(share.weights) + " and " + bytes_text(share.available);
    if (share.layout == Layout::Device) {
      throw Error(ErrorKind::Memory, "the weights take " + figures + " of " + owned_text(share.name) +
                                         " are available" + (placement.empty() ? "" : " (" + placement + ")"));
    }
    warnings.push_back({"memory", "the weights take " + figures +
                                      " of memory are available: they will be read from disk again and again"});
  }
}

/// For files that are to be read whole.
void require_room(const std::string& file, std::uint64_t bytes) {
  const std::uint64_t available = available_memory();
  if (bytes <= available) return;
  throw Error(ErrorKind::Memory, {.file = file,
                                  .problem = bytes_text(bytes) + " are to be read and " + bytes_text(available) +
                                             " of memory are available; a mapped file needs less"});
}

/// Token ids index the rows of the embedding table.
void check_vocabulary(const Tokenizer& tokenizer, const ModelDims& dims, const Metadata& metadata) {
  if (static_cast<std::int64_t>(tokenizer.n_vocab()) <= dims.vocab) return;
  metadata.fail("tokenizer.ggml.tokens",
                number_text(tokenizer.n_vocab()) + " tokens, but the model has rows for " + number_text(dims.vocab));
}

std::vector<WeightPlan> plan_weights(std::span<const Graph> graphs, const Backend& backend) {
  std::vector<WeightPlan> plan;
  std::unordered_set<std::string_view> planned;
  for (const Graph& graph : graphs) {
    for (const ValueInfo& value : graph.values()) {
      if (value.kind != ValueKind::Weight || !planned.insert(value.name).second) continue;
      plan.push_back({value.name, value.type, backend.choose_layout({value.name, value.type})});
    }
  }
  return plan;
}

bool is_checked() { return environment("LLM_RUN_CHECK").value_or("0") != "0"; }

/// LLM_RUN_CHECK=1 puts the reference beside the backend.
std::unique_ptr<Backend> checked_if_wanted(std::unique_ptr<Backend> backend, const BackendOptions& options) {
  if (!is_checked()) return backend;
  if (backend->variant() == "FP8")
    throw Error(ErrorKind::Usage,
                "LLM_RUN_CHECK: the reference backend rounds nothing to FP8, so that every product "
                "would differ from it");
  return make_checked_backend(std::move(backend), make_backend("reference", options));
}

/// Leaves out overrides that name nothing.
OverriddenWeights resolve(std::vector<TensorOverride>& overrides, const Graph& graph, Warnings& warnings) {
  overridden_weights(overrides, graph);
  for (const TensorOverride& o : overrides) {
    if (o.tensors > 0) continue;
    warnings.push_back(
        {"no-effect", o.given + " has no effect: it names no weight of this model but what others name"});
  }
  std::erase_if(overrides, [](TensorOverride& o) { return std::exchange(o.tensors, 0) == 0; });
  return overridden_weights(overrides, graph);
}

std::vector<LoraAdapter> open_adapters(const LoadOptions& options, const Metadata& model, Warnings& warnings) {
  std::vector<LoraAdapter> adapters;
  const auto architecture = model.get<std::string_view>("general.architecture");
  for (const AdapterFile& wanted : options.adapters) {
    adapters.push_back(LoraAdapter::open(wanted, adapters.size(), architecture, warnings));
    if (options.examine) options.examine(adapters.back().file());
  }
  return adapters;
}

/// Drafts go by one prediction layer, of families that have a graph of it.
void require_prediction_layer(const ModelSpec& spec, const Metadata& md) {
  const std::string key = spec.dims.architecture + ".nextn_predict_layers";
  const auto layers = md.get_or<std::int64_t>(key, 0);
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorKind::Usage, ErrorParts{.file = md.file(), .problem = why});
  };
  if (layers == 0) fail("has no prediction layer to draft by: " + key + " is not there, or 0");
  if (!spec.predict)
    fail("drafts by the prediction layers of architecture " + spec.dims.architecture + " are not supported yet");
  if (layers > 1) fail("has " + number_text(layers) + " prediction layers: drafts by more than one are not supported");
}

/// What neither graph reads. The prediction layer's tensors may be left unread where it is not wanted alone.
std::vector<std::string> unused_by_both(const std::vector<std::string>& by_model,
                                        const std::vector<std::string>& by_prediction) {
  std::vector<std::string> both;
  std::ranges::set_intersection(by_model, by_prediction, std::back_inserter(both));
  return both;
}

/// The graph of the smallest bucket; `unused` as build_graph() gives it, of both graphs if the model predicts.
Graph first_graph(ModelSpec& spec, const GgufFile& file, std::span<const LoraAdapter> adapters, bool predicts,
                  std::vector<std::string>& unused) {
  if (!predicts) return build_graph(spec, file, Bucket{}, &unused, adapters);
  spec.ignorable.clear();
  std::vector<std::string> by_model, by_prediction;
  Graph graph = build_graph(spec, file, Bucket{}, &by_model, adapters, Net::Outputs::LogitsAndHidden);
  build_prediction_graph(spec, file, Bucket{}, &by_prediction, adapters);
  std::ranges::sort(by_model);
  std::ranges::sort(by_prediction);
  unused = unused_by_both(by_model, by_prediction);
  return graph;
}

ModelLayers layers_of(const ModelDims& dims) { return {.count = dims.n_layers, .experts = dims.experts > 0}; }

}  // namespace

Model::Model(Opened&& opened)
    : file_(std::move(opened.file)),
      adapters_(std::move(opened.adapters)),
      spec_(std::move(opened.spec)),
      tokenizer_(std::move(opened.tokenizer)),
      predicts_(opened.predicts) {}

Model::Opened Model::open(const LoadOptions& options) {
  Warnings warnings;
  GgufFile file = GgufFile::open(options.path, warnings);
  if (options.prepare) options.prepare(file, warnings);
  if (options.examine) options.examine(file);
  ModelSpec spec = open_model(file.metadata());
  if (file.tensors().all().empty()) {
    throw Error(ErrorKind::Model,
                ErrorParts{.file = file.metadata().file(), .problem = "holds a vocabulary and no weights"});
  }
  std::vector<LoraAdapter> adapters = open_adapters(options, file.metadata(), warnings);
  std::vector<std::string> unused;
  if (options.predicts) require_prediction_layer(spec, file.metadata());
  Graph graph = first_graph(spec, file, adapters, options.predicts, unused);
  std::erase_if(adapters, [](const LoraAdapter& a) { return a.scale() == 0; });  // they were checked, and add nothing
  auto tokenizer = Tokenizer::load(file.metadata(), warnings);
  check_vocabulary(*tokenizer, spec.dims, file.metadata());
  refuse_unused_factors(unused, file);
  warn_unused(unused, spec.dims, warnings);
  return {std::move(file),  std::move(adapters),  std::move(spec),    std::move(graph),
          options.predicts, std::move(tokenizer), std::move(warnings)};
}

std::unique_ptr<Model> Model::load(Opened opened, const LoadOptions& options, Warnings& warnings) {
  const int threads = options.threads > 0 ? options.threads : default_threads().threads;
  const BackendOptions backend_options{
      .threads = threads,
      .prompt_threads = options.prompt_threads,
      .isa = options.isa,
      .bytes_per_thread = options.bytes_per_thread,
      .deterministic =
          options.deterministic || (is_checked() && !options.f8),  // else prompts on a GPU are rounded otherwise
      .f8 = options.f8,
      .device = options.placement.devices.at(static_cast<std::size_t>(options.placement.preferred))};
  auto backend = options.backends(options.backend, backend_options);

  warnings.insert(warnings.end(), opened.warnings.begin(), opened.warnings.end());
  PlacementOptions wish = options.placement;
  const OverriddenWeights overridden = resolve(wish.overrides, opened.graph, warnings);
  mark_overrides(opened.graph, overridden);
  const Graph graph = optimize(opened.graph);
  std::unique_ptr<Model> model(new Model(std::move(opened)));
  model->overridden_ = overridden;
  model->place(std::move(wish), options, backend_options, std::move(backend));
  if (model->predicts()) model->require_one_device();
  model->backend_ = checked_if_wanted(std::move(model->backend_), backend_options);
  model->check_support();

  if (const std::string lacked = model->backend_->lacks(); !lacked.empty())
    warnings.push_back({"gpu-library", "prompts take several times as long as they could: there is no " + lacked});
  model->measure(graph);
  model->files_ = options.files;
  if (options.files == LoadOptions::Files::Mapped)
    check_memory(*model->backend_, model->graphs(Bucket{}), model->placement_, warnings);
  if (options.weights == LoadOptions::Weights::Load) model->load_weights(options.progress);
  return model;
}

void Model::load_weights(const std::function<void(double)>& progress) {
  check(weights_ == nullptr, "weights are loaded once");
  if (reads_files()) {
    read_into_memory(progress);
  }
  const std::vector<Graph> graphs = this->graphs(Bucket{});
  const std::vector<WeightPlan> plan = plan_weights(graphs, *backend_);
  for (const Graph& graph : graphs) screen_small_weights(file_, adapters_, graph);
  source_ = std::make_unique<FileWeights>(file_, adapters_, weight_bytes_, reads_files() ? nullptr : progress);
  weights_ = backend_->load(*source_, plan);
  for (const GgufFile* file : files()) {
    for (const MappedFile& shard : file->shards()) shard.check_unchanged();
  }
}

void Model::read_into_memory(const std::function<void(double)>& progress) {
  const std::uint64_t all = file_bytes();
  require_room(file_.metadata().file(), all);
  std::uint64_t done = 0;
  const auto read = [&](GgufFile& file) {
    const auto bytes = static_cast<double>(file.file_bytes());
    file.read_into_memory([&](double fraction) {
      if (progress) progress((static_cast<double>(done) + fraction * bytes) / static_cast<double>(all));
    });
    done += file.file_bytes();
  };
  read(file_);
  for (LoraAdapter& adapter : adapters_) read(adapter.file());
  hold(all);
}

void Model::place(PlacementOptions wish, const LoadOptions& options, const BackendOptions& backend_options,
                  std::unique_ptr<Backend> backend) {
  const ModelLayers layers = layers_of(dims());
  const bool foreign = std::ranges::any_of(files(), [](const GgufFile* f) { return f->foreign_byte_order(); });
  wish.streams = wish.streams && !foreign;  // it would take a second copy, in this machine's order
  const bool fitting = wish.layers == PlacementOptions::kFitting, several = wish.devices.size() > 1;
  kind_ = backend->name();
  backend_ = std::move(backend);
  LayerPlan plan{.layers = {std::min(wish.layers, layers.count + 1)}, .host_experts = wish.host_experts};
  for (const TensorOverride& o : wish.overrides) plan.overrides.push_back(o.device == TensorOverride::kHost ? -1 : 0);
  if (!fitting && !several && !llm::has_host_part(plan, layers)) return;
  if (fitting || several) check_support();  // before anything is planned there
  const auto make_device = [&](int device) {
    BackendOptions own = backend_options;
    own.device = device;
    return options.backends(options.backend, own);
  };
  Placed placed =
      llm::place(std::move(backend_), {.wish = wish,
                                       .layers = layers,
                                       .context = dims().context,
                                       .graph = [this](Bucket bucket) { return graph(bucket); },
                                       .make_device = make_device,
                                       .make_host = [&] { return options.backends(options.host, backend_options); }});
  backend_ = std::move(placed.backend);
  placement_ = std::move(placed.text);
  devices_ = placed.devices;
  has_host_part_ = placed.has_host_part;
}

std::vector<const GgufFile*> Model::files() const {
  std::vector<const GgufFile*> files{&file_};
  for (const LoraAdapter& adapter : adapters_) files.push_back(&adapter.file());
  return files;
}

std::uint64_t Model::file_bytes() const {
  std::uint64_t sum = 0;
  for (const GgufFile* file : files()) sum += file->file_bytes();
  return sum;
}

std::string Model::title() const {
  std::string text = std::filesystem::path(file_.metadata().file()).filename().string();
  for (const LoraAdapter& adapter : adapters_)
    text += (&adapter == &adapters_.front() ? " with " : " and ") + adapter.title();
  return text;
}

std::string Model::fingerprint() const {
  if (adapters_.empty()) return llm::fingerprint(file_);
  std::string said = llm::fingerprint(file_);
  for (const LoraAdapter& adapter : adapters_)
    said +=
        "\n" + llm::fingerprint(adapter.file()) + " " + std::to_string(std::bit_cast<std::uint32_t>(adapter.scale()));
  Sha256 sum;
  sum.update(std::as_bytes(std::span(said)));
  return sum.digest();
}

Graph Model::graph_before_passes(Bucket bucket) const {
  Graph graph = build_graph(spec_, file_, bucket, nullptr, adapters_,
                            predicts_ ? Net::Outputs::LogitsAndHidden : Net::Outputs::Logits);
  mark_overrides(graph, overridden_);
  return graph;
}

Graph Model::prediction_graph(Bucket bucket) const {
  check(predicts_, "a model with its prediction layer");
  return optimize(build_prediction_graph(spec_, file_, bucket, nullptr, adapters_));
}

std::vector<Graph> Model::graphs(Bucket bucket) const {
  std::vector<Graph> all{graph(bucket)};
  if (predicts_) all.push_back(prediction_graph(bucket));
  return all;
}

/// What a composite backend cuts is one graph.
void Model::require_one_device() const {
  if (devices_ == 1 && !has_host_part_) return;
  throw Error(
      ErrorKind::Usage,
      "drafts by the prediction layer need one device that computes the whole model; here it is: " + placement_);
}

Graph Model::graph(Bucket bucket) const { return optimize(graph_before_passes(bucket)); }

/// Asks for the smallest and the largest bucket: what a backend can do may depend on the number of tokens.
void Model::check_support() const {
  std::vector<std::string> reasons;
  for (const int tokens : {1, most_step_tokens(*backend_, {})}) {
    for (const Graph& g : graphs({.tokens = tokens, .sequences = tokens, .outputs = tokens})) {
      for (const Node& node : g.nodes()) {
        const Support support = backend_->supports(g, node);
        if (support.ok) continue;
        const std::string place = node.out.empty() ? std::string(name(node.op)) : g.info(node.out.front()).name;
        std::string reason = place + ": " + support.reason;
        if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) reasons.push_back(std::move(reason));
      }
    }
  }
  if (reasons.empty()) return;
  constexpr std::size_t kShown = 4;
  std::string text = "backend " + std::string(backend_->name()) + " cannot run this model: ";
  for (std::size_t i = 0; i < std::min(kShown, reasons.size()); ++i) text += (i == 0 ? "" : "; ") + reasons[i];
  if (reasons.size() > kShown) text += "; and " + std::to_string(reasons.size() - kShown) + " more";
  throw Error(ErrorKind::Device, ErrorParts{.file = file_.metadata().file(), .problem = std::move(text)});
}

void Model::measure(const Graph& graph) {
  std::unordered_set<std::uint32_t> counted;  // layers that are gone through again read their weights again
  for (const Node& node : graph.nodes()) {
    for (const std::uint32_t id : node.in) {
      if (graph.info(id).kind != ValueKind::Weight) continue;
      const TensorType& type = graph.info(id).type;
      weight_bytes_per_token_ += weight_parts(graph, node, id).bytes_per_token();
      if (!counted.insert(id).second) continue;
      weight_bytes_ += type.bytes();
      parameter_count_ += static_cast<std::uint64_t>(type.shape.elements());
    }
  }
}

}  // namespace llm
