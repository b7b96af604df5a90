#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tutti/net/eager_window.h"
#include "tutti/net/tcp/frame.h"
#include "tutti/net/tcp/region.h"
#include "tutti/net/tcp/tag_queue.h"
#include "tutti/net/transport.h"

namespace tutti::net::tcp {

struct Shared;
class Link;
class Outbox;

// A Receive or Get that has not ended.
struct OpenReceive {
  uint64_t id = 0;
  Tag tag;
  bool tagged = true;                // false: a Get
  std::byte* destination = nullptr;  // null: the bytes are handed to request->Take
  uint64_t bytes = 0;
  Request* request = nullptr;
  bool announce_seen = false;
  bool begun = false;  // a kData frame has come
  uint64_t received = 0;
  std::vector<bool> pieces;  // that have come, where they may come in any order
};

// Room for one payload that goes nowhere yet: its checksum is not known, or nobody wants it.
class Bounce {
 public:
  std::byte* Get();

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::unique_ptr<Line[]> lines_;
};

// What a stream's current frame is for.
struct Landing {
  std::unique_ptr<OpenReceive> receive;  // the one that a kEager frame fills
  std::unique_ptr<std::byte[]> kept;     // or the copy of one that has no Receive yet
  std::shared_ptr<Region> region;        // that a kPut writes to
  std::string refusal;                   // of a kPut
  Bounce bounce;
};

// All that comes from one peer: its messages, those that this rank waits for, and how they find
// each other. Every length, id and offset of a frame is checked here against what is open.
class Inbox {
 public:
  Inbox(Shared* shared, Link* link, Outbox* out);

  void Receive(Tag tag, std::byte* destination, size_t bytes, Request* request);
  void Get(MemoryKey source, Bytes destination, Request* request);

  // A frame begins and ends (see FrameSink). Errors break the link.
  absl::Status BeginFrame(const FrameHeader& header, Landing* landing, std::byte** target);
  absl::Status EndFrame(const FrameHeader& header, Landing* landing, std::byte* payload);

  // The transport has handed out a short message.
  void ShortTaken() { kept_bytes_ -= kKeptOverhead; }
  // Ends the open receives. What has come and waits for its Receive stays, to be taken.
  void Close(const absl::Status& status);
  // Completes a Receive from what came before the link ended; false if there is nothing for it.
  bool TakeKept(Tag tag, std::byte* destination, size_t bytes, Request* request);
  void DropKept();

 private:
  // What came before its Receive: a copy, or the announcement of one that waits at its sender.
  struct Arrived {
    uint64_t total;
    std::unique_ptr<std::byte[]> bytes;  // null: announced
  };
  static constexpr size_t kKeptOverhead = EagerCost(0);

  absl::Status BeginEager(const FrameHeader& header, Landing* landing, std::byte** target);
  absl::Status EndEager(const FrameHeader& header, Landing* landing, std::byte* payload);
  absl::Status BeginData(const FrameHeader& header, Landing* landing, std::byte** target);
  absl::Status EndData(const FrameHeader& header, std::byte* payload);
  absl::Status BeginPut(const FrameHeader& header, Landing* landing, std::byte** target);
  void EndPut(const FrameHeader& header, Landing* landing);
  absl::Status OnShort(const FrameHeader& header, const std::byte* payload);
  absl::Status OnAnnounce(const FrameHeader& header);
  absl::Status OnDiffers(const FrameHeader& header);
  void OnGet(const FrameHeader& header);
  absl::Status OnGetRefused(const FrameHeader& header, std::string_view reason);

  OpenReceive* Post(OpenReceive receive);
  void SendReady(const OpenReceive& receive);
  std::unique_ptr<OpenReceive> Remove(OpenReceive* receive);
  absl::Status EndEarly(OpenReceive* receive, const absl::Status& status);
  absl::Status DifferingLengths(Tag tag, uint64_t expected, uint64_t got) const;
  OpenReceive* PostedFor(Tag tag);  // that nothing has come for yet; or null
  void NoteTaken(size_t bytes);
  absl::Status Keep(size_t bytes);
  void Release(size_t bytes) { kept_bytes_ -= bytes + kKeptOverhead; }

  Shared* const shared_;
  Link* const link_;
  Outbox* const out_;
  uint64_t last_id_ = 0;
  absl::flat_hash_map<uint64_t, std::unique_ptr<OpenReceive>> open_;  // by id
  TagQueue<OpenReceive*> posted_;  // those of open_ that are tagged
  TagQueue<Arrived> arrived_;
  TagQueue<uint64_t> late_announces_;  // ids of receives that ended before the kAnnounce came
  size_t kept_bytes_ = 0;
  EagerReceiver taken_;
};

}  // namespace tutti::net::tcp
