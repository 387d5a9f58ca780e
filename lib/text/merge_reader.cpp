#include "text/merge_reader.h"

#include <string>

#include "text/byte_map.h"

namespace llm {
namespace {

/// Counts of merges that cannot act, for one warning.
struct IgnoredMerges {
  std::size_t malformed = 0, unknown = 0, repeated = 0;
  std::size_t example = 0;

  void count(std::size_t& which, std::size_t i) {
    if (malformed + unknown + repeated == 0) example = i;
    ++which;
  }
  void warn(std::span<const std::string_view> merges, Warnings& warnings) const {
    if (malformed + unknown + repeated == 0) return;
    const auto part = [](std::size_t n, std::string_view what) {
      return n == 0 ? std::string() : " " + std::to_string(n) + " " + std::string(what) + ";";
    };
    warnings.push_back({"merges-ignored", std::string(kMergesKey) + ":" +
                                              part(malformed, "not of the form \"left right\"") +
                                              part(unknown, "of which a part or the result is no token") +
                                              part(repeated, "repeated, the first counts") + " ignored (entry " +
                                              std::to_string(example) + ": \"" + escaped(merges[example]) + "\")"});
  }
};

}  // namespace

/// One entry of the list: its parts as bytes, one after the other at `begin` of the batch's bytes, then as tokens.
struct MergeEntry {
  bool well_formed, mapped;
  std::size_t begin, cut, end;
  std::uint64_t left_hash = 0, right_hash = 0;
  Token left = kNoToken, right = kNoToken, result = kNoToken;
};

namespace {

bool append_spelled(std::string_view text, TextForm form, std::string& bytes) {
  if (form == TextForm::Bytes) return byte_map::append_bytes(text, bytes);
  bytes += text;
  return true;
}

MergeEntry split_merge(std::string_view merge, TextForm form, std::string& bytes) {
  const std::size_t begin = bytes.size();
  const std::size_t space = merge.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == merge.size()) return {false, false, begin, begin, begin};
  const bool left = append_spelled(merge.substr(0, space), form, bytes);
  const std::size_t cut = bytes.size();
  const bool right = append_spelled(merge.substr(space + 1), form, bytes);
  return {true, left && right, begin, cut, bytes.size()};
}

}  // namespace

MergeTable MergeReader::read(const Metadata& metadata, Warnings& warnings) {
  const Metadata::Entry* entry = metadata.find(kMergesKey);
  const bool is_list = entry != nullptr && entry->type == GgufType::Array && entry->element == GgufType::String;
  if (!is_list) metadata.array<std::string_view>(kMergesKey);  // throws, naming what is wrong
  const std::span<const std::string_view> merges = entry->strings;
  merges_ = MergeTable(merges.size());
  IgnoredMerges ignored;
  Token result = 0;
  // In batches, so that the tables' memory is on its way before it is needed: this is most of a large vocabulary's
  // load.
  constexpr std::size_t kBatch = 64;
  std::string bytes;
  std::vector<MergeEntry> batch;
  for (std::size_t base = 0; base < merges.size(); base += kBatch) {
    bytes.clear();
    batch.clear();
    for (std::size_t i = base; i < std::min(base + kBatch, merges.size()); ++i) {
      batch.push_back(split_merge(merges[i], form_, bytes));
    }
    find_merge_tokens(bytes, batch, result);
    for (std::size_t k = 0; k < batch.size(); ++k) {
      const MergeEntry& m = batch[k];
      if (!m.well_formed) {
        ignored.count(ignored.malformed, base + k);
      } else if (m.result == kNoToken) {
        ignored.count(ignored.unknown, base + k);
      } else if (!merges_.insert(m.left, m.right, {static_cast<std::uint32_t>(base + k), m.result})) {
        ignored.count(ignored.repeated, base + k);
      }
    }
  }
  ignored.warn(merges, warnings);
  return std::move(merges_);
}

/// Fills in the tokens of a batch; `previous` is the last merge's result.
void MergeReader::find_merge_tokens(std::string_view bytes, std::span<MergeEntry> batch, Token& previous) {
  const auto left_text = [bytes](const MergeEntry& m) { return bytes.substr(m.begin, m.cut - m.begin); };
  const auto right_text = [bytes](const MergeEntry& m) { return bytes.substr(m.cut, m.end - m.cut); };
  for (MergeEntry& m : batch) {
    table_.prefetch(m.left_hash = hash_bytes(left_text(m)));
    table_.prefetch(m.right_hash = hash_bytes(right_text(m)));
  }
  for (MergeEntry& m : batch) {
    if (!m.mapped) continue;
    m.left = table_.find(left_text(m), m.left_hash, texts_);
    m.right = table_.find(right_text(m), m.right_hash, texts_);
    if (m.left == kNoToken || m.right == kNoToken) continue;
    const Token joined = result_of(bytes.substr(m.begin, m.end - m.begin), previous);
    if (joined == kNoToken || !vocabulary_.encodes_text(joined)) continue;
    m.result = previous = joined;
    merges_.prefetch(m.left, m.right);
  }
}

/// The token of a merge's joined text: as a rule that of the merge before or the one after it.
Token MergeReader::result_of(std::string_view both, Token previous) {
  if (all_different_) {  // else a later one of equal tokens could be found
    const auto at = static_cast<std::size_t>(previous);
    if (texts_[at] == both) return previous;
    if (at + 1 < texts_.size() && texts_[at + 1] == both) return previous + 1;
  }
  return table_.find(both, texts_);
}

}  // namespace llm
