// A model ready to run: the mapped file, its tokenizer, its weights on a backend. Sessions compile and run its graphs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/registry/registry.h"
#include "base/error.h"
#include "gguf/file.h"
#include "model/arch.h"
#include "model/lora.h"
#include "runtime/placement_options.h"
#include "text/tokenizer.h"

namespace llm {

struct LoadOptions {
  std::filesystem::path path;
  std::vector<AdapterFile> adapters = {};  ///< what they change adds up
  std::string backend = "cpu";
  PlacementOptions placement = {};  ///< how much of the model runs on `backend`, on which devices
  std::string host = "cpu";         ///< backend of the rest
  int threads = 0;                  ///< 0: default_threads()
  int prompt_threads = 0;           ///< BackendOptions::prompt_threads
  std::string isa = {};             ///< empty: what LLM_RUN_ISA says, else the best of this machine
  std::uint64_t bytes_per_thread = BackendOptions{}.bytes_per_thread;
  bool deterministic = false;  ///< BackendOptions::deterministic
  bool f8 = false;             ///< BackendOptions::f8
  /// The prediction layer, too: ErrorKind::Usage where the file or the family has none, or where one device does not
  /// compute the whole model.
  bool predicts = false;
  enum class Weights : std::uint8_t {
    Load,
    Leave,  ///< nothing beyond the files' headers is read: what a model would need can be told, to run it
            ///< load_weights() must follow
  } weights = Weights::Load;
  enum class Files : std::uint8_t {
    Mapped,
    Read,  ///< into memory of the process's own, when weights are loaded; ErrorKind::Memory where that is too much
  } files = Files::Mapped;
  /// Gets the file as it was opened, before anything is read of it: what shall count instead of its values.
  std::function<void(GgufFile&, Warnings&)> prepare = {};
  /// Gets every file, the model's as it was prepared, before more than its header is read; may throw.
  std::function<void(const GgufFile&)> examine = {};
  /// 0..1 while weights are loaded, by whichever thread, one call at a time; may be empty.
  std::function<void(double fraction)> progress;
  /// Where backends come from, by name.
  std::function<std::unique_ptr<Backend>(std::string_view, const BackendOptions&)> backends = make_backend;
};

class Model {
 public:
  /// What a file says, for which no device is needed: it can be found out while these are looked for.
  struct Opened {
    GgufFile file;
    std::vector<LoraAdapter> adapters;  ///< that change something
    ModelSpec spec;
    Graph graph;  ///< of the smallest bucket, as the family wrote it
    bool predicts = false;
    std::unique_ptr<Tokenizer> tokenizer;
    Warnings warnings;
  };
  /// Of the options' path. Opens and validates.
  static Opened open(const LoadOptions&);
  /// Loads; programs are compiled on first use. Screens F32 vectors for NaN and infinity.
  static std::unique_ptr<Model> load(Opened, const LoadOptions&, Warnings&);
  static std::unique_ptr<Model> load(const LoadOptions& options, Warnings& warnings) {
    return load(open(options), options, warnings);
  }

  /// What load() has left. `progress` as in LoadOptions.
  void load_weights(const std::function<void(double)>& progress = {});

  const GgufFile& file() const { return file_; }
  std::span<const LoraAdapter> adapters() const { return adapters_; }
  /// The model's and those of its adapters.
  std::vector<const GgufFile*> files() const;
  std::uint64_t file_bytes() const;  ///< of all of them
  /// The model file's name, and its adapters'.
  std::string title() const;
  /// Of the file by itself where there are no adapters (gguf/fingerprint.h); differs for other adapters and scales.
  std::string fingerprint() const;
  const ModelSpec& spec() const { return spec_; }
  const ModelDims& dims() const { return spec_.dims; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  Backend& backend() { return *backend_; }
  const Backend& backend() const { return *backend_; }
  const WeightStore& weights() const { return *weights_; }
  /// The optimised graph of a bucket.
  Graph graph(Bucket) const;
  /// Whether it has its prediction layer: then graph() gives what the head reads of every token as its second output.
  bool predicts() const { return predicts_; }
  /// That of the prediction layer (build_prediction_graph()), optimised.
  Graph prediction_graph(Bucket) const;
  /// graph(), and prediction_graph() if there is one: what a session's memory is for.
  std::vector<Graph> graphs(Bucket) const;
  /// The same as the family wrote it.
  Graph graph_before_passes(Bucket) const;
  /// Weights are, or will be, in memory of the process's own.
  bool reads_files() const { return files_ == LoadOptions::Files::Read; }
  /// So many bytes of the files cannot leave memory any more: what is still available does not count them.
  void hold(std::uint64_t bytes) { held_bytes_ = bytes; }
  std::uint64_t held_bytes() const { return held_bytes_; }
  /// Bytes of all weights that the model reads.
  std::uint64_t weight_bytes() const { return weight_bytes_; }
  /// Bytes of weights that one token reads (of an embedding table one row, of experts those in use), for speed limits.
  std::uint64_t weight_bytes_per_token() const { return weight_bytes_per_token_; }
  /// "GPU: 20 of 33 layers, 7.1 GiB; CPU: the rest"; empty where one backend computes all and no other could.
  const std::string& placement() const { return placement_; }
  /// Of the backend's kind, that compute a part of it.
  int devices() const { return devices_; }
  /// The host computes a part beside them.
  bool has_host_part() const { return has_host_part_; }
  /// Name of the devices' backend, however many there are: "cuda". backend() names the whole placement.
  const std::string& kind() const { return kind_; }
  /// Elements of all weights that the model reads.
  std::uint64_t parameter_count() const { return parameter_count_; }

 private:
  explicit Model(Opened&&);
  /// Takes the backend, or puts it and others together.
  void place(PlacementOptions, const LoadOptions&, const BackendOptions&, std::unique_ptr<Backend>);
  void read_into_memory(const std::function<void(double)>& progress);
  void check_support() const;
  void measure(const Graph&);
  void require_one_device() const;
  GgufFile file_;
  std::vector<LoraAdapter> adapters_;
  ModelSpec spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<WeightSource> source_;
  std::unique_ptr<WeightStore> weights_;
  std::string kind_, placement_;
  OverriddenWeights overridden_;
  LoadOptions::Files files_ = LoadOptions::Files::Mapped;
  int devices_ = 1;
  bool has_host_part_ = false;
  bool predicts_ = false;
  std::uint64_t weight_bytes_ = 0, weight_bytes_per_token_ = 0, parameter_count_ = 0, held_bytes_ = 0;
};

}  // namespace llm
