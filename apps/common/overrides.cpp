#include "common/overrides.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/nearest.h"
#include "common/numbers.h"

namespace llm::app {
namespace {

constexpr std::string_view kOption = "--override-kv";

[[noreturn]] void refuse(std::string_view option, std::string_view text, const std::string& why) {
  throw Error(ErrorKind::Usage, ErrorParts{.file = {},
                                           .subject = "option " + std::string(option),
                                           .problem = "\"" + escaped(text) + "\" " + why});
}

/// Separated by commas; an item in double quotes may hold commas, and quotes written twice.
std::vector<std::string> items(std::string_view text) {
  std::vector<std::string> list(1);
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool quote = text[i] == '"' && (quoted || list.back().empty());
    if (quote && quoted && i + 1 < text.size() && text[i + 1] == '"') {
      list.back() += text[++i];
    } else if (quote) {
      quoted = !quoted;
    } else if (text[i] == ',' && !quoted) {
      list.emplace_back();
    } else {
      list.back() += text[i];
    }
  }
  if (quoted) refuse(kOption, text, "ends inside of quotes");
  return list;
}

KeyOverride parse_override(const std::string& item) {
  const std::size_t equals = item.find('='), colon = item.find(':', equals);
  if (equals == 0 || equals == std::string::npos || colon == std::string::npos)
    refuse(kOption, item, "is not KEY=TYPE:VALUE");
  const std::string key = item.substr(0, equals), type = item.substr(equals + 1, colon - equals - 1),
                    value = item.substr(colon + 1);
  const std::string what = std::string(kOption) + " " + escaped(key);
  KeyOverride o{.key = key, .value = {}, .origin = std::string(kOption)};
  if (type == "int") {
    o.value =
        parse_integer(what, value, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  } else if (type == "float") {
    constexpr double kLargest = std::numeric_limits<float>::max();
    o.value = parse_real(what, value, -kLargest, kLargest);
  } else if (type == "bool") {
    if (value != "true" && value != "false") refuse(what, value, "is not true or false");
    o.value = value == "true";
  } else if (type == "str") {
    o.value = value;
  } else {
    refuse(what, type, "is not a type: int, float, bool or str");
  }
  return o;
}

// --- the rotary embedding ---

void add_rope_options(Command& cli, RopeChoice& rope) {
  const auto option = [&cli](const std::string& name, const std::string& type, const std::string& help, auto set) {
    cli.add_option_function<std::string>(name, set, help)->type_name(type)->take_last();
  };
  const auto real = [&](const std::string& name, std::optional<Said<double>>& target, double min,
                        const std::string& help) {
    const auto set = [&target, name, min](const std::string& text) {
      target = {parse_real(name, text, min, std::numeric_limits<float>::max()), name};
    };
    option(name, "X", help, set);
  };
  const auto scaling = [&rope](const std::string& text) {
    if (text != "none" && text != "linear" && text != "yarn")
      refuse("--rope-scaling", text, "is not none, linear or yarn");
    rope.scaling = {text, "--rope-scaling"};
  };
  option("--rope-scaling", "none|linear|yarn",
         "how positions beyond the trained context are reached (default: the file's)", scaling);
  // Both set one factor, and the last one counts: they act as they are parsed.
  const auto factor = [&](const std::string& name, const std::string& help, auto factor_of) {
    const auto set = [&rope, name, factor_of](const std::string& text) {
      const double value = parse_real(name, text, 0, std::numeric_limits<float>::max());
      if (value == 0) {
        rope.factor.reset();  // the file's, as in llama.cpp
      } else {
        rope.factor = {factor_of(value), name};
      }
    };
    cli.add_option_function<std::string>(name, set, help)->type_name("X")->take_last()->trigger_on_parse();
  };
  factor("--rope-scale", "the context is X times as long as the model was trained for; 0: the file's",
         [](double x) { return x; });
  factor("--rope-freq-scale", "the same as its reciprocal: 0.25 is --rope-scale 4", [](double x) { return 1 / x; });
  real("--rope-freq-base", rope.base, 0, "base of the rotary frequencies; 0: the file's");
  const auto original = [&rope](const std::string& text) {
    rope.original_context = {parse_integer("--yarn-orig-ctx", text, 0, kMaxInt32), "--yarn-orig-ctx"};
  };
  option("--yarn-orig-ctx", "N", "context that the model was trained with before yarn; 0: the file's", original);
  real("--yarn-ext-factor", rope.extrapolation, -1,
       "how far yarn keeps the fast angles; 0: not at all, as linear; below 0: 1 with yarn, else 0 (default)");
  real("--yarn-attn-factor", rope.attention, -1,
       "factor of the rotated keys and queries where yarn does not mix angles, as in llama.cpp; below 0: 1 (default)");
  real("--yarn-beta-slow", rope.beta_slow, -1,
       "turns over the trained context below which yarn divides angles (default 1)");
  real("--yarn-beta-fast", rope.beta_fast, -1, "turns above which yarn keeps them (default 32)");
}

/// The file's keys under "<architecture>.", and the overrides that a choice comes to.
class RopeKeys {
 public:
  RopeKeys(const Metadata& file, const RopeChoice& choice, Warnings& warnings)
      : file_(file), choice_(choice), warnings_(warnings), arch_(file.get<std::string_view>("general.architecture")) {}

  std::vector<KeyOverride> overrides() {
    type_ = choice_.scaling ? choice_.scaling->value : std::string(text("rope.scaling.type", "linear"));
    if (choice_.scaling) set("rope.scaling.type", *choice_.scaling);
    if (choice_.base && choice_.base->value > 0) set("rope.freq_base", *choice_.base);
    if (choice_.factor) set_factor();
    set_yarn();
    set_context();
    return std::move(list_);
  }

 private:
  template <class T>
  void set(std::string_view key, const Said<T>& said) {
    list_.push_back({.key = full(key), .value = said.value, .origin = said.option});
  }
  std::string full(std::string_view key) const { return arch_ + "." + std::string(key); }
  std::string_view text(std::string_view key, std::string_view otherwise) const {
    return file_.get_or<std::string_view>(full(key), otherwise);
  }
  double number(std::string_view key, double otherwise) const { return file_.get_or<double>(full(key), otherwise); }
  std::int64_t integer(std::string_view key) const { return file_.get_or<std::int64_t>(full(key), 0); }
  void warn(const std::string& option, const std::string& why) {
    warnings_.push_back({"no-effect", option + " has no effect: " + why});
  }

  /// What the file divides positions by; 0 and nothing: 1.
  double factor_of_file() const {
    const double factor = number("rope.scaling.factor", number("rope.scale_linear", 1));
    return factor == 0 ? 1 : factor;
  }

  void set_factor() {
    set("rope.scaling.factor", *choice_.factor);
    if (type_ == "none") warn(choice_.factor->option, "the scaling is none");
  }

  void set_yarn() {
    if (choice_.extrapolation) set("rope.scaling.yarn_ext_factor", *choice_.extrapolation);
    const double said =
        choice_.extrapolation ? choice_.extrapolation->value : number("rope.scaling.yarn_ext_factor", -1);
    mixes_ = type_ != "none" && (said < 0 ? type_ == "yarn" : said > 0);
    if (choice_.attention && choice_.attention->value >= 0) {
      if (mixes_) {
        warn(choice_.attention->option, "where yarn mixes angles, the factor follows from the scale, as in llama.cpp");
      } else {
        set("rope.scaling.yarn_attn_factor", *choice_.attention);
      }
    }
    const auto beta = [&](std::string_view key, const std::optional<Said<double>>& choice) {
      if (!choice || choice->value < 0) return;
      if (mixes_) return set(key, *choice);
      warn(choice->option, "nothing is mixed without yarn");
    };
    beta("rope.scaling.yarn_beta_slow", choice_.beta_slow);
    beta("rope.scaling.yarn_beta_fast", choice_.beta_fast);
    if (choice_.original_context && choice_.original_context->value > 0 && !mixes_)
      warn(choice_.original_context->option, "nothing is mixed without yarn");
  }

  /// Said, and of an effect.
  const Said<std::int64_t>* original_context() const {
    return mixes_ && choice_.original_context && choice_.original_context->value > 0 ? &*choice_.original_context
                                                                                     : nullptr;
  }

  /// The context before any scaling: what yarn goes by. Where the file does not say, yarn takes its context as it is,
  /// as llama.cpp does; of a file with another scaling that is the scaled one.
  std::int64_t unscaled() const {
    if (const auto* said = original_context()) return said->value;
    if (const std::int64_t original = integer("rope.scaling.original_context_length"); original > 0) return original;
    const std::int64_t context = integer("context_length");
    if (mixes_ || text("rope.scaling.type", "linear") != "linear") return context;
    return std::llround(static_cast<double>(context) / factor_of_file());
  }

  /// The file's context_length is that after its own scaling.
  void set_context() {
    const Said<double>* by = choice_.factor ? &*choice_.factor : nullptr;
    if (!by && !choice_.scaling && original_context() == nullptr) return;
    const std::string& option = by                ? by->option
                                : choice_.scaling ? choice_.scaling->option
                                                  : original_context()->option;
    const double factor = type_ == "none" ? 1 : by ? by->value : factor_of_file();
    const std::int64_t original = unscaled();
    const double context = std::clamp(std::round(static_cast<double>(original) * factor), 1.0,
                                      static_cast<double>(std::numeric_limits<std::uint32_t>::max()));
    if (mixes_) set("rope.scaling.original_context_length", Said<std::int64_t>{original, option});
    set("context_length", Said<std::int64_t>{static_cast<std::int64_t>(context), option});
  }

  const Metadata& file_;
  const RopeChoice& choice_;
  Warnings& warnings_;
  std::string arch_;
  std::string type_;
  bool mixes_ = false;  ///< some angles are kept, as yarn does
  std::vector<KeyOverride> list_;
};

/// Keys that a run reads after the model was loaded, or only where something asks for them.
bool is_read_later(std::string_view key) {
  constexpr std::array<std::string_view, 4> kNames{"general.name", "general.basename", "general.license",
                                                   "tokenizer.chat_templates"};
  constexpr std::array<std::string_view, 2> kFamilies{"general.sampling.", "tokenizer.chat_template"};
  return std::find(kNames.begin(), kNames.end(), key) != kNames.end() ||
         std::any_of(kFamilies.begin(), kFamilies.end(), [&](std::string_view f) { return key.starts_with(f); });
}

}  // namespace

bool RopeChoice::given() const {
  return scaling || factor || base || original_context || extrapolation || attention || beta_slow || beta_fast;
}

std::vector<KeyOverride> parse_overrides(const std::string& text) {
  std::vector<KeyOverride> list;
  for (const std::string& item : items(text)) list.push_back(parse_override(item));
  return list;
}

void add_override_options(Command& cli, FileOverrides& o) {
  const auto add = [&o](const std::vector<std::string>& given) {
    o.keys.clear();
    for (const std::string& text : given) {
      for (KeyOverride& one : parse_overrides(text)) o.keys.push_back(std::move(one));
    }
  };
  cli.add_option_function<std::vector<std::string>>(
         std::string(kOption), add,
         "values that count instead of the file's metadata; TYPE is int, float, bool or str; a list, or repeatable")
      ->type_name("KEY=TYPE:VALUE")
      ->one_value();
  add_rope_options(cli, o.rope);
}

void FileOverrides::apply(GgufFile& file, Warnings& warnings) const {
  file.override_keys(keys);
  if (rope.given()) file.override_keys(RopeKeys(file.metadata(), rope, warnings).overrides());
}

void warn_of_unread(const Metadata& metadata, Warnings& warnings) {
  std::vector<std::string> names;
  for (const Metadata::Entry& e : metadata.entries()) {
    if (!e.by) names.emplace_back(e.key);
  }
  for (const KeyOverride& o : metadata.unread_overrides()) {
    if (is_read_later(o.key)) continue;
    const std::string nearest = nearest_name(o.key, names);
    warnings.push_back({"unread-key", o.origin + ": nothing reads key \"" + escaped(o.key) + "\"" +
                                          (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?")});
  }
}

}  // namespace llm::app
