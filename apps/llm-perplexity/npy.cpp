// Format: NumPy Enhancement Proposal 1 (numpy.lib.format): magic, version, length of the header, a Python dictionary.
#include "npy.h"

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "common/input.h"

namespace llm::perplexity {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::string_view kFloat = std::endian::native == std::endian::little ? "<f4" : ">f4";
constexpr std::size_t kAlign = 64;
constexpr std::uint32_t kMaxHeader = 1 << 20;

constexpr std::string_view kSource = "# tokens sha256 ";

std::string header(std::uint64_t rows, std::uint64_t columns, const std::string& source) {
  std::string dictionary = "{'descr': '" + std::string(kFloat) + "', 'fortran_order': False, 'shape': (" +
                           std::to_string(rows) + ", " + std::to_string(columns) + "), }  " + std::string(kSource) +
                           source;
  const std::size_t before = kMagic.size() + 4;  // version, length
  const std::size_t unpadded = before + dictionary.size() + 1;
  dictionary.append((kAlign - unpadded % kAlign) % kAlign, ' ');
  dictionary += '\n';
  const auto length = static_cast<unsigned>(dictionary.size());
  return std::string(kMagic) + '\1' + '\0' + static_cast<char>(length & 0xff) + static_cast<char>(length >> 8) +
         dictionary;
}

/// What follows `'key':` in the dictionary, without leading spaces.
std::optional<std::string_view> value_of(std::string_view dictionary, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + std::string(key) + quote;
    std::size_t at = dictionary.find(quoted);
    if (at == std::string_view::npos) continue;
    at = dictionary.find_first_not_of(" ", at + quoted.size());
    if (at == std::string_view::npos || dictionary[at] != ':') return std::nullopt;
    at = dictionary.find_first_not_of(" ", at + 1);
    if (at == std::string_view::npos) return std::nullopt;
    return dictionary.substr(at);
  }
  return std::nullopt;
}

std::string source_in(std::string_view header) {
  const std::size_t at = header.find(kSource);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + kSource.size());
  return std::string(header.substr(0, header.find_first_not_of("0123456789abcdef")));
}

/// "(3, 4)"
std::optional<std::pair<std::uint64_t, std::uint64_t>> two_numbers(std::string_view text) {
  std::array<std::uint64_t, 2> n{};
  if (!text.starts_with('(')) return std::nullopt;
  text.remove_prefix(1);
  for (std::size_t i = 0; i < n.size(); ++i) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n[i]);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.starts_with(i == 0 ? ',' : ')')) return std::nullopt;
    text.remove_prefix(1);
  }
  return std::pair{n[0], n[1]};
}

}  // namespace

NpyWriter::NpyWriter(std::string path, std::uint64_t rows, std::uint64_t columns, const std::string& source)
    : path_(std::move(path)) {
  // Devices and pipes are written as they are: a rename would put a file in their place.
  std::error_code unknown;  // is told when the file is opened
  const auto kind = std::filesystem::status(path_, unknown).type();
  if (kind == std::filesystem::file_type::not_found || kind == std::filesystem::file_type::regular) {
    file_.emplace(path_);
  } else {
    stream_.open(path_, std::ios::binary | std::ios::trunc);
  }
  const std::string head = header(rows, columns, source);
  write_bytes(std::as_bytes(std::span(head)));
}

void NpyWriter::check_stream() const {
  if (stream_) return;
  const std::string why = errno != 0 ? std::strerror(errno) : "unknown reason";
  throw Error(ErrorKind::Io, ErrorParts{.file = path_, .problem = "cannot be written: " + why});
}

void NpyWriter::write_bytes(std::span<const std::byte> bytes) {
  if (file_) return file_->write(bytes);
  stream_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  check_stream();
}

void NpyWriter::write(std::span<const float> values) { write_bytes(std::as_bytes(values)); }

void NpyWriter::finish() {
  if (file_) return file_->put_in_place();
  stream_.close();
  check_stream();
}

void require_npy_or_nothing(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown) || std::filesystem::file_size(path, unknown) == 0) return;
  std::array<char, kMagic.size()> begin{};
  std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
  if (std::string_view(begin.data(), begin.size()) == kMagic) return;
  throw Error(ErrorKind::Usage, ErrorParts{.file = path, .problem = "is there already and is no .npy file"});
}

NpyReader::NpyReader(std::string path) : path_(std::move(path)), in_(app::regular_file(path_), std::ios::binary) {
  if (!in_) {
    throw Error(ErrorKind::Usage,
                ErrorParts{.file = path_, .problem = std::string("cannot read: ") + std::strerror(errno)});
  }
  read_header();
}

void NpyReader::read_header() {
  std::array<unsigned char, 8> start{};
  read_bytes(reinterpret_cast<char*>(start.data()), start.size());
  if (std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0) fail("is not an .npy file");
  const unsigned version = start[6];
  if (version < 1 || version > 3) fail("has .npy version " + std::to_string(version) + "; 1 to 3 are known");
  std::array<unsigned char, 4> size{};
  read_bytes(reinterpret_cast<char*>(size.data()), version == 1 ? 2 : 4);
  const std::uint32_t length = size[0] | size[1] * 0x100u | size[2] * 0x10000u | size[3] * 0x1000000u;
  if (length > kMaxHeader) fail("has an .npy header of " + std::to_string(length) + " bytes");
  std::string dictionary(length, ' ');
  read_bytes(dictionary.data(), dictionary.size());

  const auto type = value_of(dictionary, "descr"), order = value_of(dictionary, "fortran_order"),
             shape = value_of(dictionary, "shape");
  if (!type || type->substr(1, kFloat.size()) != kFloat) fail("holds other numbers than f32 of this machine");
  if (!order || !order->starts_with("False")) fail("is not in C order");
  const auto dims = shape ? two_numbers(*shape) : std::nullopt;
  if (!dims) fail("is not a matrix");
  std::tie(rows_, columns_) = *dims;
  source_ = source_in(dictionary);

  const auto begin = static_cast<std::uint64_t>(in_.tellg());
  const auto elements = checked_mul(rows_, columns_);
  const auto bytes = elements ? checked_mul(*elements, std::uint64_t{sizeof(float)}) : std::nullopt;
  in_.seekg(0, std::ios::end);
  if (!bytes || static_cast<std::uint64_t>(in_.tellg()) - begin < *bytes) fail("is cut short");
  in_.seekg(static_cast<std::streamoff>(begin));
}

void NpyReader::read(std::span<float> values) {
  if (in_.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()))) return;
  throw Error(ErrorKind::Io, ErrorParts{.file = path_, .problem = "was cut while it was read"});
}

void NpyReader::read_bytes(char* data, std::size_t n) {
  if (!in_.read(data, static_cast<std::streamsize>(n))) fail("is cut short");
}

void NpyReader::fail(std::string problem) const {
  throw Error(ErrorKind::Usage, ErrorParts{.file = path_, .problem = std::move(problem)});
}

}  // namespace llm::perplexity
