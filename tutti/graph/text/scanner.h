#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/base/status.h"

namespace tutti {

// Reads the words of a text from left to right and knows line and column of each. Spaces and
// comments (from # to the end of the line) are skipped; the end of a line is a token.
class TextScanner {
 public:
  struct Position {
    int64_t line = 1;
    int64_t column = 1;
  };

  explicit TextScanner(std::string_view text) : text_(text) {}

  // Where the next token starts.
  Position position();
  // The next token's first character: '\n' at the end of a line, '\0' at the end of the text.
  char Peek();
  bool AtEndOfText();
  bool AtEndOfLine() { return Peek() == '\n' || AtEndOfText(); }
  void SkipEmptyLines();

  // Takes the character if it comes next.
  bool Consume(char c);
  bool Consume(std::string_view symbol);
  // Takes it, or fails with "expected '(' after the op, found ...".
  absl::Status Expect(char c, std::string_view context);

  // The longest run of characters that names and numbers consist of (letters, digits, _ . - + /);
  // empty if there is none.
  std::string_view Word();
  // A string in quotation marks with the escapes \\ \" \n \t \r \xHH.
  absl::StatusOr<std::string> Quoted();

  // INVALID_ARGUMENT "line 3, column 7: expected <what>, found <the next token>".
  absl::Status Expected(std::string_view what);
  static absl::Status ErrorAt(Position position, std::string_view message);

 private:
  void SkipSpace();
  std::string Found();

  std::string_view text_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  int64_t line_ = 1;
};

// `text` in quotation marks, with what Quoted() needs escaped.
std::string Quote(std::string_view text);

}  // namespace tutti
