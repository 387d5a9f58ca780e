#include "common/accepted_options.h"

#include <string>
#include <string_view>

#include "base/error.h"
#include "common/command_line.h"
#include "common/reserved.h"

namespace llm::app {
namespace {

struct AcceptedFlag {
  const char *names, *meaning;
};
constexpr AcceptedFlag kFlags[] = {
    {"--no-repack", "weights always stay as they are in the file"},
    {"--swa-full", "the cache keeps all positions of all layers"},
    {"--no-host", "no weights stay in page-locked memory"},
};

/// `accepted`, and what llama.cpp takes beside it, are separated by spaces; `#` is any number.
struct AcceptedValue {
  const char *names, *type, *accepted, *refused, *meaning;
};
constexpr AcceptedValue kValues[] = {
    {"--flash-attn", "on|auto", "on auto 1 true enabled", "off 0 false disabled",
     "attention never writes its whole matrix"},
    {"--fit", "off", "off 0 false disabled", "on 1 true enabled",
     "no option is changed to fit a GPU's memory, but for -ngl auto"},
    {"--lazy-mode", "on|auto", "on auto 1 true enabled", "off 0 false disabled",
     "weights of a mapped file are read where they are needed"},
    {"--prio", "0", "0", "#", "threads have the priority that the program was given"},
    {"--poll", "50", "50", "#", "threads that wait for each other spin a while, then sleep"},
    {"--cpu-strict", "0", "0", "#", "threads may move among the processors that they are given"},
};

constexpr AcceptedValue kSwitches[] = {
    {"--repack", "0", "0", "1", "weights always stay as they are in the file"},
    {"--direct-io", "0", "0", "1", "the file is mapped, or read through the system's cache"},
    {"--embeddings", "0", "0", "1", "models are run for the text that they generate"},
};

bool is_refused(const AcceptedValue& v, const std::string& text) {
  if (const std::size_t comma = text.find(','); comma != std::string::npos)  // llama-bench's lists
    return is_refused(v, text.substr(0, comma)) || is_refused(v, text.substr(comma + 1));
  const bool number = !text.empty() && text.find_first_not_of("-0123456789") == std::string::npos;
  return has_name(v.refused, text) || (number && has_name(v.refused, "#"));
}

void add_value(Command& cli, const AcceptedValue& v) {
  const std::string names = v.names, name = names.substr(0, names.find(','));
  const auto accept = [&v, name](const std::string& text) {
    if (has_name(v.accepted, text)) return;
    if (is_refused(v, text)) {
      throw Error(ErrorKind::Usage, "option " + name + " " + escaped(text) + " " +
                                        reserved_because(name).value_or("is recognised, not supported yet"));
    }
    std::string words = v.type;
    if (const std::size_t bar = words.find('|'); bar != std::string::npos) words.replace(bar, 1, " or ");
    throw Error(ErrorKind::Usage, "option " + name + ": \"" + escaped(text) + "\" is not " + words);
  };
  cli.add_option_function<std::string>(names, accept, v.meaning)->type_name(v.type)->take_last();
}

}  // namespace

void add_accepted_switches(Command& cli) {
  for (const AcceptedValue& v : kSwitches) add_value(cli, v);
}

void add_accepted_flag(Command& cli, const std::string& names, const std::string& meaning) {
  cli.add_flag_callback(
      names, [] {}, meaning);
}

void add_accepted_options(Command& cli) {
  begin_group(cli, "Accepted, since it is so anyway");
  for (const AcceptedFlag& f : kFlags) add_accepted_flag(cli, f.names, f.meaning);
  for (const AcceptedValue& v : kValues) add_value(cli, v);
}

}  // namespace llm::app
