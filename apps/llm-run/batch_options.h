// What the command line says about batches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/command.h"

namespace llm::app {

struct BatchOptions {
  std::string input;   ///< "-" is stdin; empty: no batch
  std::string output;  ///< empty: stdout; of one answer too
  std::string format;  ///< of the input; empty: by the file's name
  std::optional<std::string> template_row;
  bool resume = false, retry_failed = false, overwrite = false;
  enum class Order : std::uint8_t { Done, Input } order = Order::Done;
  int parallel = 0;  ///< rows at once; 0: chosen
  std::size_t limit = 0;
  /// The batch ends when more rows failed: a number of rows, or a share of all of them.
  struct MaxFailures {
    double value = 0;
    bool percent = false;
  };
  std::optional<MaxFailures> max_failures;

  bool wanted() const { return !input.empty(); }
};

void add_batch_options(Command&, BatchOptions&);
/// Throws ErrorKind::Usage for options that do not go together.
void check_batch_options(const BatchOptions&);

}  // namespace llm::app
