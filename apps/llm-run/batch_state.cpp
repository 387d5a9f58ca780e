#include "batch_state.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/output_file.h"
#include "base/sha256.h"
#include "base/shortest.h"
#include "common/input.h"
#include "common/numbers.h"
#include "nesting.h"
#include "runtime/figures.h"
#include "runtime/sampler_options.h"

namespace llm::app {
namespace {

constexpr int kFormat = 2;

/// As it comes back from the file: bytes that are no UTF-8 are replaced.
std::string text_of(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }
Json as_stored(const Json& json) { return Json::parse(text_of(json)); }

/// get<std::uint64_t>() would take -1 and 1.5 as well.
std::uint64_t count_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number_unsigned()) throw Error(ErrorKind::Usage, "");
  return value.get<std::uint64_t>();
}

/// Whether a model is described in a way that model_text() can read.
bool is_description(const Json& model) {
  if (!model.is_object()) return false;
  for (const auto& [key, value] : model.items()) {
    const bool list = key == "adapters" || key == "overrides";
    if ((key == "name" && !value.is_string()) || (key == "bytes" && !value.is_number_unsigned()) ||
        (list && !value.is_array()))
      return false;
    if (list && !std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_string(); })) return false;
  }
  return true;
}

}  // namespace

std::string digest_of(std::string_view text) {
  Sha256 sha;
  sha.update(std::as_bytes(std::span(text)));
  return sha.digest().substr(0, 16);
}

std::string model_name(const Model& model) {
  return std::filesystem::path(model.file().metadata().file()).filename().string();
}

Json describe_model(const Model& model) {
  const Metadata& metadata = model.file().metadata();
  Json json{{"name", model_name(model)}, {"bytes", model.file().file_bytes()}, {"fingerprint", model.fingerprint()}};
  for (const LoraAdapter& adapter : model.adapters()) json["adapters"].push_back(adapter.title());
  for (const KeyOverride& o : metadata.overrides()) json["overrides"].push_back(to_string(o));
  return json;
}

bool is_same_model(Json then, Json today) {
  for (Json* model : {&then, &today})
    if (model->is_object()) model->erase("name");  // it may have moved, or be a link to the same
  return then == today;
}

std::string state_path(const std::string& results) { return link_target(results).string() + ".state"; }

std::optional<BatchState> read_state(const std::string& path) {
  if (!is_there(path)) return std::nullopt;
  const std::string text = read_input(path);
  try {
    const Json json = Json::parse(text, RefuseNesting{path});
    if (json.at("format") != kFormat || !json.at("options").is_object() || !is_description(json.at("model")) ||
        !json.value("time", Json(0)).is_number_integer())
      throw Error(ErrorKind::Usage, "");
    std::map<std::string, std::string> digests;
    for (const Json& row : json.value("digests", Json::array())) {
      const auto text = row.get<std::string>();
      digests.emplace(text.substr(std::min(text.find(' ') + 1, text.size())), text.substr(0, text.find(' ')));
    }
    return BatchState{.options = json.at("options"),
                      .seed = count_at(json, "seed"),
                      .time = json.value("time", std::int64_t{0}),
                      .model = json.at("model"),
                      .rows = count_at(json, "rows"),
                      .answered = count_at(json, "answered"),
                      .failed = count_at(json, "failed"),
                      .digests = std::move(digests),
                      .status = json.at("status").get<std::string>()};
  } catch (const std::exception&) {
    throw Error(ErrorKind::Usage,
                ErrorParts{.file = path,
                           .problem = std::string(Json::accept(text) ? "is not the state of a batch of this version"
                                                                     : "is damaged") +
                                      "; without this file --resume goes on after the results that there are, with the "
                                      "options given now, --force begins anew"});
  }
}

std::optional<int> writer_of(const std::string& path) try {
  const Json json = Json::parse(read_input(path), RefuseNesting{path}, false);
  if (!json.is_object() || json.value("status", Json()) != "running") return std::nullopt;
  const Json pid = json.value("pid", Json());
  const std::int64_t process = pid.is_number_integer() ? pid.get<std::int64_t>() : 0;
  if (process <= 0 || process > kMaxInt32) return std::nullopt;
  const bool lives = ::kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM;
  return lives ? std::optional(static_cast<int>(process)) : std::nullopt;
} catch (const Error&) {
  return std::nullopt;  // there is no state yet, or none that can be read
}

void write_state(const std::string& path, const BatchState& state) {
  Json json{{"format", kFormat},        {"status", state.status}, {"rows", state.rows}, {"answered", state.answered},
            {"failed", state.failed},   {"seed", state.seed},     {"time", state.time}, {"model", state.model},
            {"options", state.options}, {"pid", ::getpid()}};
  Json& digests = json["digests"] = Json::array();
  for (const auto& [id, digest] : state.digests) digests.push_back(digest + " " + id);
  replace_file(path, text_of(json) + "\n");
}

namespace {

/// "model.gguf of 4.1 GiB, with story.gguf x 0.5 and general.name=str:x"
std::string model_text(const Json& model) {
  std::string text =
      "\"" + escaped(model.value("name", "?")) + "\" of " + bytes_text(model.value("bytes", std::uint64_t{0}));
  std::string changes;
  for (const char* key : {"adapters", "overrides"}) {
    for (const Json& change : model.value(key, Json::array()))
      changes += (changes.empty() ? ", with " : " and ") + change.get<std::string>();
  }
  return text + changes;
}

std::string model_difference(const Json& then, const Json& today) {
  const std::string a = model_text(then), b = model_text(today);
  if (a == b) return "the model " + a + ", which had other contents then";
  return "the model " + a + ", this run has " + b;
}

/// As it was given: "0.8", where the float is kept as 0.800000011920929.
std::string value_text(const Json& value) {
  if (!value.is_number_float()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return shortest(static_cast<float>(value.get<double>()));
}

/// "--temp 0.5", "no --stop"
std::string option_text(std::string name, const Json& value) {
  if (const SamplingParameter* p = find_sampling_parameter(name); p != nullptr && !p->options.empty())
    name = p->options.substr(0, p->options.find(','));
  const bool none = value.is_null() || value == false || value == "" || (value.is_array() && value.empty());
  if (none) return "no " + name;
  return value == true ? name : name + " " + value_text(value);
}

}  // namespace

void require_same_run(const std::string& path, const BatchState& before, const BatchState& now) {
  const auto refuse = [&](const std::string& difference) {
    throw Error(ErrorKind::Usage,
                ErrorParts{.file = path,
                           .problem = "the results there were written with " + difference +
                                      "; give the same to go on, another file with -o, or --force to begin anew"});
  };
  const Json model = as_stored(now.model), options = as_stored(now.options);
  if (!is_same_model(before.model, model)) refuse(model_difference(before.model, model));
  Json names = before.options;
  names.update(options);
  for (const auto& [name, any] : names.items()) {
    const Json then = before.options.value(name, Json()), today = options.value(name, Json());
    if (then != today) refuse(option_text(name, then) + ", this run has " + option_text(name, today));
  }
}

}  // namespace llm::app
