// The edges that every program shares: main's frame with its exit codes, the options of a model.
//
//   int main(int argc, char** argv) {
//     return llm::app::run("llm-xyz", argc, argv, [&] {
//       Command cli("What it does");
//       llm::app::ModelOptions model;
//       llm::app::add_model_options(cli, model);
//       llm::app::add_common_options(cli);
//       if (auto code = llm::app::parse(cli, argc, argv)) return *code;   // --help and --version were served
//       ...
//       return 0;
//     });
//   }
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/adapters.h"
#include "common/command_line.h"
#include "common/file_loading.h"
#include "common/model_path.h"
#include "common/overrides.h"
#include "common/placement.h"
#include "runtime/model.h"

namespace llm::app {

/// Runs `body` and turns whatever leaves it into one message on stderr and an exit code (ErrorKind's value; 141 for a
/// reader that closed our stdout; 70 for what should not happen). Before it: standard streams exist, SIGPIPE is
/// ignored.
int run(std::string_view program, int argc, char** argv, const std::function<int()>& body);

struct ModelOptions : ModelPlace {
  Adapters adapters;
  Placement placement;
  int threads = 0;         ///< 0: what the machine gives
  int prompt_threads = 0;  ///< 0: as many
  bool check_tensors = false;
  FileLoading loading;
  bool deterministic = false;
  bool f8 = false;
  bool predicts = false;  ///< LoadOptions::predicts
  FileOverrides overrides;
};
inline constexpr int kMaxThreads = 1024;
/// -t
void add_threads_option(Command&, int& threads);
/// -tb, --check-tensors, where the model runs, and what counts instead of the file's metadata.
void add_loading_options(Command&, ModelOptions&);
/// Which model, -t, and how it is loaded.
void add_model_options(Command&, ModelOptions&);

/// The file with its overrides.
GgufFile open_file(const ModelOptions&, Warnings&);

/// Chooses the backend, loads with progress on stderr and prints the warnings. What was chosen is backend().name().
std::unique_ptr<Model> load_model(const ModelOptions&, LoadOptions::Weights = LoadOptions::Weights::Load);

}  // namespace llm::app
