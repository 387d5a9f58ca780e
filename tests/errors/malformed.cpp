#include "malformed.h"

#include <iterator>

namespace llm::test {

void patch(Bytes& file, std::size_t at, std::uint64_t value) { std::memcpy(file.data() + at, &value, sizeof value); }
void patch32(Bytes& file, std::size_t at, std::uint32_t value) { std::memcpy(file.data() + at, &value, sizeof value); }

Bytes changed(RawGguf base, const std::function<void(RawGguf&)>& change) {
  change(base);
  return base.build();
}

std::vector<MalformedFile> malformed_files() {
  std::vector<MalformedFile> out;
  for (const auto group : {control_files, header_files, metadata_files, directory_files, hyper_parameter_files,
                           tokenizer_files, weight_files, template_files, split_files}) {
    std::vector<MalformedFile> files = group();
    out.insert(out.end(), std::make_move_iterator(files.begin()), std::make_move_iterator(files.end()));
  }
  return out;
}

}  // namespace llm::test
