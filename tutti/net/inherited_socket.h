#pragma once

#include "tutti/net/address.h"
#include "tutti/net/socket.h"

namespace tutti::net {

// Names the descriptor, by its number, that a launcher has opened for a task: it listens already,
// at the task's address, so that nobody else can take the port before the task is there. The
// launcher sets it for one child, whose copy of the descriptor stays open when a program is
// executed.
inline constexpr char kInheritedSocket[] = "TUTTI_LISTEN_FD";

// The inherited descriptor if it listens at the port of `address`, and at the same host or either
// at every one; an invalid Socket where there is none. A process has at most one, and who asks
// first gets it: a second listener at the same address is an error, as it is without a launcher.
// Thread-safe. Listen (socket.h) calls it, so everything that listens through that takes over the
// port.
Socket TakeInheritedSocket(const Address& address);

}  // namespace tutti::net
