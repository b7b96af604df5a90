#include "tutti/net/tcp/self_link.h"

#include <cstring>

#include "tutti/base/status.h"

namespace tutti::net::tcp {

void SelfLink::Send(Tag tag, ConstBytes data, Request* request) {
  if (!status_.ok()) return request->Done(status_);
  Receiving* found = receives_.Front(tag);
  if (found == nullptr) return sends_.Add(tag, {data, request});
  Meet(tag, {data, request}, receives_.Take(tag, found));
}

void SelfLink::Receive(Tag tag, std::byte* destination, size_t bytes, Request* request) {
  if (!status_.ok()) return request->Done(status_);
  Sending* found = sends_.Front(tag);
  if (found == nullptr) return receives_.Add(tag, {destination, bytes, request});
  Meet(tag, sends_.Take(tag, found), {destination, bytes, request});
}

void SelfLink::Meet(Tag tag, const Sending& send, const Receiving& receive) const {
  if (send.data.size() != receive.bytes) {
    const absl::Status status =
        InvalidArgument("rank {} to itself: message {}.{} has {} bytes, expected {}", rank_,
                        tag.operation, tag.index, send.data.size(), receive.bytes);
    send.request->Done(status);
    return receive.request->Done(status);
  }
  if (receive.bytes > 0) {
    if (receive.destination != nullptr) {
      std::memmove(receive.destination, send.data.data(), receive.bytes);
    } else {
      receive.request->Take(0, send.data);
    }
  }
  receive.request->Done(absl::OkStatus());
  send.request->Done(absl::OkStatus());
}

absl::StatusOr<std::byte*> SelfLink::Map(MemoryKey key, size_t bytes) const {
  TUTTI_ASSIGN_OR_RETURN(const std::shared_ptr<Region> region, regions_->Find(key, bytes));
  return region->bytes.data() + key.offset;
}

void SelfLink::Put(MemoryKey destination, ConstBytes source, Request* request) {
  if (!status_.ok()) return request->Done(status_);
  const absl::StatusOr<std::byte*> to = Map(destination, source.size());
  if (to.ok() && !source.empty()) std::memmove(*to, source.data(), source.size());
  request->Done(to.status());
}

void SelfLink::Get(MemoryKey source, Bytes destination, Request* request) {
  if (!status_.ok()) return request->Done(status_);
  const absl::StatusOr<std::byte*> from = Map(source, destination.size());
  if (from.ok() && !destination.empty()) {
    std::memmove(destination.data(), *from, destination.size());
  }
  request->Done(from.status());
}

void SelfLink::Close(const absl::Status& status) {
  status_ = status;
  sends_.TakeAll([&](Sending& send) { send.request->Done(status); });
  receives_.TakeAll([&](Receiving& receive) { receive.request->Done(status); });
}

}  // namespace tutti::net::tcp
