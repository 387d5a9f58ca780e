// The file of results: one line per finished row, appended by one write, so that whatever happens every line in it is
// whole. Beside it OUT.state keeps what the run was asked for, so that it can go on where it stopped.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "batch_request.h"

namespace llm::app {

enum class BatchStart : std::uint8_t {
  Fresh,        ///< the file must not exist, or be empty
  Resume,       ///< goes on after the rows that are there
  RetryFailed,  ///< the same, and drops the rows that failed
  Overwrite,    ///< forgets what is there
};

enum class RowOutcome : std::uint8_t { Answered, Failed };

class BatchOutput {
 public:
  /// Opens and locks `path` (empty or "-": stdout, which is never looked at) and changes nothing in it; one that it
  /// made goes with it unless prepare() was called. Throws ErrorKind::Usage if there are results and nothing says what
  /// to do with them or a line is no result of a batch, ErrorKind::Io if it cannot be opened or another process writes
  /// to it.
  BatchOutput(std::string path, BatchStart start);
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;
  ~BatchOutput();

  /// The rows that were there at the start and stay, by id.
  const std::map<std::string, RowOutcome>& known() const { return known_; }
  /// Once nothing else can refuse the run, before the first append(): empties the file, or drops the rows that failed
  /// and a last line that was cut; one that only lacks its line feed gets it. Throws ErrorKind::Io.
  void prepare();
  /// One line, without its line feed. Throws ErrorKind::Io (disk full); the file then ends with the line before.
  void append(std::string_view line);
  /// Brings lines to the disk if the last time was a second ago. Called after every step.
  void sync_when_due();
  void sync();
  /// A file that results stay in, not a stream or a device.
  bool is_file() const { return regular_; }

 private:
  void open();
  void open_file();
  void lock();
  bool has_the_name() const;
  void read_known();
  void mend_end();
  void replace();
  [[noreturn]] void fail(std::string_view what) const;

  std::string path_;
  BatchStart start_;
  int fd_ = -1;
  bool owned_ = false;    ///< fd_ is ours to close
  bool regular_ = false;  ///< a file proper: locked, and begun where it ends
  bool made_ = false;     ///< by us, for a run that may still be refused: then it goes again
  std::uint64_t end_ = 0;
  std::string kept_;   ///< until prepare(): the lines that stay
  bool gaps_ = false;  ///< there are lines between them that go
  bool unsynced_ = false;
  Clock::time_point synced_ = Clock::now();
  std::map<std::string, RowOutcome> known_;
};

}  // namespace llm::app
