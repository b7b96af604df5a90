#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tutti/net/message/engine.h"
#include "tutti/net/ucx/worker.h"

namespace tutti::net::ucx {

struct Shared;
class Link;

// Room for pieces of messages to receives without memory, used again and again.
class PieceBuffers {
 public:
  struct alignas(64) Buffer {
    std::byte bytes[kPieceBytes];
  };
  std::unique_ptr<Buffer> Take();
  void Release(std::unique_ptr<Buffer> buffer);

 private:
  std::vector<std::unique_ptr<Buffer>> free_;
};

// The frames that come from one peer: what they say goes to the message engine, what they carry to
// where the engine wants it. Puts and Gets, which no message engine knows, are answered here.
class Inbox {
 public:
  Inbox(Shared* shared, Link* link, message::Engine* engine)
      : shared_(shared), link_(link), engine_(engine) {}

  // An error breaks the link. Takes care of the payload in any case.
  absl::Status OnFrame(const FrameHeader& header, const Payload& payload);
  // The link ends: what is under way is forgotten. REQUIRES: UCX is at no piece any more.
  void Close() { arriving_.clear(); }

 private:
  // Of a message in pieces, one that UCX has announced.
  struct Piece {
    Payload payload;
    std::unique_ptr<PieceBuffers::Buffer> buffer;  // null: not asked for yet
    bool here = false;
  };
  // A message to a receive without memory. UCX announces its pieces in any order; two at a time are
  // asked for, and handed over in order.
  struct Arriving {
    bool offered = false;
    uint64_t taken = 0;                // bytes that were handed over
    std::map<uint64_t, Piece> pieces;  // by offset
  };

  absl::Status OnShort(const FrameHeader& header, const Payload& payload);
  absl::Status OnData(const FrameHeader& header, const Payload& payload);
  absl::Status OnPiece(message::OpenReceive* receive, const FrameHeader& header,
                       const Payload& payload);
  absl::Status HandOver(uint64_t id);
  void OnPut(const FrameHeader& header, const Payload& payload);
  void OnGet(const FrameHeader& header);
  absl::Status OnRefused(const FrameHeader& header, std::string_view reason);
  void RefusePut(uint64_t id, const absl::Status& why);

  Shared* const shared_;
  Link* const link_;
  message::Engine* const engine_;
  absl::flat_hash_map<uint64_t, Arriving> arriving_;  // by the receive's id
};

}  // namespace tutti::net::ucx
