// The message of the Error that something throws, for tests. Header-only.
#pragma once

#include <string>

#include "tutti/base/error.h"

namespace tutti::testing {

// What the Error says that `action` throws; "no error" if it throws none.
std::string ErrorOf(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tutti::testing
