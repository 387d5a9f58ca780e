#include "context_options.h"

#include <string>

#include "base/error.h"
#include "common/cache_type.h"
#include "common/numbers.h"

namespace llm::app {
namespace {

Overflow overflow(const std::string& text) {
  if (text == "error") return Overflow::Error;
  if (text == "shift") return Overflow::Shift;
  if (text == "truncate") return Overflow::Truncate;
  throw Error(ErrorKind::Usage, "option --on-overflow: \"" + escaped(text) + "\" is not error, shift or truncate");
}

}  // namespace

void add_context_options(Command& cli, ContextOptions& o) {
  const auto size = [&o](const std::string& text) { o.size = parse_integer("-c", text, 0, kMaxInt32); };
  cli.add_option_function<std::string>("-c,--ctx-size", size,
                                       "context in tokens; 0: the model's (default: grows as needed, up to what fits)")
      ->type_name("N")
      ->take_last();
  add_integer(cli, "--keep", o.keep, -1, kMaxInt32,
              "tokens at the prompt's beginning that --on-overflow never drops (default 0; -1: all)");
  cli.add_option_function<std::string>(
         "--on-overflow", [&o](const std::string& text) { o.overflow = overflow(text); },
         "when the context is full (default error); error: a longer prompt is refused, an answer ends where the "
         "context "
         "does; shift: the answer goes on without the older half of the text; truncate: the prompt loses its beginning")
      ->type_name("error|shift|truncate")
      ->take_last()
      ->trigger_on_parse();  // of this and the next two the last one counts
  cli.add_flag_callback(
         "--context-shift", [&o] { o.overflow = Overflow::Shift; }, "as --on-overflow shift")
      ->trigger_on_parse();
  cli.add_flag_callback(
         "--no-context-shift", [&o] { o.overflow = Overflow::Error; }, "as --on-overflow error")
      ->trigger_on_parse();
  const std::string most =
      "tokens of a step (default and at most 512, on a GPU 2,048); of -b and -ub the smaller counts";
  add_integer(cli, "--batch-size", o.batch, 1, kMaxInt32, "most " + most);
  add_integer(cli, "--ubatch-size", o.ubatch, 1, kMaxInt32, "most " + most + "; fewer take less memory and longer");
  add_cache_types(cli, o.cache.k, o.cache.v);
}

}  // namespace llm::app
