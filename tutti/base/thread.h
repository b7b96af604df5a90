#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tutti {

// Starts a thread that runs `body`. A limit of the system (processes, address space) is a
// RESOURCE_EXHAUSTED that says which limits to look at, never an exception. `what` ends the
// sentence "cannot start ...": "the thread of the control plane".
absl::StatusOr<std::thread> StartThread(std::string_view what, std::function<void()> body);

// The same status for whoever makes the thread in another way and caught why it failed.
absl::Status CannotStartThread(std::string_view what, std::string_view why);

}  // namespace tutti
