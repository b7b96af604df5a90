#include "tutti/net/coordination/store/codec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

constexpr uint8_t kHasVersion = 1, kHasGuard = 2;
constexpr size_t kLeastEventBytes = 1 + 4 + 4 + 3 * 8;
constexpr double kMostSeconds = 1e9;

// Seconds travel as whole microseconds.
int64_t Micros(double seconds) {
  return std::llround(std::clamp(seconds, 0.0, kMostSeconds) * 1e6);
}

}  // namespace

std::string Encode(const StoreRequest& request) {
  std::string bytes;
  WireWriter out(&bytes);
  const Store::PutOptions& options = request.options;
  out.U8(static_cast<uint8_t>(request.op));
  out.Text32(request.key);
  out.Text32(request.value);
  out.I64(options.lease);
  out.U8(static_cast<uint8_t>((options.if_version ? kHasVersion : 0) |
                              (options.guard ? kHasGuard : 0)));
  if (options.if_version) out.I64(*options.if_version);
  if (options.guard) {
    out.Text32(options.guard->key);
    out.I64(options.guard->version);
  }
  out.I64(Micros(request.seconds));
  out.I64(request.from);
  return bytes;
}

absl::StatusOr<StoreRequest> DecodeStoreRequest(std::string_view bytes) {
  WireReader in(bytes);
  StoreRequest request;
  const uint8_t op = in.U8();
  request.key = in.Text32();
  request.value = in.Text32();
  request.options.lease = in.I64();
  const uint8_t has = in.U8();
  if ((has & kHasVersion) != 0) request.options.if_version = in.I64();
  if ((has & kHasGuard) != 0) {
    request.options.guard.emplace();
    request.options.guard->key = in.Text32();
    request.options.guard->version = in.I64();
  }
  request.seconds = static_cast<double>(in.I64()) * 1e-6;
  request.from = in.I64();
  if (!in.Complete()) {
    return InvalidArgument("a request to the store of {} bytes is cut off or too long",
                           bytes.size());
  }
  if (op < static_cast<uint8_t>(StoreOp::kPut) || op > static_cast<uint8_t>(StoreOp::kAwait) ||
      (has & ~(kHasVersion | kHasGuard)) != 0) {
    return InvalidArgument("a request to the store of the unknown kind {}, with flags {}", op, has);
  }
  request.op = static_cast<StoreOp>(op);
  return request;
}

std::string Encode(const StoreReply& reply) {
  std::string bytes;
  WireWriter out(&bytes);
  out.I64(reply.revision);
  out.I64(reply.lease);
  out.U64(reply.events.size());
  for (const StoreEvent& event : reply.events) {
    out.U8(static_cast<uint8_t>(event.kind));
    out.Text32(event.entry.key);
    out.Text32(event.entry.value);
    out.I64(event.entry.created);
    out.I64(event.entry.version);
    out.I64(event.entry.lease);
  }
  return bytes;
}

absl::StatusOr<StoreReply> DecodeStoreReply(std::string_view bytes) {
  WireReader in(bytes);
  StoreReply reply;
  reply.revision = in.I64();
  reply.lease = in.I64();
  const uint64_t count = in.U64();
  if (count > in.remaining() / kLeastEventBytes) {
    return InvalidArgument("an answer of the store claims {} entries in {} bytes", count,
                           bytes.size());
  }
  reply.events.reserve(count);
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    StoreEvent event;
    const uint8_t kind = in.U8();
    if (kind > static_cast<uint8_t>(StoreEvent::Kind::kDelete)) {
      return InvalidArgument("an answer of the store has a change of the unknown kind {}", kind);
    }
    event.kind = static_cast<StoreEvent::Kind>(kind);
    event.entry.key = in.Text32();
    event.entry.value = in.Text32();
    event.entry.created = in.I64();
    event.entry.version = in.I64();
    event.entry.lease = in.I64();
    reply.events.push_back(std::move(event));
  }
  if (!in.Complete()) {
    return InvalidArgument("an answer of the store of {} bytes is cut off or too long",
                           bytes.size());
  }
  return reply;
}

}  // namespace tutti::net
