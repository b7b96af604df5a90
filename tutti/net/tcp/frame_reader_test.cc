#include "tutti/net/tcp/frame_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/wire.h"

namespace tutti::net::tcp {
namespace {

// The frames of a reader, with their payloads.
struct Frames final : FrameSink {
  absl::Status BeginFrame(const FrameHeader& header, std::byte** target) override {
    payload.assign(header.payload, std::byte{0});
    *target = payload.data();
    return absl::OkStatus();
  }
  absl::Status EndFrame(const FrameHeader& header, std::byte* /*payload*/) override {
    frames.emplace_back(header, payload);
    return absl::OkStatus();
  }
  std::vector<std::byte> payload;
  std::vector<std::pair<FrameHeader, std::vector<std::byte>>> frames;
};

struct Result {
  absl::Status status;
  bool inside_frame = false;
  std::vector<std::pair<FrameHeader, std::vector<std::byte>>> frames;
};

// What comes of the bytes when they arrive in pieces.
Result ReadInPieces(std::string_view bytes, size_t piece, size_t read_ahead) {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  Frames frames;
  FrameReader reader(read_ahead);
  Result result;
  for (size_t begin = 0; begin < bytes.size() && result.status.ok(); begin += piece) {
    const std::string_view part = bytes.substr(begin, piece);
    EXPECT_EQ(write(fds[1], part.data(), part.size()), static_cast<ssize_t>(part.size()));
    result.status = reader.Read(fds[0], SIZE_MAX, &frames).status;
  }
  result.inside_frame = reader.inside_frame();
  result.frames = std::move(frames.frames);
  close(fds[0]);
  close(fds[1]);
  return result;
}

std::string Frame(FrameHeader header, std::string_view payload) {
  header.payload = static_cast<uint32_t>(payload.size());
  header.payload_crc = Crc32c(AsBytes(payload));
  return std::string(AsText(EncodeHeader(header))) + std::string(payload);
}

TEST(FrameReaderTest, FindsTheSameFramesHoweverTheBytesAreCut) {
  std::string bytes;
  for (uint32_t i = 0; i < 20; ++i) {
    const std::string payload(i * i * 5, static_cast<char>('a' + i));
    bytes += Frame({.kind = FrameKind::kEager, .index = i, .total = payload.size()}, payload);
  }
  const Result whole = ReadInPieces(bytes, bytes.size(), 16 << 10);
  ASSERT_EQ(whole.frames.size(), 20u);
  EXPECT_EQ(whole.frames[19].second.size(), 1805u);
  EXPECT_FALSE(whole.inside_frame);
  for (const size_t piece : {1, 7, 51, 52, 53, 1000}) {
    for (const size_t read_ahead : {kHeaderBytes, kHeaderBytes + 1, size_t{1024}}) {
      const Result result = ReadInPieces(bytes, piece, read_ahead);
      EXPECT_TRUE(result.status.ok());
      EXPECT_TRUE(result.frames == whole.frames) << piece << " " << read_ahead;
    }
  }
  EXPECT_TRUE(ReadInPieces(bytes.substr(0, bytes.size() - 1), 100, 1024).inside_frame);
  EXPECT_TRUE(ReadInPieces(bytes.substr(0, 10), 100, 1024).inside_frame);
}

TEST(FrameReaderTest, StopsAtADamagedPayload) {
  std::string bytes = Frame({.kind = FrameKind::kEager, .total = 5}, "right") +
                      Frame({.kind = FrameKind::kEager, .total = 5}, "wrong") +
                      Frame({.kind = FrameKind::kEager, .total = 5}, "right");
  bytes[2 * kHeaderBytes + 5 + 2] ^= 1;
  const Result result = ReadInPieces(bytes, bytes.size(), 1024);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(result.frames.size(), 1u);
}

TEST(FrameReaderTest, TellsTheEndOfAConnection) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  Frames frames;
  FrameReader reader(1024);
  EXPECT_FALSE(reader.Read(fds[0], SIZE_MAX, &frames).closed);
  const std::string bytes = Frame({.kind = FrameKind::kEager, .total = 5}, "right");
  ASSERT_EQ(write(fds[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  close(fds[1]);
  FrameReader::Outcome outcome = reader.Read(fds[0], SIZE_MAX, &frames);
  if (!outcome.closed) outcome = reader.Read(fds[0], SIZE_MAX, &frames);
  EXPECT_TRUE(outcome.closed);
  EXPECT_EQ(outcome.error, 0);
  EXPECT_EQ(frames.frames.size(), 1u);
  close(fds[0]);
}

TEST(FrameReaderTest, ReplaysTheFuzzersCorpus) {
  const std::filesystem::path folder =
      std::filesystem::path(TUTTI_SOURCE_DIR) / "tests/fuzz/corpus/data_plane";
  int good = 0;
  int bad = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const Result whole = ReadInPieces(bytes, std::max<size_t>(bytes.size(), 1), 16 << 10);
    const Result pieces = ReadInPieces(bytes, 3, kHeaderBytes);
    EXPECT_TRUE(whole.frames == pieces.frames);
    EXPECT_EQ(whole.status, pieces.status);
    ++(whole.status.ok() && !whole.inside_frame ? good : bad);
  }
  EXPECT_GE(good, 12);
  EXPECT_GE(bad, 8);
}

}  // namespace
}  // namespace tutti::net::tcp
