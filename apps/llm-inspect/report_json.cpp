// The report for programs.
#include <nlohmann/json.hpp>

#include "report.h"
#include "values.h"

namespace llm::inspect {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json file_json(const Report& r) {
  return {{"path", r.path},
          {"bytes", r.file.file_bytes()},
          {"version", r.file.version()},
          {"foreign_byte_order", r.file.foreign_byte_order()},
          {"shards", r.file.shards().size()}};
}

Json metadata_json(const Metadata& md) {
  Json j = Json::object();
  for (const Metadata::Entry& e : md.entries()) j[std::string(e.key)] = value_json(md, e);
  return j;
}

Json shape_json(const Shape& shape) {
  Json j = Json::array();
  for (int i = 0; i < shape.n_dims(); ++i) j.push_back(shape[i]);
  return j;
}

Json tensors_json(std::span<const TensorInfo> tensors) {
  Json j = Json::array();
  for (const TensorInfo& t : tensors) {
    j.push_back({{"name", t.name},
                 {"type", name(t.type.dtype)},
                 {"shape", shape_json(t.type.shape)},
                 {"bytes", t.type.bytes()},
                 {"offset", t.data_offset},
                 {"shard", t.shard}});
  }
  return j;
}

Json types_json(std::span<const TypeSum> types) {
  Json j = Json::array();
  for (const TypeSum& t : types) {
    j.push_back({{"type", name(t.type)}, {"tensors", t.tensors}, {"elements", t.elements}, {"bytes", t.bytes}});
  }
  return j;
}

/// {"supported": true, "is": text} or {"supported": false, "why": text}
Json finding_json(const Finding& f) { return {{"supported", f.ok}, {f.ok ? "is" : "why", f.text}}; }

Json dims_json(const ModelDims& d) {
  return {{"layers", d.n_layers}, {"width", d.n_embd},    {"heads", d.heads},     {"kv_heads", d.kv_heads},
          {"vocab", d.vocab},     {"context", d.context}, {"experts", d.experts}, {"experts_used", d.experts_used}};
}

Json here_json(const Here& h) {
  return {{"architecture", finding_json(h.architecture)},
          {"model", h.dims ? dims_json(*h.dims) : Json()},
          {"unused_tensors", h.unused},
          {"tokenizer", finding_json(h.tokenizer)},
          {"chat_template", h.template_bytes.has_value()},
          {"backend", finding_json(h.backend)},
          {"threads", h.threads.threads},
          {"threads_reason", h.threads.reason},
          {"weight_bytes", value_or_null(h.weight_bytes)},
          {"cache_bytes_per_1k_tokens", value_or_null(h.cache_bytes)}};
}

}  // namespace

std::string json_of(const Report& r) {
  const Json j{{"file", file_json(r)},
               {"metadata", metadata_json(r.file.metadata())},
               {"tensors", tensors_json(r.file.tensors().all())},
               {"types", types_json(r.types)},
               {"parameters", r.parameters},
               {"tensor_bytes", r.tensor_bytes},
               {"here", here_json(r.here)}};
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";  // names in files need not be UTF-8
}

}  // namespace llm::inspect
