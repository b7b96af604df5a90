// A link's inbox with a peer that sends anything: it never crashes, never asks for places of
// unchecked sizes without being told, and hands over only messages that came whole.
//
// Input: the first byte's lowest bits say whether the link is open, and whether checksums are made
// right (else nothing gets past them); the second byte + 1 is the size of the pieces; then frames.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/status.h"
#include "tutti/net/link/inbox.h"
#include "tutti/net/tcp/frame.h"
#include "tutti/net/wire.h"

namespace {

using tutti::net::AsBytes;
using tutti::net::Bytes;
using tutti::net::Payload;
using tutti::net::link::FrameHead;
using tutti::net::link::Inbox;
using tutti::net::link::kHeadBytes;

class Reader final : public Inbox::Reader {
 public:
  absl::Status OnControl(const FrameHead&, std::string_view) override { return absl::OkStatus(); }
  absl::Status Place(std::string_view, std::span<const uint64_t> sizes,
                     std::span<Bytes> places) override {
    uint64_t total = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      total += sizes[i];
      if (total > (1 << 20)) return tutti::ResourceExhausted("too much for this test");
      memory_.emplace_back(sizes[i]);
      places[i] = memory_.back();
    }
    return absl::OkStatus();
  }
  absl::Status OnMessage(std::string_view header, std::vector<Payload> payloads) override {
    size_t bytes = header.size();
    for (const Payload& payload : payloads) {
      for (const std::byte byte : payload.bytes) bytes += byte == std::byte{0};
    }
    TUTTI_CHECK(bytes < (size_t{1} << 32));
    memory_.clear();
    return absl::OkStatus();
  }
  std::shared_ptr<const void> Lease(
      uint64_t, std::vector<std::shared_ptr<const tutti::net::shm::SharedPages>>) override {
    TUTTI_CHECK(false);  // no file ever came
    return nullptr;
  }

 private:
  std::vector<std::vector<std::byte>> memory_;
};

// Makes the checksums of the first head right, and of the body behind it if it is there.
void MendChecksums(std::string* bytes) {
  size_t at = 0;
  while (at + kHeadBytes <= bytes->size()) {
    uint32_t text = 0, payloads = 0;
    std::memcpy(&text, bytes->data() + at + 4, sizeof(text));
    std::memcpy(&payloads, bytes->data() + at + 8, sizeof(payloads));
    const uint64_t body = text + uint64_t{payloads} * 20;
    if (body > bytes->size() - at - kHeadBytes) break;
    const uint32_t body_crc =
        tutti::net::tcp::Crc32c(AsBytes(std::string_view(*bytes).substr(at + kHeadBytes, body)));
    std::memcpy(bytes->data() + at + 20, &body_crc, sizeof(body_crc));
    const uint32_t head_crc =
        tutti::net::tcp::Crc32c(AsBytes(std::string_view(*bytes).substr(at, 24)));
    std::memcpy(bytes->data() + at + 24, &head_crc, sizeof(head_crc));
    at += kHeadBytes + body;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  if ((data[0] & 2) != 0) MendChecksums(&bytes);
  Reader reader;
  Inbox inbox(&reader);
  if ((data[0] & 1) != 0) inbox.Open(/*joins_memory=*/true);
  const size_t piece = size_t{data[1]} + 1;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    if (!inbox.Consume(AsBytes(std::string_view(bytes).substr(at, piece))).ok()) break;
  }
  return 0;
}
