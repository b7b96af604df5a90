#pragma once

#include <string>

namespace tutti {

// What a failed system call means, and for errors that come from a limit of this process which one
// it is and how to raise it: "Too many open files (this process may open 6; ulimit -n raises
// that)".
std::string DescribeSystemError(int error);

}  // namespace tutti
