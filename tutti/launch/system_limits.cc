#include "tutti/launch/system_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace tutti {
namespace {

std::string LimitOf(decltype(RLIMIT_NOFILE) resource, const char* what, const char* flag) {
  rlimit limit = {};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format(" ({} {}; ulimit {} raises that)", what, limit.rlim_cur, flag);
}

}  // namespace

std::string DescribeSystemError(int error) {
  std::string text = std::strerror(error);
  if (error == EMFILE) text += LimitOf(RLIMIT_NOFILE, "this process may open", "-n");
  if (error == EAGAIN) text += LimitOf(RLIMIT_NPROC, "processes and threads of this user:", "-u");
  if (error == ENOMEM) text += LimitOf(RLIMIT_AS, "bytes of address space:", "-v");
  return text;
}

}  // namespace tutti
