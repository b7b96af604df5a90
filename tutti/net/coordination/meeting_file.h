#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tutti::net {

// A file in which rank 0 tells where it listens, for ranks that share a file system with it. Job
// and generation tell it from one that an earlier run left behind.
struct MeetingFile {
  std::string address;
  std::string job;
  int64_t generation = 0;
  std::string token = {};  // of the job, where the file brings it; empty: it does not
  bool operator==(const MeetingFile&) const = default;
};

// Written beside and renamed: a reader sees the whole file or none.
// REQUIRES: no line breaks in address, job and token.
absl::Status WriteMeetingFile(const std::string& path, const MeetingFile& file);
// NOT_FOUND if there is none; INVALID_ARGUMENT if it is something else; PERMISSION_DENIED if it has
// a token and others than this user could have written or read it.
absl::StatusOr<MeetingFile> ReadMeetingFile(const std::string& path);
// Removes the file if it still says this.
void RemoveMeetingFile(const std::string& path, const MeetingFile& file);

}  // namespace tutti::net
