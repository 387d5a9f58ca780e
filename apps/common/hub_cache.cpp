// Layouts. The hub's: CACHE/models--USER--REPO/refs/main holds a commit, snapshots/COMMIT/ its files. llama.cpp's older
// one: CACHE/USER_REPO_FILE with "_" for every "/", and CACHE/manifest=USER=REPO=TAG.json, which names the file of a
// tag.
#include "common/hub_cache.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "common/folder.h"

namespace llm::app {
namespace {

namespace fs = std::filesystem;

struct Name {
  std::string user, repo;
  std::string quant;  ///< empty: not said
  std::string both() const { return user + "/" + repo; }
};

/// A file of the repository, where it lies here.
struct Found {
  std::string name;  ///< in the repository
  fs::path path;
};

/// What was looked through, for the message, and what it had.
struct Search {
  std::vector<std::string> places;
  std::string lacks;                ///< what a place that has the repository's folder lacks; empty: there is none
  std::vector<Found> files;         ///< of the first place that has the repository
  std::optional<fs::path> certain;  ///< what a manifest says, whatever it is called
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string replaced(std::string text, char from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, 1, to);
  return text;
}

bool is_part(const std::string& text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  return !text.empty() && text != "." && text != ".." && std::all_of(text.begin(), text.end(), plain);
}

Name parse(const std::string& text) {
  const std::size_t slash = text.find('/'), colon = text.find(':');
  Name name{.user = text.substr(0, slash), .repo = {}, .quant = {}};
  if (slash != std::string::npos) name.repo = text.substr(slash + 1, colon - slash - 1);
  if (colon != std::string::npos) name.quant = text.substr(colon + 1);
  if (slash > colon || !is_part(name.user) || !is_part(name.repo) ||
      (colon != std::string::npos && !is_part(name.quant)))
    throw Error(ErrorKind::Usage, "option --hf-repo: \"" + escaped(text) + "\" is not USER/REPO or USER/REPO:QUANT");
  return name;
}

/// The folder that a variable names, with what is put behind it. Later ones count only where nothing was found.
struct HubPlace {
  const char *variable, *below;
};
constexpr std::array kHubs{HubPlace{"LLAMA_CACHE", ""},
                           HubPlace{"HF_HUB_CACHE", ""},
                           HubPlace{"HUGGINGFACE_HUB_CACHE", ""},
                           HubPlace{"HF_HOME", "hub"},
                           HubPlace{"XDG_CACHE_HOME", "huggingface/hub"},
                           HubPlace{"HOME", ".cache/huggingface/hub"}};
constexpr std::array kFlat{HubPlace{"LLAMA_CACHE", ""}, HubPlace{"XDG_CACHE_HOME", "llama.cpp"},
                           HubPlace{"HOME", ".cache/llama.cpp"}};

std::vector<fs::path> folders(std::span<const HubPlace> places) {
  std::vector<fs::path> list;
  for (const HubPlace& p : places) {
    const char* value = std::getenv(p.variable);
    if (value == nullptr || *value == '\0') continue;
    fs::path folder = *p.below == '\0' ? fs::path(value) : fs::path(value) / p.below;
    if (std::find(list.begin(), list.end(), folder) == list.end()) list.push_back(std::move(folder));
  }
  return list;
}

bool is_file(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);  // not a link to a download that was never finished
}

void sort_by_name(std::vector<Found>& files) {
  std::sort(files.begin(), files.end(), [](const Found& a, const Found& b) { return a.name < b.name; });
}

// --- the hub's cache ---

/// The commit of main, else that of the first other branch.
std::string commit_of(const fs::path& repository) {
  std::string other;
  std::error_code none;
  for (const fs::path& branch : list_folder(repository / "refs", none)) {
    std::string commit;
    std::ifstream file(branch);
    if (!is_file(branch) || !std::getline(file, commit) || !is_part(commit)) continue;
    if (branch.filename() == "main") return commit;
    if (other.empty() || commit < other) other = commit;
  }
  return other;
}

std::vector<Found> hub_files(const fs::path& cache, const Name& name) {
  const fs::path repository = cache / ("models--" + name.user + "--" + name.repo);
  const std::string commit = commit_of(repository);
  if (commit.empty()) return {};
  const fs::path snapshot = repository / "snapshots" / commit;
  std::vector<Found> files;
  for (const fs::path& path : list_tree(snapshot)) {
    if (is_file(path)) files.push_back({path.lexically_relative(snapshot).generic_string(), path});
  }
  sort_by_name(files);
  return files;
}

/// Why a folder that is there gives no files; empty: there is none.
std::string what_lacks(const std::string& repository) {
  std::error_code none;
  if (!fs::is_directory(repository, none)) return {};
  const std::string commit = commit_of(repository);
  if (commit.empty()) return repository + " has nothing in refs, which says what snapshot counts";
  return repository + " has no files in snapshots/" + commit + ", which its refs name";
}

// --- llama.cpp's older cache ---

std::string flat_prefix(const Name& name) { return name.user + "_" + name.repo + "_"; }

/// The file that a manifest names for what was asked for.
std::optional<fs::path> file_of_manifest(const fs::path& cache, const Name& name) {
  const std::string tag = name.quant.empty() ? "latest" : name.quant;
  std::ifstream in(cache / ("manifest=" + name.user + "=" + name.repo + "=" + tag + ".json"));
  if (!in) return std::nullopt;
  const auto json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  const auto file = json.is_object() ? json.value("ggufFile", nlohmann::json()) : nlohmann::json();
  const auto said = file.is_object() ? file.value("rfilename", nlohmann::json()) : nlohmann::json();
  if (!said.is_string()) return std::nullopt;
  const fs::path path = cache / (flat_prefix(name) + replaced(said.get<std::string>(), '/', "_"));
  return is_file(path) ? std::optional(path) : std::nullopt;
}

/// Those of other repositories whose files begin as this one's do: "ann_toy_chat_" beside "ann_toy_".
std::vector<std::string> longer_prefixes(std::span<const fs::path> paths, const std::string& prefix) {
  constexpr std::string_view kBegin = "manifest=";
  std::vector<std::string> longer;
  for (const fs::path& path : paths) {
    const std::string own = path.filename().string();
    if (!own.starts_with(kBegin)) continue;
    const std::size_t user = kBegin.size(), repo = own.find('=', user);
    const std::size_t tag = repo == std::string::npos ? repo : own.find('=', repo + 1);
    if (tag == std::string::npos) continue;
    std::string other =
        flat_prefix({.user = own.substr(user, repo - user), .repo = own.substr(repo + 1, tag - repo - 1), .quant = {}});
    if (other.size() > prefix.size() && other.starts_with(prefix)) longer.push_back(std::move(other));
  }
  return longer;
}

/// Whether it was fetched from the repository, where the JSON beside it says from where.
std::optional<bool> is_fetched_from(const Name& name, fs::path file) {
  std::ifstream in(file += ".json");
  if (!in) return std::nullopt;
  const auto json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  const auto said = json.is_object() ? json.value("url", nlohmann::json()) : nlohmann::json();
  if (!said.is_string()) return std::nullopt;
  const std::string url = lower(said.get<std::string>()), place = lower("/" + name.both() + "/");
  // What is behind "/resolve/" are a branch and the file's folders.
  if (const std::size_t end = url.find("/resolve/"); end != std::string::npos)
    return url.substr(0, end + 1).ends_with(place);
  return url.find(place) != std::string::npos ? std::optional(true) : std::nullopt;
}

std::vector<Found> flat_files(const fs::path& cache, const Name& name) {
  const std::string prefix = flat_prefix(name);
  std::vector<Found> files;
  std::error_code none;
  const std::vector<fs::path> paths = list_folder(cache, none);
  const std::vector<std::string> others = longer_prefixes(paths, prefix);
  for (const fs::path& path : paths) {
    const std::string own = path.filename().string();
    if (!own.starts_with(prefix) || !own.ends_with(".gguf") || !is_file(path)) continue;
    const bool other = std::any_of(others.begin(), others.end(), [&](const auto& o) { return own.starts_with(o); });
    if (is_fetched_from(name, path).value_or(!other)) files.push_back({own.substr(prefix.size()), path});
  }
  sort_by_name(files);
  return files;
}

Search search(const Name& name, const std::string& file) {
  Search s;
  for (const fs::path& cache : folders(kHubs)) {
    s.places.push_back(cache.string() + "/models--" + name.user + "--" + name.repo);
    if (s.files = hub_files(cache, name); !s.files.empty()) return s;
    if (s.lacks.empty()) s.lacks = what_lacks(s.places.back());
  }
  for (const fs::path& cache : folders(kFlat)) {
    s.places.push_back(cache.string() + "/" + name.user + "_" + name.repo + "_*.gguf");
    if (file.empty()) s.certain = file_of_manifest(cache, name);
    if (s.files = flat_files(cache, name); s.certain || !s.files.empty()) return s;
  }
  return s;
}

// --- the choice ---

/// "Q4_K_M" in "model-Q4_K_M.gguf" and "Q4_K_M/x.Q4_K_M-00001-of-00002.gguf", in any case, but not in "IQ4_K_M".
bool names_quant(const std::string& file, const std::string& quant) {
  const std::string text = lower(file), part = lower(quant);
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    const bool begins = at == 0 || std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0;
    if (begins && end < text.size() && (text[end] == '.' || text[end] == '-')) return true;
  }
  return false;
}

const Found* choose(const std::vector<Found>& files, const Name& name, const std::string& file) {
  const auto first = [&](auto wanted) -> const Found* {
    const auto it = std::find_if(files.begin(), files.end(), wanted);
    return it == files.end() ? nullptr : &*it;
  };
  if (!file.empty()) {
    const std::string flat = replaced(file, '/', "_");
    return first([&](const Found& f) { return lower(f.name) == lower(file) || lower(f.name) == lower(flat); });
  }
  const auto of = [&](const std::string& quant) {
    return first([&](const Found& f) { return names_model(f.name) && names_quant(f.name, quant); });
  };
  if (!name.quant.empty()) return of(name.quant);
  for (const char* usual : {"Q4_K_M", "Q8_0"}) {
    if (const Found* found = of(usual)) return found;
  }
  return first([](const Found& f) { return names_model(f.name); });
}

[[noreturn]] void not_found(const Name& name, const std::string& file, const Search& s) {
  const std::string wanted =
      name.both() + (name.quant.empty() ? "" : ":" + name.quant) + (file.empty() ? "" : " " + file);
  std::string problem = "\"" + escaped(wanted, 200) + "\" is in no local cache, and nothing is downloaded";
  std::string list;
  for (const Found& f : s.files) {
    if (f.name.ends_with(".gguf")) list += (list.empty() ? "" : ", ") + escaped(f.name, 200);
  }
  if (!list.empty()) {
    problem += ": " + s.places.back() + " has " + list;
  } else if (!s.lacks.empty()) {
    problem += ": " + s.lacks;
  } else {
    for (const std::string& place : s.places) list += (list.empty() ? "" : ", ") + place;
    problem += ": looked for " + (list.empty() ? "it nowhere, since HOME is not set" : list);
  }
  throw Error(ErrorKind::Model, problem + "; fetch it with llama.cpp's -hf or `hf download " + name.both() +
                                    (file.empty() ? "" : " " + escaped(file, 200)) + "`, or give a file with -m");
}

}  // namespace

bool names_model(const std::string& file) {
  const std::string name = file.substr(file.rfind('/') + 1);
  if (!name.ends_with(".gguf")) return false;
  for (const char* beside : {"mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"}) {
    if (name.find(beside) != std::string::npos) return false;
  }
  // "-00002-of-00003.gguf": a later part of a split model
  constexpr std::string_view kPart = "-00001-of-00001.gguf";
  if (name.size() <= kPart.size()) return true;
  const std::string end = name.substr(name.size() - kPart.size());
  for (std::size_t i = 0; i < kPart.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(kPart[i])) != 0;
    if (digit ? std::isdigit(static_cast<unsigned char>(end[i])) == 0 : end[i] != kPart[i]) return true;
  }
  return end.substr(1, 5) == "00001";
}

std::string find_in_caches(const std::string& text, const std::string& file) {
  const Name name = parse(text);
  const Search s = search(name, file);
  if (s.certain) return s.certain->string();
  const Found* found = choose(s.files, name, file);
  if (found == nullptr) not_found(name, file, s);
  return found->path.string();
}

}  // namespace llm::app
