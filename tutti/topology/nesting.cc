#include "tutti/topology/nesting.h"

#include <cstddef>

namespace tutti::topology {
namespace {

// The length of the string that begins at text[0], a quote, with its closing quotes. One of a line
// ends at the line's end at the latest.
size_t StringLength(std::string_view text) {
  const char quote = text[0];
  const bool escapes = quote == '"';
  const bool block = text.size() >= 3 && text[1] == quote && text[2] == quote;
  size_t at = block ? 3 : 1;
  for (; at < text.size(); ++at) {
    if (escapes && text[at] == '\\') {
      ++at;
    } else if (!block && (text[at] == quote || text[at] == '\n')) {
      return text[at] == quote ? at + 1 : at;
    } else if (block && text.substr(at).starts_with(text.substr(0, 3))) {
      at += 3;
      // Up to two quotes may belong to the text, before the three that end it.
      for (int more = 0; more < 2 && at < text.size() && text[at] == quote; ++more) ++at;
      return at;
    }
  }
  return text.size();
}

}  // namespace

int LineNestedDeeperThan(int depth, std::string_view text) {
  int line = 1;
  int parts = 1;  // of the key under way
  int brackets = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    switch (text[at]) {
      case '"':
      case '\'': {
        const size_t length = StringLength(text.substr(at));
        for (const char c : text.substr(at, length)) line += c == '\n';
        at += length - 1;
        break;
      }
      case '#':
        while (at + 1 < text.size() && text[at + 1] != '\n') ++at;
        break;
      case '.':
        if (++parts > depth) return line;
        break;
      case '[':
      case '{':
        if (++brackets > depth) return line;
        parts = 1;
        break;
      case ']':
      case '}':
        if (brackets > 0) --brackets;
        parts = 1;
        break;
      case '\n':
        ++line;
        parts = 1;
        break;
      case '=':
      case ',':
        parts = 1;
        break;
      default:
        break;
    }
  }
  return 0;
}

}  // namespace tutti::topology
