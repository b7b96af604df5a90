#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/base/status.h"

namespace tutti {

// A record as TensorFlow's record files frame it: the length as 8 bytes, its masked CRC32C as 4,
// the data, their masked CRC32C as 4; all little-endian.
std::string FrameRecord(std::string_view data);

// A file of TensorBoard events, which is appended to: DIR/events.out.tfevents.SECONDS.HOST.PID.
// Events are handed to the system one by one, so that a reader sees them at once, and none is torn
// by the end of this process. Not thread-safe.
class EventFile {
 public:
  EventFile() = default;
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Makes the directory and the file.
  absl::Status Open(const std::string& directory);
  bool is_open() const { return file_ >= 0; }
  const std::string& path() const { return path_; }

  // Appends an event: a serialised tensorflow.Event.
  absl::Status Write(std::string_view event);

 private:
  int file_ = -1;
  std::string path_;
};

}  // namespace tutti
