// Messages. The log is spdlog with a synchronous sink; errors bypass it, so that none is lost whatever happens next.
#include "common/messages.h"

#include <spdlog/formatter.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/output_file.h"
#include "base/utf8.h"
#include "common/events.h"
#include "common/message_codes.h"
#include "common/output.h"

namespace llm::app {
namespace {

struct Settings {
  std::string program = "llm";
  Verbosity verbosity = Verbosity::Normal;
  ErrorFormat error_format = ErrorFormat::Text;
  LogFormat log_format = LogFormat::Text;
  std::size_t warnings = 0;
  std::string_view code;     ///< of the message that is being written
  std::string file_problem;  ///< why the log's file cannot be written any more
};
Settings& settings() {
  static Settings s;
  return s;
}

// Levels of the log: warn is a warning, info a note, debug a plain line, trace what -v shows. Errors are written by
// print_error and reach only the log's file through it.

std::string_view level_name(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::err:
      return "error";
    case spdlog::level::warn:
      return "warning";
    case spdlog::level::info:
      return "note";
    default:
      return level == spdlog::level::trace ? "verbose" : "info";
  }
}

/// 2026-01-31T12:00:00.123Z
std::string time_text(spdlog::log_clock::time_point time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + n, sizeof text - n, ".%03dZ", static_cast<int>(ms % 1000));
  return text;
}

/// `PROGRAM: warning[code]: text`, `PROGRAM: note: text`; the lower levels are plain lines.
class LineFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto append = [&out](std::string_view text) { out.append(text.data(), text.data() + text.size()); };
    if (message.level >= spdlog::level::info) {
      append(settings().program);
      append(": ");
      append(level_name(message.level));
      if (!settings().code.empty()) {
        append("[");
        append(settings().code);
        append("]");
      }
      append(": ");
    }
    append({message.payload.data(), message.payload.size()});
    append("\n");
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<LineFormatter>(); }
};

/// One object per message.
class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    nlohmann::ordered_json json{
        {"time", time_text(message.time)}, {"level", level_name(message.level)}, {"program", settings().program}};
    if (!settings().code.empty()) json["id"] = settings().code;
    json["message"] = std::string(message.payload.data(), message.payload.size());
    const std::string line = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

spdlog::level::level_enum stderr_level() {
  switch (settings().verbosity) {
    case Verbosity::Quiet:
      return spdlog::level::err;
    case Verbosity::Warnings:
      return spdlog::level::warn;
    case Verbosity::Normal:
      return spdlog::level::debug;
    case Verbosity::Verbose:
      return spdlog::level::trace;
  }
  return spdlog::level::debug;
}

/// Sinks: stderr, and behind it perhaps a file.
spdlog::logger& log() {
  static const auto logger = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    sink->set_formatter(std::make_unique<LineFormatter>());
    auto made = std::make_shared<spdlog::logger>("stderr", std::move(sink));
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    made->set_error_handler([](const std::string& problem) { settings().file_problem = problem; });
    return made;
  }();
  logger->sinks().front()->set_level(stderr_level());
  return *logger;
}

/// Says once that the log's file cannot be written, and goes on without it.
void leave_a_broken_file() {
  if (settings().file_problem.empty()) return;
  const std::string problem = std::exchange(settings().file_problem, {});
  log().sinks().resize(1);
  const std::string_view code = std::exchange(settings().code, {});
  log().info("the log's file ends here: " + problem);
  settings().code = code;
}

void write(spdlog::level::level_enum level, std::string_view text) {
  log().log(level, spdlog::string_view_t(text.data(), text.size()));
  leave_a_broken_file();
}

/// Messages written while it lives have this code.
class WithCode {
 public:
  explicit WithCode(std::string_view code) { settings().code = code; }
  WithCode(const WithCode&) = delete;
  WithCode& operator=(const WithCode&) = delete;
  ~WithCode() { settings().code = {}; }
};

void log_to(spdlog::sinks::sink& sink, std::string_view error) {
  try {
    sink.log(spdlog::details::log_msg("", spdlog::level::err, spdlog::string_view_t(error.data(), error.size())));
    sink.flush();
  } catch (const spdlog::spdlog_ex& problem) {
    settings().file_problem = problem.what();
  }
}

std::string as_json(const Error& error) {
  const ErrorParts& parts = error.parts();
  nlohmann::ordered_json json;
  json["program"] = settings().program;
  json["kind"] = error_code(error.kind()).kind_name;
  json["code"] = static_cast<int>(error.kind());
  json["id"] = error_code(error.kind()).code;
  if (!parts.file.empty()) json["file"] = parts.file;
  if (parts.offset) json["offset"] = *parts.offset;
  if (!parts.subject.empty()) json["subject"] = parts.subject;
  json["problem"] = parts.problem;
  json["message"] = error.what();
  // Names in files need not be UTF-8.
  return nlohmann::ordered_json{{"error", json}}.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

bool rewrites_a_terminal(char32_t c) {
  if (c == '\n' || c == '\t') return false;
  return c < 0x20 || (c >= 0x7f && c <= 0x9f) || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

void set_program(std::string_view name) { settings().program = name; }
std::string_view program() { return settings().program; }
void set_verbosity(Verbosity v) { settings().verbosity = v; }
Verbosity verbosity() { return settings().verbosity; }
void set_error_format(ErrorFormat f) { settings().error_format = f; }

void set_log_format(LogFormat f) {
  settings().log_format = f;
  if (f == LogFormat::Json) log().set_formatter(std::make_unique<JsonFormatter>());
}
bool log_is_json() { return settings().log_format == LogFormat::Json; }

void open_log_file(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !is_there(folder)) {  // spdlog would make it
    throw Error(ErrorKind::Io,
                ErrorParts{.file = path, .problem = std::string("cannot write: ") + std::strerror(ENOENT)});
  }
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, true);
    if (log_is_json()) {
      sink->set_formatter(std::make_unique<JsonFormatter>());
    } else {
      sink->set_formatter(std::make_unique<LineFormatter>());
    }
    log().sinks().push_back(std::move(sink));
  } catch (const spdlog::spdlog_ex&) {
    throw Error(ErrorKind::Io,
                ErrorParts{.file = path, .problem = std::string("cannot write: ") + std::strerror(errno)});
  }
}

void print_warnings(const Warnings& warnings) {
  settings().warnings += warnings.size();
  for (const Warning& w : warnings) {
    const WithCode code(w.code);
    write(spdlog::level::warn, w.text);
    emit_event("warning", {{"id", w.code}, {"message", w.text}});
  }
}

std::size_t warnings_printed() { return settings().warnings; }

void note(std::string_view text) { write(spdlog::level::info, text); }
std::string note_line(std::string_view text) {
  if (spdlog::level::info < stderr_level()) return {};
  const spdlog::details::log_msg message("", spdlog::level::info, spdlog::string_view_t(text.data(), text.size()));
  spdlog::memory_buf_t line;
  if (log_is_json()) {
    JsonFormatter().format(message, line);
  } else {
    LineFormatter().format(message, line);
  }
  return {line.data(), line.size()};
}
void show(std::string_view text) {
  const Verbosity given = settings().verbosity;
  settings().verbosity = std::max(given, Verbosity::Normal);
  write(spdlog::level::debug, text);
  settings().verbosity = given;
}
void say(std::string_view text) { write(spdlog::level::debug, text); }
void verbose(std::string_view text) { write(spdlog::level::trace, text); }

void print_text(std::string_view text) { write_stderr(stderr_is_terminal() ? terminal_safe(text) : std::string(text)); }

void print_error(const Error& error) {
  const std::string_view id = error_code(error.kind()).code;
  const WithCode code(id);
  if (log_is_json()) {  // a line like the others, whose stream must stay JSON
    write(spdlog::level::err, error.what());
    return;
  }
  for (std::size_t i = 1; i < log().sinks().size(); ++i) log_to(*log().sinks()[i], error.what());
  leave_a_broken_file();
  if (settings().error_format == ErrorFormat::Json) {
    write_stderr(as_json(error) + "\n");
    return;
  }
  const std::string line = settings().program + ": error[" + std::string(id) + "]: " + error.what() + "\n";
  write_stderr(line);
}

void print_hint(const Error& error) {
  const std::string hint = hint_for(error, settings().program);
  const bool wanted = verbosity() >= Verbosity::Normal || error.kind() == ErrorKind::Internal;
  const bool in_words = !log_is_json() && settings().error_format == ErrorFormat::Text;
  if (in_words && wanted && !hint.empty()) write_stderr(settings().program + ": hint: " + hint + "\n");
}

std::string terminal_safe(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const utf8::Unit unit = utf8::unit_at(text, 0);
    const bool valid = unit.form == utf8::Form::Valid;
    const std::string_view raw = text.substr(0, valid ? unit.length : 1);  // a byte that does not fit is taken alone
    text.remove_prefix(raw.size());
    if (!rewrites_a_terminal(valid ? utf8::code_point(raw) : static_cast<unsigned char>(raw[0]))) {
      out += raw;
      continue;
    }
    for (const char byte : raw) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
      out += escape;
    }
  }
  return out;
}

}  // namespace llm::app
