// A model's computation as a typed description without data: nodes in topological order over values that are inputs,
// weights, state or results. Built by graph/builder.h, changed only by whole-graph passes, executed by a backend.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"
#include "tensor/tensor.h"

namespace llm {

/// A value's index in its graph. The derived types make "weight where an activation belongs" a compile error.
struct Value {
  std::uint32_t id = 0;
};
struct Act : Value {};    ///< f32 activations
struct Index : Value {};  ///< int32: tokens, positions, rows, expert ids
struct Weight : Value {};
struct Cache : Value {};
struct Recurrent : Value {};
struct Routes {
  Index expert;  ///< [top_k, tokens]
  Act weight;    ///< [top_k, tokens]
};

/// What Wkv7 gives.
struct WkvResults {
  Act y, own;
};

/// What StreamWeights gives.
struct StreamShares {
  Act read, write, mix;
};

enum class ValueKind : std::uint8_t {
  Input,
  Weight,
  Cache,      ///< of a row per position
  Recurrent,  ///< a state of one size, whatever the sequence's length
  Result,
};

/// Whether a value is no memory of a step's own: it outlives the step.
constexpr bool outlives_step(ValueKind k) { return k == ValueKind::Cache || k == ValueKind::Recurrent; }

/// What the last dimension of a value counts. Its size in the type is the bucket's capacity; a step fills fewer rows.
enum class RowSpace : std::uint8_t { None, Tokens, Outputs };

/// Inputs of every step, filled from StepData.
enum class StepInput : std::uint8_t { None, Tokens, Positions, OutRows };

/// Positions per block of a paged cache.
inline constexpr int kBlockPositions = 64;

/// Keys and values of one layer: what a state store has to keep.
struct CacheType {
  /// Index: of what keys are selected by, keys without values, beside those that are attended to. Compressed: keys that
  /// stand for several positions each, and are their own values.
  enum class Part : std::uint8_t { KeysValues, Index, Compressed };
  /// Selected: position by position, those of a selection.
  enum class Access : std::uint8_t { Whole, Selected };
  int layer = 0;
  int kv_heads = 0;
  int head_dim_k = 0;
  int head_dim_v = 0;  ///< 0 of keys alone
  Part part = Part::KeysValues;
  Access access = Access::Whole;
  int stride = 1;  ///< of keys alone: of so many positions it keeps the row of the last one
  /// Which of the places that layers take in turns, where the cache is kept elsewhere and is here only while a step
  /// works on the layer. kStays: it is kept here.
  static constexpr int kStays = -1, kPlaces = 2;
  int place = kStays;
  bool fleeting() const { return place != kStays; }
  bool keys_alone() const { return part != Part::KeysValues; }
  friend bool operator==(const CacheType&, const CacheType&) = default;
};
std::string_view name(CacheType::Part);
/// The first position whose token chooses among the keys of an index: those before see no more than may be chosen.
std::int64_t chooses_from(const SelectKeys&, const CacheType& index);

/// What a layer remembers of a sequence beside keys and values: f32, and never more of it. A node reads and writes it.
struct RecurrentType {
  /// ConvKeys, ConvValues: of layers with convolutions of their own for these. Mean: a WindowMean's rows. Hash: the
  /// tokens that a HashIds goes by; ConvHash: of a convolution of what these gave. Compress, CompressIndex: of what
  /// becomes one key of several. Shift, ShiftFfn: the row before, in front of a Wkv and of the rest of the layer.
  enum class Part : std::uint8_t {
    Conv,
    ConvKeys,
    ConvValues,
    Delta,
    Scan,
    Mean,
    Hash,
    ConvHash,
    Compress,
    CompressIndex,
    Shift,
    ShiftFfn,
    Wkv,
  };
  int layer = 0;
  Part part = Part::Conv;
  Shape shape;
  std::size_t bytes() const { return TensorType{DType::F32, shape}.bytes(); }
  friend bool operator==(const RecurrentType&, const RecurrentType&) = default;
};
std::string_view name(RecurrentType::Part);

struct ValueInfo {
  ValueKind kind = ValueKind::Result;
  std::string name = {};  ///< unique; a weight's tensor name, a result's "blk.3.ffn_norm"
  TensorType type = {};   ///< Cache, Recurrent: unused
  RowSpace rows = RowSpace::None;
  StepInput input = StepInput::None;  ///< Input only; None is a value handed over by another segment
  CacheType cache = {};               ///< Cache only
  RecurrentType recurrent = {};       ///< Recurrent only
  bool streamed = false;              ///< Weight only: each step brings it to the device, which does not keep it
};

struct Node {
  Op op;
  std::vector<std::uint32_t> in = {}, out = {};  ///< value ids, as the op's comment lists them
  std::int16_t layer = -1;                       ///< -1 outside the layers
  Role role = Role::Embed;
  std::int16_t tensor_override = -1;  ///< the caller's that names the node's weight (mark_overrides()); -1: none
};

/// Capacity of one compiled step, not its shape: a step may bring fewer tokens, sequences and outputs.
struct Bucket {
  int tokens = 1;
  int sequences = 1;
  int outputs = 1;
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

class Graph {
 public:
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const ValueInfo> values() const { return values_; }
  const ValueInfo& info(Value v) const { return values_[v.id]; }
  const ValueInfo& info(std::uint32_t id) const { return values_[id]; }
  const TensorType& type(Value v) const { return values_[v.id].type; }
  std::span<const std::uint32_t> outputs() const { return outputs_; }
  const Bucket& bucket() const { return bucket_; }

  /// Of everything that a compiled program depends on: ops, types, wiring, names.
  std::uint64_t hash() const;

  // For builders and passes.
  std::uint32_t add_value(ValueInfo);
  void add_node(Node);
  void set_outputs(std::vector<std::uint32_t> ids) { outputs_ = std::move(ids); }
  void set_bucket(Bucket b) { bucket_ = b; }
  std::vector<Node>& mutable_nodes() { return nodes_; }
  std::vector<ValueInfo>& mutable_values() { return values_; }

 private:
  std::vector<Node> nodes_;
  std::vector<ValueInfo> values_;
  std::vector<std::uint32_t> outputs_;
  Bucket bucket_;
};

/// Nodes [begin, end) with one layer number: the unit whose compiled plan equal layers share.
struct LayerRange {
  int layer;
  std::size_t begin, end;
};
std::vector<LayerRange> layer_ranges(const Graph&);

/// Values that the nodes of a range use, in the order of their first appearance: the parameters of its plan.
std::vector<std::uint32_t> range_values(const Graph&, const LayerRange&);
/// Hash of a range with its values as parameters: weights by type only, the layer number left out. Equal for layers
/// that can share one plan.
std::uint64_t structural_hash(const Graph&, const LayerRange&);

}  // namespace llm
