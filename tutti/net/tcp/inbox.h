#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tutti/net/message/engine.h"
#include "tutti/net/message/region.h"
#include "tutti/net/tcp/frame.h"
#include "tutti/net/transport.h"

namespace tutti::net::tcp {

struct Shared;
class Link;
class Outbox;

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
  message::Receiver::Landing eager;         // of a kEager frame
  std::shared_ptr<message::Region> region;  // that a kPut writes to
  std::string refusal;                      // of a kPut
  Bounce bounce;
};

// The frames that come from one peer: what they say goes to the message engine, what they carry to
// where the engine wants it. Puts and Gets, which no message engine knows, are answered here.
class Inbox {
 public:
  Inbox(Shared* shared, Link* link, Outbox* out, message::Engine* engine)
      : shared_(shared), link_(link), out_(out), engine_(engine) {}

  void Get(MemoryKey source, Bytes destination, Request* request);

  // A frame begins and ends (see FrameSink). Errors break the link.
  absl::Status BeginFrame(const FrameHeader& header, Landing* landing, std::byte** target);
  absl::Status EndFrame(const FrameHeader& header, Landing* landing, std::byte* payload);

 private:
  absl::Status BeginEager(const FrameHeader& header, Landing* landing, std::byte** target);
  absl::Status BeginData(const FrameHeader& header, Landing* landing, std::byte** target);
  absl::Status EndData(const FrameHeader& header, std::byte* payload);
  absl::Status BeginPut(const FrameHeader& header, Landing* landing, std::byte** target);
  void EndPut(const FrameHeader& header, Landing* landing);
  absl::Status OnShort(const FrameHeader& header, const std::byte* payload);
  void OnGet(const FrameHeader& header);
  absl::Status OnGetRefused(const FrameHeader& header, std::string_view reason);

  Shared* const shared_;
  Link* const link_;
  Outbox* const out_;
  message::Engine* const engine_;
};

}  // namespace tutti::net::tcp
