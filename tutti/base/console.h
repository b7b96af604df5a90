#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

// What a program says on stdout and stderr. A terminal that went away, a closed pipe or a full disk
// costs what was to be said, never the work: nothing here throws for it.
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

// Where stdin, stdout or stderr is closed, puts /dev/null in its place, opened for reading: so no
// file or connection that is opened later gets the number, and the text that is meant for people.
void KeepStandardFiles();

}  // namespace tutti
