// The SHA-256 sums that files should have: one, or a list as sha256sum writes it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace llm::inspect {

/// 64 hexadecimal digits.
bool is_sha256(std::string_view text);

/// The sums that files should have: one, or a list of names with sums.
class ExpectedSums {
 public:
  /// `given`: 64 digits, or a file with lines as sha256sum writes them, or with one sum alone. Throws ErrorKind::Usage.
  explicit ExpectedSums(const std::string& given);
  /// The sum of a file: of the lines with its name without folders the one whose folders are most of the file's. A sum
  /// without a name is that of the only file. Throws ErrorKind::Usage if there is none, or none that is it for certain.
  std::string sum_of(const std::filesystem::path& file, std::size_t n_files) const;

 private:
  struct Line {
    std::string sum;
    std::filesystem::path path;
  };
  Line read(std::string_view line) const;
  std::string given_;
  std::vector<Line> lines_;
};

}  // namespace llm::inspect
