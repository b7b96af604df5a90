#pragma once

#include <string>
#include <string_view>

#include "tutti/compile/passes/passes.h"
#include "tutti/compile/program_text.h"

// For the tests of passes.
namespace tutti {

using Pass = absl::StatusOr<Program> (*)(Program, const PassContext&);

// The text of what `pass` makes of the program in `text`, or the error.
inline std::string TextAfter(Pass pass, std::string_view text, const PassContext& context = {}) {
  auto program = ParseProgram(text);
  if (!program.ok()) return std::string(MessageOf(program.status()));
  const auto result = pass(*std::move(program), context);
  return result.ok() ? ToText(*result) : std::string(MessageOf(result.status()));
}

}  // namespace tutti
