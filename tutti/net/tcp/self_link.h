#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "tutti/net/tcp/region.h"
#include "tutti/net/tcp/tag_queue.h"
#include "tutti/net/transport.h"

namespace tutti::net::tcp {

// The link of a rank to itself: whichever of Send and Receive comes second moves the bytes.
class SelfLink {
 public:
  SelfLink(int rank, RegionTable* regions) : rank_(rank), regions_(regions) {}

  void Send(Tag tag, ConstBytes data, Request* request);
  void Receive(Tag tag, std::byte* destination, size_t bytes, Request* request);
  void Put(MemoryKey destination, ConstBytes source, Request* request);
  void Get(MemoryKey source, Bytes destination, Request* request);
  absl::StatusOr<std::byte*> Map(MemoryKey key, size_t bytes) const;

  const absl::Status& status() const { return status_; }
  void Close(const absl::Status& status);

 private:
  struct Sending {
    ConstBytes data;
    Request* request;
  };
  struct Receiving {
    std::byte* destination;
    size_t bytes;
    Request* request;
  };
  void Meet(Tag tag, const Sending& send, const Receiving& receive) const;

  const int rank_;
  RegionTable* const regions_;
  absl::Status status_;
  TagQueue<Sending> sends_;
  TagQueue<Receiving> receives_;
};

}  // namespace tutti::net::tcp
