#include "text/jinja/print.h"

#include <algorithm>
#include <cstdio>

#include "text/jinja/interpreter.h"
#include "text/jinja/loop.h"
#include "text/jinja/numbers.h"
#include "text/jinja/unicode.h"

namespace llm::jinja {
namespace {

std::string code_escape(std::int32_t code) {
  char buffer[16];
  const char* format = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(code));
  return buffer;
}

/// Characters as repr() writes them; `quote` is escaped.
void append_escaped(const Str& s, char quote, Str& out) {
  std::size_t at = 0;
  std::string text;
  for (const Run& run : s.runs()) {
    text.clear();
    while (at < run.end) {
      const Character c = character_at(s.view(), at);
      if (c.code == '\\' || c.code == quote) text += '\\';
      if (c.code == '\n') {
        text += "\\n";
      } else if (c.code == '\r') {
        text += "\\r";
      } else if (c.code == '\t') {
        text += "\\t";
      } else if (c.code >= 0 && !is_printable(c.code)) {
        text += code_escape(c.code);
      } else {
        text += s.view().substr(at, c.length);
      }
      at += c.length;
    }
    out.append(text, run.origin);
  }
}

class Printer {
 public:
  Printer(Runtime& rt, Str& out) : rt_(rt), out_(out) {}

  /// `around`: where the signs between values count as coming from.
  void repr(const Value& v, Origin around) {
    rt_.limit_string(out_);
    const DepthGuard guard(rt_, depth_);
    switch (v.kind()) {
      case Kind::String:
        return quoted(v.as_string(), around);
      case Kind::List:
      case Kind::Tuple:
        return sequence(v);
      case Kind::Dict:
        return dict(v.as<DictObject>(), v.origin());
      case Kind::View:
        return view(v);
      case Kind::Namespace:
        return namespace_(v);
      case Kind::Missing:
      case Kind::Undefined:
        return out_.append("Undefined", around);
      default:
        out_.append(scalar(v), v.origin());
    }
  }

  std::string scalar(const Value& v) {
    switch (v.kind()) {
      case Kind::None:
        return "None";
      case Kind::Bool:
        return v.as_bool() ? "True" : "False";
      case Kind::Int:
      case Kind::BigInt:
        return integer_text(v);
      case Kind::Float:
        return float_text(v.as_float());
      case Kind::Range: {
        const auto& r = v.as<RangeObject>();
        std::string text = "range(" + std::to_string(r.start) + ", " + std::to_string(r.stop);
        if (r.step != 1) text += ", " + std::to_string(r.step);
        return text + ")";
      }
      case Kind::Loop: {
        auto& loop = v.as<LoopObject>();
        return "<LoopContext " + std::to_string(loop.index0 + 1) + "/" + std::to_string(loop.count(rt_)) + ">";
      }
      case Kind::Macro:
        return "<Macro " + macro_name(v.as<MacroObject>()) + ">";
      case Kind::Iterator:
        return "<generator object>";
      case Kind::Function:
        return "<function " + std::string(v.as<FunctionObject>().name) + ">";
      case Kind::Method:
        return "<method " + std::string(v.as<MethodObject>().name) + ">";
      default:
        return "<" + std::string(type_name(v)) + " object>";
    }
  }

 private:
  void quoted(const Str& s, Origin around) {
    const bool single = s.view().find('\'') != std::string_view::npos,
               twofold = s.view().find('"') != std::string_view::npos;
    const char quote = single && !twofold ? '"' : '\'';
    if (s.markup()) out_.append("Markup(", around);
    out_.append({&quote, 1}, around);
    append_escaped(s, quote, out_);
    out_.append({&quote, 1}, around);
    if (s.markup()) out_.append(")", around);
  }

  void items(const std::vector<Value>& values, Origin around) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_.append(", ", around);
      repr(values[i], around);
    }
  }

  void sequence(const Value& v) {
    const bool tuple = v.is(Kind::Tuple);
    out_.append(tuple ? "(" : "[", v.origin());
    items(v.items(), v.origin());
    if (tuple && v.items().size() == 1) out_.append(",", v.origin());
    out_.append(tuple ? ")" : "]", v.origin());
  }

  void dict(const DictObject& d, Origin around) {
    out_.append("{", around);
    bool first = true;
    for (const auto& [key, value] : d.entries()) {
      if (!first) out_.append(", ", around);
      first = false;
      repr(key, around);
      out_.append(": ", around);
      repr(value, around);
    }
    out_.append("}", around);
  }

  void view(const Value& v) {
    out_.append(std::string(type_name(v)) + "([", v.origin());
    std::vector<Value> values;
    const auto& view = v.as<ViewObject>();
    for (std::size_t i = 0; i < view.dict->entries().size(); ++i) values.push_back(view.at(i));
    items(values, v.origin());
    out_.append("])", v.origin());
  }

  /// A namespace may hold itself: Python shows an inner one as {...}.
  void namespace_(const Value& v) {
    const Object* object = v.object().get();
    out_.append("<Namespace ", Origin::Template);
    if (std::find(open_.begin(), open_.end(), object) != open_.end()) {
      out_.append("{...}", Origin::Template);
    } else {
      open_.push_back(object);
      dict(v.as<NamespaceObject>().attributes, Origin::Template);
      open_.pop_back();
    }
    out_.append(">", Origin::Template);
  }

  Runtime& rt_;
  Str& out_;
  std::vector<const Object*> open_;
  int depth_ = 0;
};

}  // namespace

void append_str(Runtime& rt, const Value& v, Str& out) {
  if (v.is_string()) return out.append(v.as_string());
  if (!v.is_undefined()) Printer(rt, out).repr(v, v.origin());
}

Str str(Runtime& rt, const Value& v) {
  if (v.is_string()) return v.as_string();
  Str out;
  append_str(rt, v, out);
  rt.require_string(out.size());
  return out;
}

Str repr(Runtime& rt, const Value& v) {
  Str out;
  Printer(rt, out).repr(v, v.is_string() ? v.as_string().origin() : v.origin());
  rt.require_string(out.size());
  return out;
}

Str ascii(Runtime& rt, const Value& v) {
  const Str text = repr(rt, v);
  Str out;
  std::size_t at = 0;
  for (const Run& run : text.runs()) {
    std::string piece;
    while (at < run.end) {
      const Character c = character_at(text.view(), at);
      piece += c.code < 0x80 ? std::string(text.view().substr(at, c.length)) : code_escape(c.code);
      at += c.length;
    }
    out.append(piece, run.origin);
  }
  rt.require_string(out.size());
  return out;
}

std::string short_repr(const Value& v) {
  if (v.is_string()) return "'" + escaped(v.as_string().view(), 60) + "'";
  if (v.is(Kind::Int)) return std::to_string(v.as_int());
  if (v.is_none()) return "None";
  return "of type " + std::string(type_name(v));
}

}  // namespace llm::jinja
