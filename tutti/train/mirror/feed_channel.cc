#include "tutti/train/mirror/feed_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <span>

#include "tutti/base/clock.h"
#include "tutti/checkpoint/manifest.h"
#include "tutti/net/wire.h"

namespace tutti {
namespace {

using net::WireReader;
using net::WireWriter;

constexpr size_t kHeaderBytes = 5;      // length of the body u32, type u8
constexpr size_t kMostSteps = 100'000;  // of checkpoints in a directory

absl::Status Malformed(std::string_view what) {
  return InvalidArgument("the message about {} is malformed; does the other end run this version?",
                         what);
}

int64_t DeadlineIn(double seconds) { return NowNanos() + int64_t(seconds * 1e9); }

}  // namespace

bool IsFileOfCheckpoint(std::string_view name) {
  if (name == checkpoint::kManifestName) return true;
  return name.ends_with(".safetensors") && name.size() <= 255 && name.front() != '.' &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

std::string BodyOf(const DirectoryState& state) {
  std::string body;
  WireWriter writer(&body);
  writer.Text32(state.holder);
  writer.U8(state.finish ? 1 : 0);
  writer.I64(state.finish ? state.finish->step : 0);
  writer.Text32(state.finish ? state.finish->until : "");
  writer.U32(uint32_t(state.steps.size()));
  for (const int64_t step : state.steps) writer.I64(step);
  return body;
}

absl::StatusOr<DirectoryState> ParseState(std::string_view body) {
  WireReader reader(body);
  DirectoryState state;
  state.holder = reader.Text32();
  const bool finished = reader.U8() != 0;
  checkpoint::Finish finish = {.step = reader.I64(), .until = std::string(reader.Text32())};
  if (finished) state.finish = std::move(finish);
  const size_t count = reader.U32();
  if (count > kMostSteps || reader.remaining() != 8 * count) return Malformed("a directory");
  for (size_t i = 0; i < count; ++i) state.steps.push_back(reader.I64());
  if (!reader.Complete()) return Malformed("a directory");
  // "finished" is one line.
  if (finished && state.finish->until.find('\n') != std::string::npos) {
    return Malformed("a directory");
  }
  for (size_t i = 0; i < count; ++i) {
    if (state.steps[i] < 0 || (i > 0 && state.steps[i] >= state.steps[i - 1])) {
      return Malformed("a directory");
    }
  }
  return state;
}

std::string BodyOf(const std::vector<FeedFile>& files) {
  std::string body;
  WireWriter writer(&body);
  writer.U32(uint32_t(files.size()));
  for (const FeedFile& file : files) {
    writer.Text16(file.name);
    writer.I64(file.bytes);
  }
  return body;
}

absl::StatusOr<std::vector<FeedFile>> ParseFiles(std::string_view body) {
  WireReader reader(body);
  std::vector<FeedFile> files;
  const size_t count = reader.U32();
  if (count > kMostFiles) return Malformed("files");
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    FeedFile file;
    file.name = reader.Text16();
    file.bytes = reader.I64();
    if (!IsFileOfCheckpoint(file.name) || file.bytes < 0) return Malformed("files");
    files.push_back(std::move(file));
  }
  if (!reader.Complete()) return Malformed("files");
  return files;
}

std::string BodyOf(const FeedRead& read) {
  std::string body;
  WireWriter writer(&body);
  writer.Text16(read.name);
  writer.I64(read.offset);
  writer.I64(read.bytes);
  return body;
}

absl::StatusOr<FeedRead> ParseRead(std::string_view body) {
  WireReader reader(body);
  FeedRead read;
  read.name = reader.Text16();
  read.offset = reader.I64();
  read.bytes = reader.I64();
  if (!reader.Complete() || !IsFileOfCheckpoint(read.name) || read.offset < 0 || read.bytes < 1 ||
      read.bytes > kMostReadBytes) {
    return Malformed("a part of a file");
  }
  return read;
}

std::string BodyOfStep(int64_t step) {
  std::string body;
  WireWriter(&body).I64(step);
  return body;
}

absl::StatusOr<int64_t> ParseStep(std::string_view body) {
  WireReader reader(body);
  const int64_t step = reader.I64();
  if (!reader.Complete() || step < 0) return Malformed("a step");
  return step;
}

absl::Status FeedChannel::Send(FeedType type, std::string_view body, double seconds) {
  std::string frame;
  frame.reserve(kHeaderBytes + body.size());
  WireWriter writer(&frame);
  writer.U32(uint32_t(body.size()));
  writer.U8(uint8_t(type));
  writer.Raw(body);
  return net::WriteAll(socket_.fd(), frame, DeadlineIn(seconds));
}

absl::Status FeedChannel::ReadAll(char* into, size_t bytes, double seconds) {
  for (size_t done = 0; done < bytes;) {
    const net::IoResult result =
        net::ReadSome(socket_.fd(), std::as_writable_bytes(std::span(into + done, bytes - done)));
    switch (result.kind) {
      case net::IoResult::Kind::kMoved:
        done += result.bytes;
        break;
      case net::IoResult::Kind::kAgain:
        TUTTI_RETURN_IF_ERROR(net::WaitFor(socket_.fd(), POLLIN, DeadlineIn(seconds)));
        break;
      case net::IoResult::Kind::kClosed:
        return Unavailable("the connection was closed");
      case net::IoResult::Kind::kError:
        return Unavailable("the connection broke: {}", net::ErrnoText(result.error));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FeedFrame> FeedChannel::Receive(double seconds) {
  std::string header(kHeaderBytes, '\0');
  TUTTI_RETURN_IF_ERROR(ReadAll(header.data(), header.size(), seconds));
  WireReader reader(header);
  const size_t bytes = reader.U32();
  const uint8_t type = reader.U8();
  if (bytes > kMostFrameBytes || type < uint8_t(FeedType::kLook) ||
      type > uint8_t(FeedType::kShared)) {
    return Malformed("checkpoints");
  }
  FeedFrame frame{FeedType(type), std::string(bytes, '\0')};
  TUTTI_RETURN_IF_ERROR(ReadAll(frame.body.data(), bytes, seconds));
  return frame;
}

bool FeedChannel::Readable(double seconds) {
  return net::WaitFor(socket_.fd(), POLLIN, DeadlineIn(seconds)).ok();
}

void FeedChannel::Shutdown() { ::shutdown(socket_.fd(), SHUT_RDWR); }

}  // namespace tutti
