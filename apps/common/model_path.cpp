#include "common/model_path.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "common/folder.h"
#include "common/hub_cache.h"
#include "common/messages.h"
#include "common/run_files.h"
#include "common/settings.h"

namespace llm::app {
namespace {

namespace fs = std::filesystem;

/// Of a model's two names the one on the command line counts before one that is set elsewhere.
void choose_name(ModelPlace& place) {
  if (place.path.empty() || place.hub_name.empty()) return;
  const bool path_elsewhere = !settings_named_in("--model").empty(),
             hub_elsewhere = !settings_named_in("--hf-repo").empty();
  if (path_elsewhere == hub_elsewhere)
    throw Error(ErrorKind::Usage, "--model and --hf-repo both name a model: give one of them");
  if (path_elsewhere) {
    place.path.clear();
  } else {
    place.hub_name.clear();
    place.hub_file.clear();
  }
}

void resolve(ModelPlace& place) {
  choose_name(place);
  if (place.hub_name.empty()) {
    if (!place.hub_file.empty()) throw Error(ErrorKind::Usage, "--hf-file needs --hf-repo USER/REPO (-hf)");
    place.path = model_file(place.path);
    return;
  }
  if (!place.path.empty()) throw Error(ErrorKind::Usage, "--model and --hf-repo both name a model: give one of them");
  place.path = find_in_caches(place.hub_name, place.hub_file);
  will_read("-hf", place.path);
  say("model: " + escaped(place.path, 4096));
}

}  // namespace

std::string model_file(const std::string& path) {
  std::error_code none;
  if (!fs::is_directory(path, none)) return path;
  std::vector<std::string> models;
  std::error_code failure;
  for (const fs::path& entry : list_folder(path, failure)) {
    if (names_model(entry.filename().string())) models.push_back(entry.string());
  }
  if (failure)
    throw Error(ErrorKind::Model, ErrorParts{.file = path, .problem = "cannot be listed: " + failure.message()});
  if (models.empty())
    throw Error(ErrorKind::Model, ErrorParts{.file = path, .problem = "is a folder without a model's .gguf file"});
  std::sort(models.begin(), models.end());
  if (models.size() > 1) {
    constexpr std::size_t kNamed = 8;
    std::string names;
    for (std::size_t i = 0; i < std::min(kNamed, models.size()); ++i)
      names += (i == 0 ? "" : ", ") + escaped(fs::path(models[i]).filename().string(), 200);
    if (models.size() > kNamed) names += " and " + std::to_string(models.size() - kNamed) + " more";
    throw Error(ErrorKind::Usage, ErrorParts{.file = path,
                                             .problem = "is a folder with " + std::to_string(models.size()) +
                                                        " models, name one of them: " + names});
  }
  verbose("model: " + escaped(models.front(), 4096));
  return models.front();
}

void add_model_place_options(Command& cli, ModelPlace& place) {
  cli.add_option("-m,--model", place.path, "GGUF file; of a split model, any part; or a folder with one model")
      ->type_name("MODEL")
      ->take_last();
  cli.add_option(
         "--hf-repo", place.hub_name,
         "a model by its name on Hugging Face, from local caches alone; without QUANT Q4_K_M, Q8_0 or the first")
      ->option_text("USER/REPO[:QUANT]")
      ->take_last();
  cli.add_option("--hf-file", place.hub_file, "the file of that repository, instead of the choice by QUANT")
      ->option_text("NAME")
      ->take_last();
  cli.add_flag_callback(
      "--offline", [] {}, "accepted: nothing is ever fetched");
  cli.final_callback([&cli, &place] {
    const bool command = cli.has_parsed_subcommand();  // which was given and needs no model
    if (!place.path.empty() || !place.hub_name.empty()) return resolve(place);
    if (!command && place.needed()) throw Error(ErrorKind::Usage, "no model: give one with --model FILE (-m)");
  });
}

}  // namespace llm::app
