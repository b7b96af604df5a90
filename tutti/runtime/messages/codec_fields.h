#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/wire.h"
#include "tutti/runtime/messages/message_codec.h"

// What the sources of message_codec.h share: the fields of messages, and who reads them.
namespace tutti::codec {

inline void PutText(net::WireWriter& out, std::string_view text) {
  out.U64(text.size());
  out.Raw(text);
}

inline std::string_view GetText(net::WireReader& in) {
  const uint64_t length = in.U64();
  // A length past the end makes the reader fail, whatever it is.
  return in.Raw(size_t(std::min<uint64_t>(length, std::numeric_limits<size_t>::max())));
}

// The length of a list whose elements take at least `least` bytes each: never more than the rest
// of the message can hold, so that nobody reserves memory for a lie. 0 after an error.
inline size_t GetCount(net::WireReader& in, size_t least) {
  const uint64_t count = in.U64();
  if (count > in.remaining() / least) {
    in.Raw(in.remaining() + 1);  // an element that is not there
    return 0;
  }
  return size_t(count);
}

// Reads a message: its fields, and one after the other the tensors beside them.
class Decoder : public net::WireReader {
 public:
  Decoder(std::string_view fields, ReceivedTensors tensors)
      : net::WireReader(fields), tensors_(tensors) {}

  // Null when there is none any more.
  const Tensor* NextTensor() { return next_ < tensors_.size() ? &tensors_[next_++] : nullptr; }
  ReceivedTensors NextTensors(size_t count) {
    count = std::min(count, tensors_.size() - next_);
    next_ += count;
    return tensors_.subspan(next_ - count, count);
  }
  bool AllTaken() const { return next_ == tensors_.size(); }

 private:
  const ReceivedTensors tensors_;
  size_t next_ = 0;
};

// What was decoded, if the message was whole.
template <typename T>
absl::StatusOr<T> IfComplete(const Decoder& in, T value, const char* what) {
  if (in.Complete() && in.AllTaken()) return value;
  return InvalidArgument("a {} that is {}", what, in.ok() ? "too long" : "cut off");
}

}  // namespace tutti::codec
