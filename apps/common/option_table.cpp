#include "common/option_table.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdint>

#include "common/numbers.h"

namespace llm::app {
namespace {

constexpr ExitCode kExitCodes[] = {
    {0, "done"},
    {1, "a failure that is none of the others"},
    {2, "usage: an unknown, contradicting or unsupported option, an unreadable prompt"},
    {3, "the model: missing, damaged or unsupported"},
    {4, "does not fit in memory"},
    {5, "the prompt does not fit the context"},
    {6, "the template, grammar, schema, regular expression or choice cannot be used"},
    {7, "the batch is done, some of its rows failed"},
    {8, "reading input or writing output failed"},
    {9, "the backend or instruction set asked for is not available here"},
    {10, "a warning was given, and --strict"},
    {11, "NaN or infinite logits; values that cannot be quantised"},
    {70, "a bug of ours"},
    {124, "--max-time was reached"},
    {129, "the terminal was closed"},
    {130, "interrupted by Ctrl-C"},
    {141, "the reader of stdout went away"},
    {143, "ended by SIGTERM"},
};

constexpr Alias kCommonAliases[] = {
    {"-lm", "--load-mode"}, {"-lv", "--verbosity"},       {"-Cr", "--cpu-range"},     {"-hf", "--hf-repo"},
    {"-hfr", "--hf-repo"},  {"-hff", "--hf-file"},        {"-tb", "--threads-batch"}, {"-ngl", "--gpu-layers"},
    {"-cmoe", "--cpu-moe"}, {"-ncmoe", "--n-cpu-moe"},    {"-ncffn", "--n-cpu-ffn"},  {"-ot", "--override-tensor"},
    {"-dev", "--device"},   {"-nkvo", "--no-kv-offload"}, {"-sm", "--split-mode"},    {"-ts", "--tensor-split"},
    {"-mg", "--main-gpu"},  {"-cb", "--cont-batching"},   {"-nr", "--no-repack"},     {"-fa", "--flash-attn"},
    {"-fit", "--fit"},      {"-lzm", "--lazy-mode"},      {"-kvo", "--kv-offload"}};

std::vector<std::string> names_of(const CLI::Option& option, std::span<const Alias> aliases) {
  std::vector<std::string> names;
  for (const std::string& s : option.get_snames()) names.push_back("-" + s);
  for (const std::span<const Alias> list : {aliases, std::span<const Alias>(kCommonAliases)}) {
    for (const Alias& a : list) {
      if (option.check_name(std::string(a.meant))) names.emplace_back(a.given);
    }
  }
  for (const std::string& l : option.get_lnames()) names.push_back("--" + l);
  return names;
}

bool is_word(const std::string& part) {
  return !part.empty() && std::none_of(part.begin(), part.end(), [](unsigned char c) {
    return std::isupper(c) != 0 || (std::isalnum(c) == 0 && c != '_' && c != '-');
  });
}

/// Takes the part of `text` from `mark` up to the next empty line.
std::string take_section(std::string& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string::npos) return {};
  const std::size_t end = std::min(text.find("\n\n", at + mark.size()), text.size());
  const std::string section = text.substr(at + mark.size(), end - at - mark.size());
  text.erase(at, end - at);
  return section;
}

}  // namespace

OptionRow option_row(const Command& command, const CLI::Option& option, std::span<const Alias> aliases) {
  OptionRow r{.option = &option, .names = names_of(option, aliases)};
  const CLI::App& app = command.parser();
  r.required = option.get_required();
  r.asks_for_help = &option == app.get_help_ptr() || &option == app.get_help_all_ptr();
  if (option.get_items_expected_min() > 0) {
    r.value = option.get_option_text().empty() ? option.get_type_name() : option.get_option_text();
  }
  for (std::size_t begin = 0; begin < r.value.size();) {
    const std::size_t end = std::min(r.value.find_first_of("| ", begin), r.value.size());  // "MODEL OUT": arguments
    const std::string part = r.value.substr(begin, end - begin);
    if (is_word(part)) r.words.push_back(part);
    if (part == "FILE") r.takes_file = true;
    if (part == "MODEL") r.takes_model = true;
    begin = end + 1;
  }
  return r;
}

bool asks_for_page(const CLI::App& app, const CLI::Option& option) {
  constexpr const char* kPages[] = {"--help",       "--help-all", "--version", "--list-devices", "--completion-bash",
                                    "--completion", "--man-page"};
  return std::any_of(std::begin(kPages), std::end(kPages),
                     [&](const char* name) { return app.get_option_no_throw(name) == &option; });
}

std::vector<OptionGroup> option_groups(const Command& command, std::span<const Alias> aliases) {
  std::vector<OptionGroup> groups;
  for (const std::string& name : command.parser().get_groups()) {
    if (name.empty()) continue;
    OptionGroup group{.name = name, .rows = {}};
    for (const CLI::Option* option : command.parser().get_options()) {
      if (option->get_group() == name && option->nonpositional())
        group.rows.push_back(option_row(command, *option, aliases));
    }
    if (!group.rows.empty()) groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<OptionRow> positionals(const Command& command) {
  std::vector<OptionRow> rows;
  for (const CLI::Option* option : command.parser().get_options()) {
    if (option->get_positional() && !option->nonpositional()) rows.push_back(option_row(command, *option, {}));
  }
  return rows;
}

std::string full_name(const Command& command) {
  return command.parent() == nullptr ? command.name() : full_name(*command.parent()) + " " + command.name();
}

Description description(const Command& command) {
  std::string text = command.parser().get_description();
  Description d;
  d.examples = take_section(text, "\n\nExamples:\n");
  const std::size_t end = text.find("\n\n");
  d.intro = text.substr(0, end);
  if (end != std::string::npos) d.sections = text.substr(end + 2);
  return d;
}

std::string_view meant_by(std::string_view name, std::span<const Alias> aliases) {
  for (const std::span<const Alias> list : {aliases, std::span<const Alias>(kCommonAliases)}) {
    const auto alias = std::find_if(list.begin(), list.end(), [name](const Alias& a) { return a.given == name; });
    if (alias != list.end()) return alias->meant;
  }
  return name;
}

std::string numbers_text() { return "Numbers take the suffixes " + suffixes_text() + "."; }

std::span<const ExitCode> exit_codes() { return kExitCodes; }

std::string variable_of(std::string_view long_name) {
  std::string name = "LLM_RUN_";
  for (const char c : long_name.substr(long_name.find_first_not_of('-'))) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

const std::string& OptionRow::meaning() const { return option->get_description(); }

}  // namespace llm::app
