#include "common/adapters.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/output_file.h"
#include "common/numbers.h"
#include "common/run_files.h"

namespace llm::app {
namespace {

constexpr const char* kPlain = "--lora";
constexpr const char* kScaled = "--lora-scaled";

[[noreturn]] void refuse(const std::string& option, const std::string& why) {
  throw Error(ErrorKind::Usage, "option " + option + ": " + why);
}

float parse_scale(const std::string& option, const std::string& text) {
  constexpr double kMost = 1000;
  return static_cast<float>(parse_real(option, text, -kMost, kMost));
}

/// "FILE:SCALE"
AdapterFile scaled(const std::string& item) {
  const std::size_t colon = item.rfind(':');
  if (colon == std::string::npos || colon == 0)
    refuse(kScaled, "\"" + escaped(item) + "\" is not FILE:SCALE; --lora takes files without a scale");
  return {item.substr(0, colon),
          parse_scale(std::string(kScaled) + " " + escaped(item.substr(0, colon)), item.substr(colon + 1))};
}
bool names_scaled_file(const std::string& item) {
  const std::size_t colon = item.rfind(':');
  return colon != std::string::npos && item.find(',', colon) == std::string::npos && is_there(item.substr(0, colon));
}

/// "FILE" or "FILE:SCALE"
AdapterFile plain_or_scaled(const std::string& item) {
  if (item.empty()) refuse(kPlain, "a file is missing; FILE and FILE:SCALE stand between commas");
  if (is_there(item) || !names_scaled_file(item)) return {item};
  const std::size_t colon = item.rfind(':');
  return {item.substr(0, colon),
          parse_scale(std::string(kPlain) + " " + escaped(item.substr(0, colon)), item.substr(colon + 1))};
}
bool names_file(const std::string& item) { return is_there(item) || names_scaled_file(item); }

/// What stands between commas; where `is_known` says so of several such parts and the commas between them, they are
/// one.
template <class IsKnown>
std::vector<std::string> items(const std::string& text, const IsKnown& is_known) {
  std::vector<std::string> list;
  for (std::size_t begin = 0; begin <= text.size();) {
    std::size_t end = text.size();
    while (end != std::string::npos && end > begin && !is_known(text.substr(begin, end - begin))) {
      const std::size_t comma = text.rfind(',', end - 1);
      end = comma == std::string::npos || comma < begin ? std::string::npos : comma;
    }
    if (end == std::string::npos) end = std::min(text.find(',', begin), text.size());
    list.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}

template <class IsKnown, class Parse>
std::vector<AdapterFile> parse(const std::string& text, const IsKnown& is_known, const Parse& parse_item) {
  std::vector<AdapterFile> list;
  for (const std::string& item : items(text, is_known)) list.push_back(parse_item(item));
  return list;
}

}  // namespace

std::vector<AdapterFile> parse_adapters(const std::string& text) { return parse(text, names_file, plain_or_scaled); }
std::vector<AdapterFile> parse_scaled_adapters(const std::string& text) {
  return parse(text, names_scaled_file, scaled);
}

std::vector<AdapterFile> Adapters::all() const {
  std::vector<AdapterFile> list = plain;
  list.insert(list.end(), scaled.begin(), scaled.end());
  return list;
}

void add_adapter_options(Command& cli, Adapters& adapters) {
  const auto add = [&cli](const char* name, std::vector<AdapterFile>& target,
                          std::vector<AdapterFile> (*parse)(const std::string&), const char* type, const char* help) {
    const auto set = [name, &target, parse](const std::vector<std::string>& given) {
      target.clear();
      for (const std::string& text : given) {
        for (AdapterFile& one : parse(text)) target.push_back(std::move(one));
      }
      for (const AdapterFile& one : target) will_read(name, one.path.string());
    };
    cli.add_option_function<std::vector<std::string>>(name, set, help)->option_text(type)->one_value();
  };
  add(kPlain, adapters.plain, parse_adapters, "FILE|FILE:SCALE,...",
      "LoRA adapters for the model, whose changes add up; repeatable");
  add(kScaled, adapters.scaled, parse_scaled_adapters, "FILE:SCALE,...",
      "the same, each with the factor of what it changes; repeatable");
}

void require_adapters(const std::vector<AdapterFile>& adapters) {
  for (const AdapterFile& a : adapters) {
    if (!is_there(a.path))
      throw Error(ErrorKind::Model,
                  ErrorParts{.file = a.path.string(),
                             .problem = "there is no such adapter; commas separate several files, and "
                                        "a scale stands behind a colon: FILE:0.5"});
  }
}

}  // namespace llm::app
