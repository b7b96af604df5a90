#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/checkpoint/model_directory.h"
#include "tutti/net/socket.h"

// What a chief (checkpoint_feed.h) and an evaluator on another disk (directory_mirror.h) say to
// each other. docs/formats/checkpoint-feed.md has the grammar.
namespace tutti {

// The name of the job in the handshake of such a connection.
inline constexpr const char* kFeedJob = "tutti-checkpoints";

inline constexpr size_t kMostFrameBytes = 8 << 20;
inline constexpr int64_t kMostReadBytes = 4 << 20;  // of a file, asked for at once
inline constexpr size_t kMostFiles = 100'000;       // of a checkpoint

enum class FeedType : uint8_t {
  kLook = 1,    // evaluator: what is there?
  kState = 2,   // chief: DirectoryState
  kOpen = 3,    // evaluator: a step; the checkpoint is not removed until the next kOpen or kLook
  kFiles = 4,   // chief: names and sizes
  kRead = 5,    // evaluator: a part of one of these files
  kBytes = 6,   // chief: the part
  kGone = 7,    // chief: why it cannot give what was asked for; a text
  kDone = 8,    // evaluator: has all there is of a training that is over
  kShared = 9,  // evaluator: sees the directory itself
};

struct FeedFrame {
  FeedType type = FeedType::kLook;
  std::string body = {};
};

// The chief's model directory at one moment.
struct DirectoryState {
  std::string holder = {};  // checkpoint::HolderOf; empty: no training has it
  std::optional<checkpoint::Finish> finish = {};
  std::vector<int64_t> steps = {};  // of its checkpoints, the newest first
  bool operator==(const DirectoryState&) const = default;
};

struct FeedFile {
  std::string name;
  int64_t bytes = 0;
  bool operator==(const FeedFile&) const = default;
};

struct FeedRead {
  std::string name;
  int64_t offset = 0;
  int64_t bytes = 0;
  bool operator==(const FeedRead&) const = default;
};

// Encoding and decoding of message bodies. The parsers accept any bytes; INVALID_ARGUMENT for a
// malformed body. File names are limited to those of a checkpoint's files (IsFileOfCheckpoint).
std::string BodyOf(const DirectoryState& state);
std::string BodyOf(const std::vector<FeedFile>& files);
std::string BodyOf(const FeedRead& read);
std::string BodyOfStep(int64_t step);
absl::StatusOr<DirectoryState> ParseState(std::string_view body);
absl::StatusOr<std::vector<FeedFile>> ParseFiles(std::string_view body);
absl::StatusOr<FeedRead> ParseRead(std::string_view body);
absl::StatusOr<int64_t> ParseStep(std::string_view body);
// "manifest.json" and what ends in ".safetensors", without a slash.
bool IsFileOfCheckpoint(std::string_view name);

// Frames over a connected socket. One thread sends and receives; Shutdown may be called by any.
class FeedChannel {
 public:
  explicit FeedChannel(net::Socket socket) : socket_(std::move(socket)) {}

  // Ends after `seconds` without a byte moved.
  absl::Status Send(FeedType type, std::string_view body, double seconds = 10);
  absl::StatusOr<FeedFrame> Receive(double seconds = 10);
  // Waits up to `seconds` for the beginning of a frame, or the end of the connection.
  bool Readable(double seconds);
  // Ends the connection; a Send or Receive that waits returns with an error.
  void Shutdown();

 private:
  absl::Status ReadAll(char* into, size_t bytes, double seconds);
  net::Socket socket_;
};

}  // namespace tutti
