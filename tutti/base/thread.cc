#include "tutti/base/thread.h"

#include <new>
#include <system_error>
#include <utility>

#include "tutti/base/status.h"

namespace tutti {

absl::Status CannotStartThread(std::string_view what, std::string_view why) {
  return ResourceExhausted(
      "cannot start {}: {}; raise the limit of memory (ulimit -v) or of processes (ulimit -u), or "
      "start fewer tasks on this host",
      what, why);
}

absl::StatusOr<std::thread> StartThread(std::string_view what, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return CannotStartThread(what, error.code().message());
  } catch (const std::bad_alloc&) {
    return CannotStartThread(what, "no memory");
  }
}

}  // namespace tutti
