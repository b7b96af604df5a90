#include "tutti/graph/text/scanner.h"

#include <algorithm>

namespace tutti {
namespace {

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || c == '+' || c == '/';
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Longer tokens are cut in messages.
constexpr size_t kMostFound = 32;

}  // namespace

void TextScanner::SkipSpace() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else {
      break;
    }
  }
}

TextScanner::Position TextScanner::position() {
  SkipSpace();
  return {line_, int64_t(at_ - line_start_) + 1};
}

bool TextScanner::AtEndOfText() {
  SkipSpace();
  return at_ >= text_.size();
}

char TextScanner::Peek() { return AtEndOfText() ? '\0' : text_[at_]; }

void TextScanner::SkipEmptyLines() {
  while (Consume('\n')) {
  }
}

bool TextScanner::Consume(char c) {
  if (AtEndOfText() || text_[at_] != c) return false;
  ++at_;
  if (c == '\n') {
    ++line_;
    line_start_ = at_;
  }
  return true;
}

bool TextScanner::Consume(std::string_view symbol) {
  SkipSpace();
  if (text_.substr(at_, symbol.size()) != symbol) return false;
  at_ += symbol.size();
  return true;
}

absl::Status TextScanner::Expect(char c, std::string_view context) {
  if (Consume(c)) return absl::OkStatus();
  return Expected(fmt::format("'{}' {}", c, context));
}

std::string_view TextScanner::Word() {
  SkipSpace();
  const size_t begin = at_;
  while (at_ < text_.size() && IsWordCharacter(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

absl::StatusOr<std::string> TextScanner::Quoted() {
  if (Peek() != '"') return Expected("a string in quotation marks");
  const Position begin = position();
  std::string value;
  for (++at_; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
    char c = text_[at_];
    if (c == '"') {
      ++at_;
      return value;
    }
    if (c == '\\') {
      const Position escape{line_, int64_t(at_ - line_start_) + 1};
      c = ++at_ < text_.size() ? text_[at_] : '\0';
      switch (c) {
        case '\\':
        case '"':
          break;
        case 'n':
          c = '\n';
          break;
        case 't':
          c = '\t';
          break;
        case 'r':
          c = '\r';
          break;
        case 'x': {
          const int high = at_ + 1 < text_.size() ? HexDigit(text_[at_ + 1]) : -1;
          const int low = at_ + 2 < text_.size() ? HexDigit(text_[at_ + 2]) : -1;
          if (high < 0 || low < 0) {
            return ErrorAt(escape, "expected two hexadecimal digits after \\x");
          }
          c = char(high * 16 + low);
          at_ += 2;
          break;
        }
        default:
          return ErrorAt(escape, "unknown escape; expected \\\\ \\\" \\n \\t \\r or \\xHH");
      }
    }
    value += c;
  }
  return ErrorAt(begin, "the string is not closed before the end of the line; expected '\"'");
}

std::string TextScanner::Found() {
  if (AtEndOfText()) return "the end of the text";
  if (text_[at_] == '\n') return "the end of the line";
  size_t length = 1;
  if (IsWordCharacter(text_[at_])) {
    while (at_ + length < text_.size() && IsWordCharacter(text_[at_ + length])) ++length;
  }
  const std::string shown = Quote(text_.substr(at_, std::min(length, kMostFound)));
  return fmt::format("'{}{}'", shown.substr(1, shown.size() - 2), length > kMostFound ? "..." : "");
}

absl::Status TextScanner::Expected(std::string_view what) {
  const Position here = position();
  return ErrorAt(here, fmt::format("expected {}, found {}", what, Found()));
}

absl::Status TextScanner::ErrorAt(Position position, std::string_view message) {
  return InvalidArgument("line {}, column {}: {}", position.line, position.column, message);
}

std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '\\':
      case '"':
        quoted += '\\';
        quoted += c;
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\t':
        quoted += "\\t";
        break;
      case '\r':
        quoted += "\\r";
        break;
      default:
        // Bytes above 0x7f are left alone: UTF-8 stays readable.
        if (uint8_t(c) < 0x20 || c == 0x7f) {
          quoted += fmt::format("\\x{:02x}", uint8_t(c));
        } else {
          quoted += c;
        }
    }
  }
  return quoted + '"';
}

}  // namespace tutti
