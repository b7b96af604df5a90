// Any bytes on a data connection: the reader of frames asks for memory that is there, ends frames
// only whose checksum is right, and takes the same frames however the bytes are cut. Headers that
// parse are written as the bytes they came from.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/net/tcp/frame.h"
#include "tutti/net/tcp/frame_reader.h"

namespace {

using tutti::net::tcp::FrameHeader;

// Remembers the frames, with their payloads checked again.
class Frames final : public tutti::net::tcp::FrameSink {
 public:
  absl::Status BeginFrame(const FrameHeader& header, std::byte** target) override {
    payload_.assign(header.payload, std::byte{0});
    *target = payload_.data();
    return absl::OkStatus();
  }
  absl::Status EndFrame(const FrameHeader& header, std::byte* payload) override {
    TUTTI_CHECK(payload == payload_.data());
    TUTTI_CHECK(tutti::net::tcp::Crc32c(payload_) == header.payload_crc);
    TUTTI_CHECK(*tutti::net::tcp::ParseHeader(tutti::net::tcp::EncodeHeader(header)) == header);
    headers.push_back(header);
    return absl::OkStatus();
  }

  std::vector<FrameHeader> headers;

 private:
  std::vector<std::byte> payload_;
};

// What a reader makes of the bytes when they come in pieces of that size.
std::vector<FrameHeader> Read(const uint8_t* data, size_t size, size_t piece, size_t read_ahead) {
  int fds[2];
  TUTTI_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  Frames frames;
  tutti::net::tcp::FrameReader reader(read_ahead);
  for (size_t begin = 0, count; begin < size; begin += count) {
    count = std::min(piece, size - begin);
    TUTTI_CHECK(write(fds[1], data + begin, count) == static_cast<ssize_t>(count));
    if (!reader.Read(fds[0], SIZE_MAX, &frames).status.ok()) break;
  }
  close(fds[0]);
  close(fds[1]);
  return frames.headers;
}

// The same bytes with right checksums wherever a header would be looked for, so that mutations
// reach what lies behind them.
std::vector<uint8_t> Mend(const uint8_t* data, size_t size) {
  using tutti::net::tcp::kHeaderBytes;
  constexpr size_t kLengthAt = 40, kPayloadCrcAt = 44, kHeaderCrcAt = 48;
  std::vector<uint8_t> bytes(data, data + size);
  const auto crc = [&](size_t begin, size_t count) {
    return tutti::net::tcp::Crc32c(std::as_bytes(std::span(bytes).subspan(begin, count)));
  };
  for (size_t at = 0; at + kHeaderBytes <= size;) {
    bytes[at] = bytes[at + 1] = 't';
    uint32_t length;
    std::memcpy(&length, bytes.data() + at + kLengthAt, sizeof(length));
    if (length > size - at - kHeaderBytes) length %= size - at - kHeaderBytes + 1;
    std::memcpy(bytes.data() + at + kLengthAt, &length, sizeof(length));
    const uint32_t payload_crc = crc(at + kHeaderBytes, length);
    std::memcpy(bytes.data() + at + kPayloadCrcAt, &payload_crc, sizeof(payload_crc));
    const uint32_t header_crc = crc(at, kHeaderCrcAt);
    std::memcpy(bytes.data() + at + kHeaderCrcAt, &header_crc, sizeof(header_crc));
    at += kHeaderBytes + length;
  }
  return bytes;
}

void Compare(const uint8_t* data, size_t size, size_t piece) {
  TUTTI_CHECK(Read(data, size, piece, tutti::net::tcp::kHeaderBytes) ==
              Read(data, size, SIZE_MAX, 16 << 10));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMost = 32 << 10;  // what the pair of sockets surely holds
  size = std::min(size, kMost);
  if (size == 0) return 0;
  const size_t piece = 1 + data[size - 1] % 100;
  Compare(data, size, piece);
  const std::vector<uint8_t> mended = Mend(data, size);
  Compare(mended.data(), mended.size(), piece);
  return 0;
}
