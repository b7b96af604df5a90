// Writes what a disk may hold after a crash in the middle of recorded system calls.
//
//   crash_states ROOT CALLS OUT STATES SEED
//
// ROOT is the directory as it was before, all of it durable. CALLS has one JSON object a line:
//   {"kind": "write", "path": "/root/a", "offset": 0, "data": "00ff"}
// (recorded_calls.py makes them from what strace recorded). Makes OUT/0, OUT/1, ... and prints a
// line of JSON for each: how many calls came before, and whether "killed" (all of them are there)
// or "power lost" (what was not synced is there, or not, or in part:
// testing/checkpoint/crash_model.h). Goes on when it has read a line.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "tutti/testing/checkpoint/crash_model.h"

namespace tutti::testing {
namespace {

FileCall Parse(const std::string& line) {
  static const std::map<std::string, FileCall::Kind> kinds = {
      {"mkdir", FileCall::kMakeDirectory}, {"create", FileCall::kCreate},
      {"write", FileCall::kWrite},         {"allocate", FileCall::kAllocate},
      {"truncate", FileCall::kTruncate},   {"sync", FileCall::kSync},
      {"rename", FileCall::kRename},       {"exchange", FileCall::kExchange},
      {"remove", FileCall::kRemove}};
  const nlohmann::json json = nlohmann::json::parse(line);
  FileCall call{.kind = kinds.at(json.at("kind")), .path = json.at("path")};
  call.other = json.value("other", "");
  call.offset = json.value("offset", int64_t{0});
  const std::string hex = json.value("data", "");
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    call.data += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return call;
}

int Run(const std::string& root, const std::string& calls_path, const std::string& out, int states,
        uint32_t seed) {
  std::vector<FileCall> calls;
  std::ifstream file(calls_path);
  for (std::string line; std::getline(file, line);) calls.push_back(Parse(line));
  CrashModel model(root);
  std::mt19937 random(seed);
  const int a_prefix = std::max(2, states / int(calls.size() + 1) + 1);
  int number = 0;
  for (size_t prefix = 0; prefix <= calls.size(); ++prefix) {
    // First all of it, then nothing that was not synced, then any part.
    for (int k = 0; k < a_prefix; ++k) {
      model.Crash(fmt::format("{}/{}", out, number++), random, k == 0 ? 1 : k == 1 ? 0 : 0.5);
      fmt::print("{{\"calls\": {}, \"of\": {}, \"crash\": \"{}\"}}\n", prefix, calls.size(),
                 k == 0 ? "killed" : "power lost");
      std::fflush(stdout);
      if (std::string line; !std::getline(std::cin, line)) return 1;
    }
    if (prefix < calls.size()) model.Apply(calls[prefix]);
  }
  return 0;
}

}  // namespace
}  // namespace tutti::testing

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "usage: crash_states ROOT CALLS OUT STATES SEED\n");
    return 2;
  }
  return tutti::testing::Run(argv[1], argv[2], argv[3], std::atoi(argv[4]),
                             uint32_t(std::atoll(argv[5])));
}
