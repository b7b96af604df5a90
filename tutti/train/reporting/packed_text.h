#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Records of several fields as one text, to be sent to other workers, and back. Fields are any text
// without the control characters 0x1e and 0x1f, which stand between records and fields; those are
// taken out of what is packed.
using Record = std::vector<std::string>;
std::string PackRecords(std::span<const Record> records);
std::vector<Record> UnpackRecords(std::string_view text);

}  // namespace tutti
