// Renders templates for comparison: a line of JSON in, {"template": T, "context": {...}, "now": ISO-TIME}, a line of
// JSON out, {"text": S, "runs": [[end, "template" or "user"], ...]} or {"error": S, "kind": N}.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "text/jinja/json.h"
#include "text/jinja/template.h"

namespace {

using llm::jinja::Origin;

llm::jinja::Now time_of(const std::string& iso) {
  llm::jinja::Now now;
  std::tm& t = now.calendar;
  std::sscanf(iso.c_str(), "%d-%d-%dT%d:%d:%d", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min, &t.tm_sec);
  t.tm_year -= 1900;
  t.tm_mon -= 1;
  t.tm_isdst = -1;
  ::timegm(&t);  // fills in the days of the week and of the year
  return now;
}

nlohmann::json answer(const nlohmann::json& question) {
  llm::jinja::Context context;
  for (const auto& [name, value] : question.at("context").items()) {
    context.emplace(name, llm::jinja::from_json(value.get<std::string>(), Origin::User, name));
  }
  try {
    const llm::jinja::Template compiled(question.at("template").get<std::string>());
    const auto rendered = compiled.render(context, time_of(question.value("now", "2025-07-10T12:00:00")));
    nlohmann::json runs = nlohmann::json::array();
    for (const auto& run : rendered.runs) runs.push_back({run.end, run.origin == Origin::User ? "user" : "template"});
    return {{"text", rendered.text}, {"runs", runs}};
  } catch (const llm::Error& e) {
    return {{"error", e.what()}, {"kind", static_cast<int>(e.kind())}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(nlohmann::json::parse(line)).dump(-1, ' ', true) << std::endl;
  }
}
