#include "batch_input.h"

#include <csv.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <functional>
#include <set>
#include <span>
#include <unordered_map>

#include "base/error.h"
#include "batch_state.h"
#include "common/input.h"
#include "common/messages.h"

namespace llm::app {
namespace {

/// Gets one line after the other with its number, from 1; false ends it. A carriage return before the line feed is no
/// part of the line. Returns the bytes that were read.
std::size_t for_each_line(std::string_view text, const std::function<bool(std::string_view, std::size_t)>& visit) {
  const char* const begin = text.data();
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool blank = line.find_first_not_of(" \t") == std::string_view::npos;
    if (!blank && !visit(line, number)) break;
  }
  return static_cast<std::size_t>(text.data() - begin);
}

/// libcsv calls back with fields and ends of rows.
class CsvReader {
 public:
  /// `row` gets each row and what it says, for its digest; false ends the reading.
  CsvReader(const std::string& path, const RowRules& rules, const std::function<bool(BatchRequest, std::string)>& row)
      : path_(path), rules_(rules), row_(row) {
    if (csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI) != 0) throw std::bad_alloc();
    csv_set_space_func(&parser_, [](unsigned char) { return 0; });  // spaces around a field are part of it
  }
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;
  ~CsvReader() { csv_free(&parser_); }

  /// Returns the bytes that were read.
  std::size_t read(std::string_view text) {
    // A byte at a time: the callbacks have no other way to know the line they are at.
    std::size_t at = 0;
    for (; at < text.size() && !done_; ++at) {
      const bool line_ends = text[at] == '\n' || text[at] == '\r';
      if (!in_row_ && !line_ends) {
        in_row_ = true;
        row_line_ = line_;
      }
      if (in_row_ && !in_field_) {
        in_field_ = true;
        field_line_ = line_;
      }
      if (csv_parse(&parser_, text.data() + at, 1, on_field, on_row, this) != 1) fail_at(line_, reason());
      const bool of_two = text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n';
      if (line_ends && !of_two) ++line_;
    }
    if (!done_ && csv_fini(&parser_, on_field, on_row, this) != 0)
      fail_at(field_line_, "the quote that opens here is never closed");
    if (error_) std::rethrow_exception(error_);
    // One row is a slip; all of them are a table of another kind, with semicolons for one.
    if (first_misfit_ && !has_fit_) fail_at(first_misfit_->first, first_misfit_->second + ", and so it is of all rows");
    return at;
  }

 private:
  static void on_field(void* bytes, std::size_t size, void* self) {
    auto& reader = *static_cast<CsvReader*>(self);
    reader.in_field_ = false;
    reader.fields_.emplace_back(static_cast<const char*>(bytes), size);
  }
  /// Exceptions do not cross the C library.
  static void on_row(int, void* self) {
    auto& reader = *static_cast<CsvReader*>(self);
    try {
      if (!reader.done_) reader.end_row();
    } catch (...) {
      reader.error_ = std::current_exception();
      reader.done_ = true;
    }
  }

  void end_row() {
    std::vector<std::string> fields;
    fields.swap(fields_);
    in_row_ = false;
    if (header_.empty()) {
      header_ = std::move(fields);
      refuse_equal_columns();
      require_columns();
      return;
    }
    done_ = fields.size() == header_.size() ? !take(std::move(fields)) : !take_misfit(fields);
  }

  bool take(std::vector<std::string> fields) {
    Json columns = Json::object();
    for (std::size_t i = 0; i < fields.size(); ++i) columns[header_[i]] = std::move(fields[i]);
    has_fit_ = true;
    return row_(request_from_columns(columns, row_line_, rules_), json_text(columns));
  }

  /// Nobody knows which of its fields belongs to which column, its id neither.
  bool take_misfit(const std::vector<std::string>& fields) {
    const std::string problem = std::to_string(fields.size()) + (fields.size() == 1 ? " field" : " fields") +
                                ", the header has " + std::to_string(header_.size());
    if (!first_misfit_) first_misfit_.emplace(row_line_, problem);
    return row_(request_refused(problem, row_line_), json_text(fields));
  }

  static std::string json_text(const Json& fields) {
    return fields.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void require_columns() const {
    if (!rules_.template_row) {
      if (std::find_if(header_.begin(), header_.end(), is_content) != header_.end()) return;
      throw Error(ErrorKind::Usage, ErrorParts{.file = path_, .problem = no_content_column(header_)});
    }
    for (const std::string& name : rules_.template_row->columns()) {
      if (std::find(header_.begin(), header_.end(), name) != header_.end()) continue;
      throw Error(ErrorKind::Usage, ErrorParts{.file = path_, .problem = no_column(name, header_)});
    }
  }
  static bool is_content(const std::string& name) { return name == "prompt" || name == "messages"; }

  void refuse_equal_columns() const {
    std::set<std::string_view> names;
    for (const std::string& name : header_) {
      if (!names.insert(name).second) fail_at(row_line_, "two columns are called \"" + escaped(name) + "\"");
    }
  }

  std::string reason() {
    const int error = csv_error(&parser_);
    if (error != CSV_EPARSE) return csv_strerror(error);
    if (field_line_ == line_) return "a field with quotes in it must be quoted, and they be doubled";
    return "a quote inside of the quoted field that begins on line " + std::to_string(field_line_) +
           ": either its end is missing there, or a quote in it is not doubled";
  }

  [[noreturn]] void fail_at(std::size_t line, const std::string& why) const {
    throw Error(ErrorKind::Usage, ErrorParts{.file = path_, .problem = "line " + std::to_string(line) + ": " + why});
  }

  const std::string& path_;
  const RowRules& rules_;
  const std::function<bool(BatchRequest, std::string)>& row_;
  csv_parser parser_{};
  std::size_t line_ = 1, row_line_ = 1, field_line_ = 1;
  bool in_row_ = false, in_field_ = false;
  std::vector<std::string> header_, fields_;
  bool done_ = false, has_fit_ = false;
  std::optional<std::pair<std::size_t, std::string>> first_misfit_;  ///< its line, and what is wrong
  std::exception_ptr error_;
};

void refuse_duplicates(const std::string& path, const std::vector<BatchRequest>& rows) {
  std::unordered_map<std::string_view, std::size_t> line_of;
  for (const BatchRequest& r : rows) {
    const auto [first, is_new] = line_of.try_emplace(r.id, r.line);
    if (is_new) continue;
    throw Error(ErrorKind::Usage,
                ErrorParts{.file = path,
                           .problem = "id \"" + escaped(r.id) + "\" is on line " + std::to_string(first->second) +
                                      " and on line " + std::to_string(r.line) + ": results are found by their id"});
  }
}

/// A name that no row has is a mistake of the template, not of the rows. Lines that are no rows say nothing of it.
void refuse_unknown_columns(const std::string& path, const std::vector<BatchRequest>& rows,
                            const RowTemplate& row_template) {
  std::vector<std::string> columns;  // of all rows, in the order that they come in
  std::set<std::string> known;
  bool any = false;
  for (const BatchRequest& r : rows) {
    if (r.is_filled) return;
    if (!r.columns) continue;
    any = true;
    for (const std::string& name : *r.columns) {
      if (known.insert(name).second) columns.push_back(name);
    }
  }
  if (!any) return;
  for (const std::string& name : row_template.columns()) {
    if (!known.contains(name))
      throw Error(ErrorKind::Usage, ErrorParts{.file = path, .problem = no_column(name, columns)});
  }
}

/// One document over many lines is a mistake of the file, not of its lines. Deep ones do no harm: nothing is built.
void refuse_json_document(const std::string& path, std::string_view text, const std::vector<BatchRequest>& rows) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  const bool array = begin != std::string_view::npos && text[begin] == '[';
  if ((rows.size() == 1 && !array) || !Json::accept(text)) return;
  throw Error(ErrorKind::Usage,
              ErrorParts{.file = path,
                         .problem = "is one JSON document, a batch has an object on each line; jq -c '.[]' makes that "
                                    "of an array"});
}

/// What a file may be that has no line of JSON, by its first line.
std::string advice_for(std::string_view first) {
  const std::string lines = "--batch-format lines takes each line as a prompt";
  if (first.starts_with('{') || first.starts_with('['))
    return "each line is an object, keys and texts in double quotes";
  if (first.find(',') == std::string_view::npos && first.find("prompt") == std::string_view::npos) return lines;
  return "--batch-format csv reads a table, " + lines;
}

/// A file of another form is a mistake of the command, which no row's failure explains.
void refuse_other_forms(const std::string& path, std::string_view text, const std::vector<BatchRequest>& rows) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const bool none_is_json = std::all_of(rows.begin(), rows.end(), [](const BatchRequest& r) {
    return r.failure && r.failure->code == RowFailure::Code::InvalidJson;
  });
  if (!none_is_json) return;
  throw Error(ErrorKind::Usage,
              ErrorParts{.file = path,
                         .problem = "no line of it is JSON (line " + std::to_string(rows[0].line) + ": " +
                                    rows[0].failure->message + "); " + advice_for(text.substr(0, text.find('\n')))});
}

/// With a template a line is what it has as {text}.
BatchRequest request_from_line(std::string line, std::size_t number, const RowRules& rules) {
  if (!rules.template_row) return request_from_text(std::move(line), number);
  return request_from_columns({{"text", std::move(line)}}, number, rules);
}

/// Names from other systems end in capitals.
bool ends_in(const std::string& path, std::string_view ending) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == b; };
  return path.size() >= ending.size() &&
         std::equal(path.end() - static_cast<std::ptrdiff_t>(ending.size()), path.end(), ending.begin(), same);
}

}  // namespace

BatchFormat batch_format(const std::string& name, const std::string& path) {
  if (name == "jsonl") return BatchFormat::Jsonl;
  if (name == "csv") return BatchFormat::Csv;
  if (name == "lines") return BatchFormat::Lines;
  if (!name.empty()) {
    throw Error(ErrorKind::Usage, "option --batch-format: \"" + escaped(name) + "\" is not jsonl, csv or lines");
  }
  if (ends_in(path, ".csv")) return BatchFormat::Csv;
  return ends_in(path, ".txt") ? BatchFormat::Lines : BatchFormat::Jsonl;
}

std::vector<BatchRequest> read_batch(const std::string& path, BatchFormat format, const RowRules& rules,
                                     std::size_t limit) {
  const std::string text = read_unchecked_text(path), name = path == "-" ? "stdin" : path;
  std::vector<BatchRequest> rows;
  const auto add = [&](BatchRequest r, std::string_view says) {
    r.digest = digest_of(says);
    rows.push_back(std::move(r));
    return rows.size() != limit;
  };
  const auto read = [&]() -> std::size_t {
    if (format == BatchFormat::Csv) {
      const std::function<bool(BatchRequest, std::string)> row = add;
      return CsvReader(name, rules, row).read(text);
    }
    return for_each_line(text, [&](std::string_view line, std::size_t number) {
      return add(format == BatchFormat::Lines ? request_from_line(std::string(line), number, rules)
                                              : request_from_json(line, number, rules),
                 line);
    });
  };
  // A row of JSON fails where it is not UTF-8.
  const auto warn = format == BatchFormat::Jsonl ? warn_of_nul_bytes : warn_of_bytes;
  std::size_t size = 0;
  try {
    size = read();
  } catch (const Error&) {
    warn(name, text, 1);  // which may be why it is refused
    throw;
  }
  warn(name, std::string_view(text).substr(0, size), 1);
  if (rows.empty()) throw Error(ErrorKind::Usage, ErrorParts{.file = name, .problem = "there are no rows in it"});
  if (format == BatchFormat::Jsonl) {
    refuse_json_document(name, text, rows);
    refuse_other_forms(name, text, rows);
  }
  refuse_duplicates(name, rows);
  if (rules.template_row) refuse_unknown_columns(name, rows, *rules.template_row);
  return rows;
}

}  // namespace llm::app
