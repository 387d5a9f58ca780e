// What Python's Jinja2 makes of the templates of golden.json (scripts/make-jinja-golden wrote it).
#include <fstream>
#include <iterator>

#include "render.h"
#include "support/paths.h"

using namespace llm;
using namespace llm::test;

TEST_CASE("templates render as Python's Jinja2 renders them, and fail where it fails", "[golden]") {
  std::ifstream file(source_dir() / "tests/jinja/golden.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const jinja::Value rows = jinja::from_json(text, Origin::User, "golden.json");
  REQUIRE(rows.items().size() > 400);
  const jinja::Context usual = context_of(rows.items()[0]);
  std::size_t refused = 0;
  for (std::size_t i = 1; i < rows.items().size(); ++i) {
    const auto& row = rows.items()[i].items();
    const std::string& source = row[0].as_string().bytes();
    INFO(source);
    const jinja::Context context = row.size() > 2 ? context_of(row[2]) : usual;
    if (row[1].is_none()) {
      CHECK_THROWS_AS(jinja::Template(source).render(context, fixed_now()), Error);
      ++refused;
    } else {
      CHECK(jinja::Template(source).render(context, fixed_now()).text == row[1].as_string().bytes());
    }
  }
  CHECK(refused > 80);
}
