#include "tutti/train/reporting/packed_text.h"

#include <algorithm>
#include <iterator>

namespace tutti {
namespace {

constexpr char kEndOfField = '\x1f';
constexpr char kEndOfRecord = '\x1e';

}  // namespace

std::string PackRecords(std::span<const Record> records) {
  std::string text;
  for (const Record& record : records) {
    for (const std::string& field : record) {
      std::copy_if(field.begin(), field.end(), std::back_inserter(text),
                   [](char c) { return c != kEndOfField && c != kEndOfRecord; });
      text += kEndOfField;
    }
    text += kEndOfRecord;
  }
  return text;
}

std::vector<Record> UnpackRecords(std::string_view text) {
  std::vector<Record> records;
  Record record;
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == kEndOfField) {
      record.emplace_back(text.substr(begin, at - begin));
    } else if (text[at] == kEndOfRecord) {
      records.push_back(std::move(record));
      record.clear();
    } else {
      continue;
    }
    begin = at + 1;
  }
  return records;
}

}  // namespace tutti
