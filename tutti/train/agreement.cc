#include "tutti/train/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tutti/base/status.h"
#include "tutti/collective/communicator.h"
#include "tutti/train/packed_text.h"

namespace tutti {
namespace {

std::string Pack(const std::vector<Fact>& facts) {
  std::vector<Record> records;
  for (const auto& [name, value] : facts) records.push_back({name, value});
  return PackRecords(records);
}

std::vector<Fact> Unpack(const std::string& text) {
  std::vector<Fact> facts;
  for (const Record& record : UnpackRecords(text)) {
    if (record.size() == 2) facts.emplace_back(record[0], record[1]);
  }
  return facts;
}

}  // namespace

std::vector<std::string> GatherTexts(collective::Communicator& communicator, std::string_view key,
                                     std::string_view own) {
  collective::Group& world = communicator.world();
  const auto ranks = size_t(world.size());
  const auto rank = size_t(world.rank());
  std::vector<int64_t> lengths(ranks);
  lengths[rank] = int64_t(own.size());
  const std::string length_key = fmt::format("{}/length", key);
  ThrowIfError(world.AllGather(lengths.data(), 1, kInt64, {.key = length_key}).Wait());
  // Texts travel in whole numbers.
  std::vector<int64_t> counts(ranks);
  int64_t total = 0, before = 0;
  for (size_t r = 0; r < ranks; ++r) {
    counts[r] = (lengths[r] + 3) / 4;
    if (r < rank) before += counts[r];
    total += counts[r];
  }
  std::vector<int32_t> all(size_t(std::max<int64_t>(total, 1)));
  std::memcpy(all.data() + before, own.data(), own.size());
  ThrowIfError(world.AllGatherV(all.data(), counts, kInt32, {.key = key}).Wait());
  std::vector<std::string> texts;
  const int32_t* from = all.data();
  for (size_t r = 0; r < ranks; ++r) {
    texts.emplace_back(reinterpret_cast<const char*>(from), size_t(lengths[r]));
    from += counts[r];
  }
  return texts;
}

std::string FirstDifference(const std::vector<Fact>& expected, const std::vector<Fact>& found) {
  for (size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
    if (i >= found.size()) return fmt::format("{} is missing", expected[i].first);
    if (i >= expected.size() || expected[i].first != found[i].first) {
      return fmt::format("it has {} {}{}", found[i].first, found[i].second,
                         i < expected.size() ? fmt::format(", expected {} {}", expected[i].first,
                                                           expected[i].second)
                                             : "");
    }
    if (expected[i].second != found[i].second) {
      return fmt::format("{} is {}, expected {}", found[i].first, found[i].second,
                         expected[i].second);
    }
  }
  return "";
}

// FNV-1a.
std::string Digest(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) hash = (hash ^ uint8_t(byte)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

void RequireAgreement(collective::Communicator& communicator, const std::vector<Fact>& facts) {
  const std::string own = Pack({{"version of Tutti", TUTTI_VERSION}}) + Pack(facts);
  const std::vector<std::string> texts = GatherTexts(communicator, "agreement", own);
  const std::vector<Fact> expected = Unpack(texts[0]);
  for (size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    ThrowInvalidArgument(
        fmt::format("worker {} does not fit worker 0: {}; start all workers with the same program "
                    "and the same flags",
                    r, FirstDifference(expected, Unpack(texts[r]))));
  }
}

}  // namespace tutti
