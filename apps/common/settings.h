// Options that are set elsewhere than on the command line: a configuration file, llama.cpp's environment variables, our
// own. Each counts before those named earlier here, and the command line before all. A list is taken from one place.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "common/command.h"
#include "common/option_table.h"

namespace llm::app {

void add_config_option(Command&);

/// Gives the options what is set elsewhere, but for those in `given`. `config` is the file of --config; empty: that of
/// LLM_RUN_CONFIG, if there is one. The file that was read, if any. Throws ErrorKind::Usage naming the variable, or
/// file and line. A variable that cannot have its effect is mentioned.
std::string apply_settings(CLI::App&, const Page&, const std::set<const CLI::Option*>& given,
                           const std::string& config);

/// Whether the option takes no value.
bool is_flag(const CLI::Option&);
/// What a flag may be set to: true, on, enabled, yes, 1 and their opposites, in any case; nothing for another word.
std::optional<bool> truth(std::string text);
/// "--no-x" of the flag --x, "--x" of --no-x; empty if there is no such option.
std::string opposite(const CLI::App&, const CLI::Option& flag);

/// With -v: what came from where.
void say_settings();

/// Whether this option, "--temp", has its value from there.
bool is_set_elsewhere(const std::string& option);
/// For an error's message that names options: which of them were set elsewhere, in words that follow it; or nothing.
std::string settings_named_in(const std::string& message);

}  // namespace llm::app
