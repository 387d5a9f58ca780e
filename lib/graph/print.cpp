#include "graph/print.h"

#include <cstdio>

namespace llm {
namespace {

std::string dims(const ValueInfo& v) {
  std::string text = "[";
  const int n = v.type.shape.n_dims();
  for (int i = 0; i < n; ++i) {
    if (i) text += ", ";
    if (i == n - 1 && v.rows == RowSpace::Tokens) {
      text += "tokens";
    } else if (i == n - 1 && v.rows == RowSpace::Outputs) {
      text += "outputs";
    } else {
      text += std::to_string(v.type.shape[i]);
    }
  }
  return text + "]";
}

std::string type_text(const ValueInfo& v) {
  if (v.kind == ValueKind::Recurrent) return "state " + to_string(v.recurrent.shape);
  if (v.kind != ValueKind::Cache) return std::string(name(v.type.dtype)) + " " + dims(v);
  const auto side = [&](int head_dim) {
    return "[" + std::to_string(head_dim) + ", " + std::to_string(v.cache.kv_heads) + ", positions]";
  };
  if (v.cache.keys_alone())
    return std::string(name(v.cache.part)) + " k " + side(v.cache.head_dim_k) +
           (v.cache.stride > 1 ? " stride " + std::to_string(v.cache.stride) : "");
  return "cache k " + side(v.cache.head_dim_k) + " v " + side(v.cache.head_dim_v) +
         (v.cache.access == CacheType::Access::Selected ? " selected" : "");
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string to_text(const Graph& g) {
  char head[64];
  std::snprintf(head, sizeof head, "graph %016llx", static_cast<unsigned long long>(g.hash()));
  std::string text = std::string(head) + ", bucket of " + std::to_string(g.bucket().tokens) + " tokens\n";
  for (const Node& n : g.nodes()) {
    for (std::size_t i = 0; i < n.out.size(); ++i) {
      text += (i ? ", " : "") + g.info(n.out[i]).name + " : " + type_text(g.info(n.out[i]));
    }
    text += " = " + std::string(name(n.op)) + "(";
    for (std::size_t i = 0; i < n.in.size(); ++i) {
      const ValueInfo& v = g.info(n.in[i]);
      text += (i ? ", " : "") + v.name;
      if (v.kind == ValueKind::Weight) text += " " + std::string(name(v.type.dtype));
    }
    text += ")";
    if (const std::string a = attributes(n.op); !a.empty()) text += " " + a;
    text += "\n";
  }
  for (std::uint32_t v : g.outputs()) text += "output " + g.info(v).name + "\n";
  return text;
}

std::string to_dot(const Graph& g) {
  std::string text = "digraph model {\n  node [shape=box, fontname=\"monospace\"];\n";
  std::vector<int> producer(g.values().size(), -1);
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    const Node& n = g.nodes()[i];
    const std::string id = "n" + std::to_string(i);
    std::string label = std::string(name(n.op)) + "\\n" + (n.out.empty() ? "" : g.info(n.out[0]).name);
    text += "  " + id + " [label=\"" + label + "\"];\n";
    for (std::uint32_t v : n.in) {
      const ValueInfo& info = g.info(v);
      if (producer[v] >= 0) {
        text += "  n" + std::to_string(producer[v]) + " -> " + id + " [label=" + quoted(type_text(info)) + "];\n";
      } else if (info.kind == ValueKind::Weight) {
        text += "  " + quoted(info.name) + " [shape=ellipse]; " + quoted(info.name) + " -> " + id + ";\n";
      } else {
        text += "  " + quoted(info.name) + " [shape=plaintext]; " + quoted(info.name) + " -> " + id + ";\n";
      }
    }
    for (std::uint32_t v : n.out) producer[v] = static_cast<int>(i);
  }
  return text + "}\n";
}

}  // namespace llm
