#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

// Output of a program on stdout and stderr. If it cannot be written (a closed terminal or pipe, a
// full disk) it is lost and the work goes on: no function here throws for that.
namespace tutti {

// Writes `text` and flushes. False, with errno, where it cannot be written.
bool WriteTo(std::FILE* out, std::string_view text);

template <typename... Args>
bool FormatTo(std::FILE* out, fmt::format_string<Args...> format, Args&&... args) {
  return WriteTo(out, fmt::format(format, std::forward<Args>(args)...));
}

// How wide a line on that terminal is; 80 where nobody knows.
int TerminalColumns(std::FILE* file);

// Does the locale of this process say that terminals show UTF-8?
bool Utf8Locale();

// For the end of a program whose results go to stdout: OK if all that was ever written there got
// through, else an error that says so.
absl::Status FinishStdout();

// If stdin, stdout or stderr is closed, opens /dev/null for reading in its place. Otherwise a file
// or connection that is opened later would get that descriptor, and receive the program's output.
void KeepStandardFiles();

}  // namespace tutti
