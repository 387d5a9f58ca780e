#include "plan.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/machine.h"
#include "convert.h"
#include "runtime/figures.h"

namespace llm::quantization {
namespace {

constexpr std::string_view kFileType = "general.file_type", kVersion = "general.quantization_version";
constexpr std::uint32_t kQuantizationVersion = 2;  // of the types' layouts, as llama.cpp counts them
constexpr std::string_view kImatrixKeys = "quantize.imatrix.";

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string count_of(std::size_t n) { return number_text(n) + (n == 1 ? " tensor" : " tensors"); }

std::int64_t matrices(const TensorType& type) { return type.shape[2] * type.shape[3]; }

}  // namespace

Plan::Plan(const Options& options, const GgufFile& file, const std::optional<ImportanceMatrix>& importance)
    : options_(options), file_(file), importance_(importance) {
  choose();
  warn_if_nothing_changes();
  warn_of_input();
  warn_of_fallbacks();
  warn_of_output_options();
  warn_of_overrides();
  warn_of_importance();
  require_importance();
  make_files();
}

void Plan::choose() {
  const std::span<const TensorInfo> tensors = file_.tensors().all();
  if (options_.mix == nullptr) {
    for (const TensorInfo& t : tensors) choices_.push_back({t.type.dtype, t.type.dtype});
    return;
  }
  std::vector<NamedTensor> named;
  for (const TensorInfo& t : tensors) named.push_back({t.name, t.type});
  MixOptions choice = options_.choice;
  choice.has_importance = importance_.has_value();
  choices_ = choose_types(*options_.mix, read_mix_model(file_.metadata()), named, choice);
}

/// A LoRA adapter, most often, whose matrices are small and stay as they are.
void Plan::warn_if_nothing_changes() {
  if (options_.mix == nullptr || !info(options_.mix->base).quantized()) return;
  if (std::ranges::any_of(choices_, [](const TypeChoice& c) { return info(c.type).quantized(); })) return;
  warnings_.push_back({"nothing-quantized", "no tensor of this file is one that " + std::string(options_.mix->name) +
                                                " quantises: all keep a type without blocks"});
}

void Plan::warn_of_input() {
  std::size_t n = 0;
  const TensorInfo* first = nullptr;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const TensorInfo& t = file_.tensors().all()[i];
    if (!info(t.type.dtype).quantized() || choices_[i].type == t.type.dtype) continue;
    if (n++ == 0) first = &t;
  }
  if (n == 0) return;
  warnings_.push_back({"requantized", count_of(n) + (n == 1 ? " is" : " are") + " quantised already, the first " +
                                          tensor_subject(first->name) + " (" + std::string(name(first->type.dtype)) +
                                          "): quantising again loses more than from F32, F16 or BF16"});
}

void Plan::warn_of_fallbacks() {
  struct Group {
    std::size_t n = 0;
    const TensorInfo* first = nullptr;
  };
  std::map<std::pair<DType, DType>, Group> groups;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const TypeChoice& c = choices_[i];
    if (c.type == c.wanted) continue;
    Group& g = groups[{c.wanted, c.type}];
    if (g.n++ == 0) g.first = &file_.tensors().all()[i];
  }
  for (const auto& [types, g] : groups) {
    const auto& [wanted, type] = types;
    warnings_.push_back({"fallback-type", count_of(g.n) + (g.n == 1 ? " gets " : " get ") + std::string(name(type)) +
                                              " in place of " + std::string(name(wanted)) + ", whose blocks of " +
                                              std::to_string(info(wanted).block_elems) +
                                              " do not divide their rows, the first " + tensor_subject(g.first->name) +
                                              " with rows of " + number_text(g.first->type.shape[0])});
  }
}

void Plan::warn_of_output_options() {
  const MixOptions& o = options_.choice;
  const bool tied = file_.tensors().find("output.weight") == nullptr;
  const auto warn = [&](const std::string& option, const std::string& why) {
    warnings_.push_back({"unused-option", option + " changes nothing: " + why});
  };
  if (o.leave_output && tied) warn("--leave-output-tensor", "the file has no output.weight, its embedding is the head");
  if (o.output && o.leave_output && !tied) warn("--output-tensor-type", "--leave-output-tensor keeps that tensor");
  if (o.output && tied && o.token_embedding)
    warn("--output-tensor-type", "the head is the embedding, whose type --token-embedding-type gives");
}

void Plan::warn_of_overrides() {
  const std::vector<TypeOverride>& overrides = options_.choice.overrides;
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    if (std::ranges::find(choices_, std::optional(i), &TypeChoice::matched) != choices_.end()) continue;
    warnings_.push_back({"unused-option", "--tensor-type \"" + escaped(overrides[i].pattern) + "=" +
                                              std::string(name(overrides[i].type)) +
                                              "\" changes nothing: no matrix has a name that it matches first"});
  }
}

/// The logits' matrix is left out: llm-imatrix watches it only if asked to.
void Plan::warn_of_importance() {
  if (!importance_) return;
  std::size_t with = 0, without = 0;
  const TensorInfo* first = nullptr;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const TensorInfo& t = file_.tensors().all()[i];
    if (!takes_importance(t, choices_[i])) continue;
    if (!importance_of(t, choices_[i]).empty()) {
      ++with;
    } else if (t.name != "output.weight" && without++ == 0) {
      first = &t;
    }
  }
  const std::string path = escaped(importance_->path, 4096);
  if (without > 0)
    warnings_.push_back({"no-importance-entry", path + " has no entry for " + count_of(without) + ", the first " +
                                                    tensor_subject(first->name) +
                                                    ": quantised as without an importance matrix" +
                                                    (with == 0 ? "; is it of another model?" : "")});
  if (with + without == 0)
    warnings_.push_back({"unused-option", path + " changes nothing: no tensor is quantised with it"});
}

void Plan::require_importance() {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const TensorInfo& t = file_.tensors().all()[i];
    const TypeChoice& c = choices_[i];
    if (!c.needs_importance || c.type == t.type.dtype) continue;
    if (importance_ && !importance_of(t, c).empty()) continue;
    const std::string type(name(c.type));
    const bool by_mix = !c.matched && options_.mix != nullptr && options_.mix->name != type;
    const std::string problem =
        (by_mix ? std::string(options_.mix->name) + " makes it " + type + ", which" : type) +
        " without an importance matrix is not worth having: " +
        (importance_ ? "the one given has no entry for this tensor; llm-imatrix makes one of this model"
                     : "make one with llm-imatrix and give it with --imatrix");
    if (!options_.dry_run)
      throw Error(importance_ ? ErrorKind::Model : ErrorKind::Usage,
                  ErrorParts{.file = importance_ ? importance_->path : options_.input,
                             .subject = tensor_subject(t.name),
                             .problem = problem});
    warnings_.push_back({"no-importance", tensor_subject(t.name) + ": " + problem});
    return;
  }
}

/// The embeddings' rows are looked up, not multiplied with: an entry of another shape is of the logits' product.
bool Plan::takes_importance(const TensorInfo& t, const TypeChoice& c) const {
  return importance_ && info(c.type).quantized() && c.type != t.type.dtype && t.name != "token_embd.weight";
}

std::vector<float> Plan::importance_of(const TensorInfo& t, const TypeChoice& c) const {
  if (!takes_importance(t, c)) return {};
  return importance_->importance(t.name, t.type.shape[0], matrices(t.type));
}

void Plan::make_files() {
  const int threads = options_.threads > 0 ? options_.threads : default_threads().threads;
  ModelContent content = content_like(file_);
  content.metadata = [this](GgufWriter& writer) { set_metadata(writer); };
  const std::span<const TensorInfo> tensors = file_.tensors().all();
  std::vector<std::size_t> counts(file_.shards().size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& t = tensors[i];
    const DType type = choices_[i].type;
    const bool same = type == t.type.dtype;
    const auto importance = [this, i] { return importance_of(file_.tensors().all()[i], choices_[i]); };
    content.tensors.push_back({std::string(t.name),
                               {type, t.type.shape},
                               same ? stored_data(file_, t) : converted(file_, t, type, importance, threads)});
    counts[t.shard] += 1;
  }
  if (!options_.keep_split || counts.size() == 1) {
    files_.push_back(single_file(content));
    paths_ = {options_.output};
    return;
  }
  files_ = file_set(content, counts);
  paths_ = split_paths(options_.output, counts.size());
}

void Plan::set_metadata(GgufWriter& writer) const {
  const bool copied = options_.mix == nullptr;
  for (const Metadata::Entry& e : file_.metadata().entries()) {
    const bool replaced =
        !copied && (e.key == kFileType || e.key == kVersion || (importance_ && e.key.starts_with(kImatrixKeys)));
    if (!is_split_key(e.key) && !replaced) writer.copy(file_.metadata(), e.key);
  }
  if (copied) return;
  writer.set(kFileType, static_cast<std::uint32_t>(options_.mix->file_type));
  writer.set(kVersion, kQuantizationVersion);
  if (!importance_) return;
  const auto key = [](std::string_view name) { return std::string(kImatrixKeys) + std::string(name); };
  writer.set(key("file"), importance_->path);
  if (!importance_->datasets.empty()) writer.set(key("dataset"), importance_->datasets.front());
  writer.set(key("entries_count"), static_cast<std::uint32_t>(importance_->entries.size()));
  if (importance_->chunk_count > 0) writer.set(key("chunks_count"), importance_->chunk_count);
}

std::uint64_t Plan::bytes() const {
  std::uint64_t sum = 0;
  for (const GgufWriter& file : files_) sum += file.file_bytes();
  return sum;
}

std::uint64_t Plan::tensor_bytes() const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < choices_.size(); ++i)
    sum += TensorType{choices_[i].type, file_.tensors().all()[i].type.shape}.bytes();
  return sum;
}

double Plan::bits_per_weight(std::uint64_t bytes) const {
  std::uint64_t weights = 0;
  for (const TensorInfo& t : file_.tensors().all()) weights += static_cast<std::uint64_t>(t.type.shape.elements());
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(1, weights));
}

std::string Plan::table() const {
  std::string text;
  const std::span<const TensorInfo> tensors = file_.tensors().all();
  std::size_t widest = 0;
  for (const TensorInfo& t : tensors) widest = std::max(widest, escaped(t.name).size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& t = tensors[i];
    const TypeChoice& c = choices_[i];
    text += padded(escaped(t.name), widest) + "  " + padded(to_string(t.type.shape), 18) + "  " +
            padded(std::string(name(t.type.dtype)), 7) + "  " + padded(std::string(name(c.type)), 7) + "  " +
            number_text(TensorType{c.type, t.type.shape}.bytes()) + "\n";
  }
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const std::string path = options_.output.empty() ? "file" : escaped(paths_[i].string(), 4096);
    text += path + ": " + number_text(files_[i].file_bytes()) + " bytes\n";
  }
  return text + summary() + "\n";
}

std::string Plan::summary() const {
  return (options_.mix ? std::string(options_.mix->name) : "COPY") + ": " + number_text(file_.file_bytes()) + " -> " +
         number_text(bytes()) + " bytes, " + fixed_text(bits_per_weight(tensor_bytes()), 2) + " bits a weight";
}

}  // namespace llm::quantization
