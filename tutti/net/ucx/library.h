#pragma once

#include <ucp/api/ucp.h>

#include <string_view>

#include "absl/status/statusor.h"

namespace tutti::net::ucx {

// The functions of libucp that the transport calls, by their names without "ucp_".
#define TUTTI_UCP_FUNCTIONS(F)  \
  F(config_read)                \
  F(config_release)             \
  F(config_modify)              \
  F(init_version)               \
  F(cleanup)                    \
  F(worker_create)              \
  F(worker_destroy)             \
  F(worker_get_address)         \
  F(worker_release_address)     \
  F(worker_get_efd)             \
  F(worker_arm)                 \
  F(worker_progress)            \
  F(worker_set_am_recv_handler) \
  F(ep_create)                  \
  F(ep_close_nbx)               \
  F(am_send_nbx)                \
  F(am_recv_data_nbx)           \
  F(am_data_release)            \
  F(request_check_status)       \
  F(request_free)

// UCX is loaded when the first transport is opened, not when a program starts: a program that does
// not use it does not pay for it, runs where it is not installed, and keeps its own handlers of
// signals. Never unloaded.
struct Library {
#define TUTTI_UCP_POINTER(name) decltype(&::ucp_##name) name = nullptr;
  TUTTI_UCP_FUNCTIONS(TUTTI_UCP_POINTER)
#undef TUTTI_UCP_POINTER
  const char* (*status_string)(ucs_status_t) = nullptr;

  // The library of this process, loaded once. FAILED_PRECONDITION if that is not possible.
  // Thread-safe.
  static absl::StatusOr<const Library*> Load();
};

}  // namespace tutti::net::ucx
