#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/link/frame.h"
#include "tutti/net/link/link.h"
#include "tutti/net/shm/shared_pages.h"

namespace tutti::net::link {

// What comes in through a link: takes bytes from the socket, and hands over frames and messages.
// Payloads go straight from the socket to where they belong; those in shared memory are shown where
// they are. Used by the links' thread alone.
class Inbox {
 public:
  // Is told of what came. An error ends the link.
  class Reader {
   public:
    virtual absl::Status OnControl(const FrameHead& head, std::string_view text) = 0;
    virtual absl::Status Place(std::string_view header, std::span<const uint64_t> sizes,
                               std::span<Bytes> places) = 0;
    virtual absl::Status OnMessage(std::string_view header, std::vector<Payload> payloads) = 0;
    // Keeps what a message shows in place; when the last copy goes, the sender is told.
    virtual std::shared_ptr<const void> Lease(
        uint64_t message, std::vector<std::shared_ptr<const shm::SharedPages>> pages) = 0;

   protected:
    ~Reader() = default;
  };

  explicit Inbox(Reader* reader) : reader_(reader) {}

  // From now on messages and regions may come.
  void Open(bool joins_memory) {
    open_ = true;
    joins_memory_ = joins_memory;
  }
  void ExpectFiles() { joins_memory_ = true; }
  // Forgets a frame that was begun, on a connection that is given up.
  void Reset();

  enum class Result : uint8_t { kEmpty, kMore, kEnd };
  // Reads at most about `budget` bytes. kMore: there may be more. kEnd: the peer closed. `scratch`
  // is any memory. UNAVAILABLE where the connection broke.
  absl::StatusOr<Result> Read(int fd, Bytes scratch, size_t budget);

  // The same with bytes that were read already.
  absl::Status Consume(ConstBytes bytes);

  uint64_t messages() const { return messages_; }
  uint64_t bytes() const { return bytes_; }

 private:
  enum class Stage : uint8_t { kHead, kBody, kPayload, kChecksum };
  enum class Moved : uint8_t { kBytes, kNothing, kEnd };

  absl::StatusOr<Moved> Receive(int fd, Bytes into, size_t* count);
  absl::Status OnHead();
  absl::Status OnBody(std::string_view body);
  absl::Status BeginMessage(std::string_view body);
  absl::Status OnMessages(std::string_view body);
  absl::Status CheckNumber() const;
  absl::Status ShowInPlace();
  absl::Status NextPayload();
  absl::Status EndPayload();
  absl::Status EndMessage();
  absl::Status OnRegion(std::string_view text);
  Bytes PayloadRest() { return places_[index_].subspan(filled_); }
  void Sum(size_t from);

  Reader* const reader_;
  bool open_ = false;
  bool joins_memory_ = false;
  Stage stage_ = Stage::kHead;
  std::array<std::byte, kHeadBytes> head_bytes_;
  size_t filled_ = 0;  // of the head, the body, a payload or its checksum
  FrameHead head_;
  std::string body_;
  FrameBody parsed_;
  std::vector<Bytes> places_;  // of the payloads; of those in place, none
  std::vector<Payload> payloads_;
  size_t index_ = 0;  // of the payload that is coming
  uint32_t crc_ = 0;
  std::array<std::byte, 4> crc_bytes_;
  uint64_t last_number_ = 0;
  std::map<uint32_t, std::shared_ptr<const shm::SharedPages>> regions_;  // of the peer
  std::deque<shm::FileDescriptor> files_;  // that came and whose frames have not
  uint64_t messages_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace tutti::net::link
