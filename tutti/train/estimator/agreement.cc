#include "tutti/train/estimator/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "tutti/base/status.h"
#include "tutti/train/reporting/packed_text.h"
#include "tutti/train/strategies/peers.h"

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

void RequireAgreement(Peers& peers, std::string_view call, const std::vector<Fact>& facts) {
  if (peers.workers() == 1) return;
  std::vector<Fact> all = {{"call", std::string(call)}, {"version of Tutti", TUTTI_VERSION}};
  all.insert(all.end(), facts.begin(), facts.end());
  const std::vector<std::string> texts = peers.Gather("agreement", Pack(all));
  const std::vector<Fact> expected = Unpack(texts[0]);
  for (size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0] || texts[r].empty()) continue;  // empty: it is lost
    const std::vector<Fact> found = Unpack(texts[r]);
    if (!expected.empty() && !found.empty() && expected[0] != found[0]) {
      ThrowInvalidArgument(
          fmt::format("worker 0 is in Estimator::{}, but worker {} is in Estimator::{}; every "
                      "worker must make the same calls in the same order",
                      expected[0].second, r, found[0].second));
    }
    ThrowInvalidArgument(
        fmt::format("worker {} does not fit worker 0: {}; start all workers with the same program "
                    "and the same flags",
                    r, FirstDifference(expected, found)));
  }
}

}  // namespace tutti
