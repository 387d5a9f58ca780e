// The rows of a batch, read whole before the model is loaded: a line that is bad, an id that is there twice, a column
// that is missing should be known before hours of work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch_request.h"

namespace llm::app {

enum class BatchFormat : std::uint8_t {
  Jsonl,  ///< a JSON object per line
  Csv,    ///< RFC 4180: a header of column names, then rows; quoted fields may hold line feeds
  Lines,  ///< a prompt per line
};

/// By name, else by the file's ending: .csv, .txt; everything else is Jsonl. Throws ErrorKind::Usage for another name.
BatchFormat batch_format(const std::string& name, const std::string& path);

/// Reads `path` ("-": stdin), and makes each row's digest of its line or its columns. Empty lines are no rows. At most
/// `limit` rows (0: all). Throws ErrorKind::Usage for a file that cannot be read, is no text of that format, or has an
/// id twice.
std::vector<BatchRequest> read_batch(const std::string& path, BatchFormat, const RowRules&, std::size_t limit);

}  // namespace llm::app
