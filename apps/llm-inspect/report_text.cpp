// The report for people.
#include <algorithm>
#include <string_view>

#include "report.h"
#include "runtime/figures.h"
#include "values.h"

namespace llm::inspect {
namespace {

constexpr std::size_t kWidestName = 60;

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}
std::string right(std::string text, std::size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}
std::string with_number(std::uint64_t bytes) { return bytes_text(bytes) + " (" + number_text(bytes) + " bytes)"; }

std::string row(std::string_view name, std::string_view value) {
  return "  " + padded(std::string(name), 14) + "  " + std::string(value) + "\n";
}

template <class Items, class Name>
std::size_t widest(const Items& items, Name name) {
  std::size_t width = 0;
  for (const auto& item : items) width = std::max(width, name(item).size());
  return std::min(width, kWidestName);
}

std::string file_text(const Report& r) {
  std::string text = "file\n" + row("path", escaped(r.path, 4096));
  text += row("size", with_number(r.file.file_bytes()));
  text +=
      row("format", "GGUF version " + std::to_string(r.file.version()) +
                        (r.file.foreign_byte_order() ? ", the other byte order" : "") +
                        (r.file.shards().size() > 1 ? ", " + std::to_string(r.file.shards().size()) + " files" : ""));
  return text;
}

std::string metadata_text(const Metadata& md) {
  std::string text = "metadata: " + number_text(md.entries().size()) + " keys\n";
  const auto name = [](const Metadata::Entry& e) { return escaped(e.key); };
  const std::size_t width = widest(md.entries(), name);
  for (const Metadata::Entry& e : md.entries()) {
    text += "  " + padded(name(e), width) + "  " + padded(type_text(e), 8) + "  " + value_text(md, e) + "\n";
  }
  return text;
}

std::string tensors_text(const Report& r) {
  const std::span<const TensorInfo> tensors = r.file.tensors().all();
  const bool split = r.file.shards().size() > 1;
  std::string text = "tensors: " + number_text(tensors.size()) + " (name, type, shape, bytes, offset" +
                     (split ? ", file" : "") + ")\n";
  const std::size_t width = widest(tensors, [](const TensorInfo& t) { return escaped(t.name); });
  for (const TensorInfo& t : tensors) {
    text += "  " + padded(escaped(t.name), width) + "  " + padded(std::string(name(t.type.dtype)), 5) + "  " +
            padded(to_string(t.type.shape), 18) + "  " + right(number_text(t.type.bytes()), 14) + "  " +
            right(number_text(t.data_offset), 16) + (split ? "  " + std::to_string(t.shard + 1) : "") + "\n";
  }
  return text;
}

std::string types_text(const Report& r) {
  std::string text = "types (tensors, elements, bytes, share)\n";
  for (const TypeSum& t : r.types) {
    const double share =
        100.0 * static_cast<double>(t.bytes) / static_cast<double>(std::max<std::uint64_t>(1, r.tensor_bytes));
    text += "  " + padded(std::string(name(t.type)), 5) + "  " + right(number_text(t.tensors), 6) + "  " +
            right(number_text(t.elements), 16) + "  " + right(number_text(t.bytes), 16) + "  " +
            right(fixed_text(share, 1), 5) + " %\n";
  }
  const double bits =
      8.0 * static_cast<double>(r.tensor_bytes) / static_cast<double>(std::max<std::uint64_t>(1, r.parameters));
  return text + row("parameters", number_text(r.parameters) + ", " + fixed_text(bits, 2) + " bits each");
}

std::string dims_text(const ModelDims& d) {
  std::string text = number_text(d.n_layers) + " layers of width " + number_text(d.n_embd) + ", " +
                     number_text(d.heads) + " heads over " + number_text(d.kv_heads) + " of keys and values";
  if (d.experts > 0) text += ", " + number_text(d.experts_used) + " of " + number_text(d.experts) + " experts";
  return text + ", vocabulary " + number_text(d.vocab) + ", context " + number_text(d.context);
}

std::string here_text(const Here& h) {
  std::string text = "here\n" + row("architecture", h.architecture.text);
  if (h.dims) text += row("model", dims_text(*h.dims));
  if (!h.unused.empty()) {
    text += row("unused", number_text(h.unused.size()) + (h.unused.size() == 1 ? " tensor" : " tensors") +
                              ", the first \"" + escaped(h.unused.front()) + "\"");
  }
  text += row("tokenizer", h.tokenizer.text);
  text += row("chat template", h.template_bytes ? "yes, " + number_text(*h.template_bytes) + " bytes" : "none");
  text += row("backend", h.backend.text);
  text += row("threads", std::to_string(h.threads.threads) + " (" + h.threads.reason + ")");
  if (h.weight_bytes) text += row("weights", with_number(*h.weight_bytes) + ", used in place");
  if (h.cache_bytes) text += row("cache", bytes_text(*h.cache_bytes) + " per 1,024 tokens (F16)");
  return text;
}

}  // namespace

std::string text_of(const Report& r) {
  return file_text(r) + metadata_text(r.file.metadata()) + tensors_text(r) + types_text(r) + here_text(r.here);
}

}  // namespace llm::inspect
