#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace tutti {

// What a socket must be like before gRPC gets it. A stopped peer whose window is full is noticed by
// the kernel alone: neither keep-alive nor deadlines of gRPC end a blocked write.
inline void PrepareForGrpc(int fd) {
  constexpr int kOn = 1;
  constexpr int kUnackedMillis = 2000;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnackedMillis, sizeof kUnackedMillis);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// Pings while nothing is called, so that a process that stopped is noticed within 4 s; on a host
// with many more threads than cores a healthy one may take a second to answer.
inline constexpr int kKeepAliveMillis = 1000;
inline constexpr int kKeepAliveTimeoutMillis = 3000;

}  // namespace tutti
