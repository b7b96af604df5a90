#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/shm/shared_pages.h"
#include "tutti/net/transport.h"

// Unix sockets that carry packets and file descriptors. All calls return at once.
namespace tutti::net::shm {

// A socket under an abstract name: it belongs to the network namespace and vanishes with it, or
// with the process.
absl::StatusOr<FileDescriptor> ListenOn(const std::string& name);
// UNAVAILABLE while the listener has no room.
absl::StatusOr<FileDescriptor> ConnectTo(const std::string& name);
// An empty descriptor if nobody waits. RESOURCE_EXHAUSTED where this process may open no more.
absl::StatusOr<FileDescriptor> AcceptFrom(const FileDescriptor& listener);

struct Credentials {
  int pid = 0;
  uint32_t user = 0;
};
absl::StatusOr<Credentials> CredentialsOf(const FileDescriptor& socket);

// kNoDescriptor: the packet is lost, because its file found no free descriptor in this process.
enum class Transfer : uint8_t { kDone, kLater, kClosed, kNoDescriptor };
// Sends one packet, with a file if fd >= 0.
Transfer SendPacket(const FileDescriptor& socket, ConstBytes packet, int fd);
// Reads one packet of at most packet.size() bytes; `received` gets its length (more than
// packet.size() if it was longer), `file` the file that came with it, if any.
Transfer ReceivePacket(const FileDescriptor& socket, Bytes packet, size_t* received,
                       FileDescriptor* file);

}  // namespace tutti::net::shm
