// What the command line says about a model in place of its file: --override-kv, and the options of the rotary
// embedding, which are keys of the model's family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "common/command.h"
#include "gguf/file.h"

namespace llm::app {

/// A value and the option that gave it.
template <class T>
struct Said {
  T value{};
  std::string option = {};
};

/// As llama.cpp has them. What is not given is the file's.
struct RopeChoice {
  std::optional<Said<std::string>> scaling;              ///< none, linear, yarn
  std::optional<Said<double>> factor;                    ///< of --rope-scale; 1 / that of --rope-freq-scale
  std::optional<Said<double>> base;                      ///< --rope-freq-base
  std::optional<Said<std::int64_t>> original_context;    ///< --yarn-orig-ctx
  std::optional<Said<double>> extrapolation, attention;  ///< --yarn-ext-factor, --yarn-attn-factor
  std::optional<Said<double>> beta_slow, beta_fast;

  bool given() const;
};

struct FileOverrides {
  std::vector<KeyOverride> keys;
  RopeChoice rope;

  /// Gives them to the file. A stretched or compressed context becomes the one that the model was trained for. Throws
  /// ErrorKind::Usage naming the option. Warns of options that change nothing.
  void apply(GgufFile&, Warnings&) const;
};

void add_override_options(Command&, FileOverrides&);

/// The items of "KEY=TYPE:VALUE,...". Throws ErrorKind::Usage.
std::vector<KeyOverride> parse_overrides(const std::string& text);

/// Warns of keys that loading the model did not look up, but for those that are read later.
void warn_of_unread(const Metadata&, Warnings&);

}  // namespace llm::app
