#include "tutti/net/tcp/frame_reader.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/base/status.h"

namespace tutti::net::tcp {

FrameReader::FrameReader(size_t read_ahead) : buffer_(read_ahead) {
  TUTTI_CHECK(read_ahead >= kHeaderBytes);
}

FrameReader::Outcome FrameReader::Read(int fd, size_t budget, FrameSink* sink) {
  Outcome outcome;
  while (outcome.moved < budget) {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    const size_t missing = in_payload_ ? header_.payload - done_ : 0;
    const iovec parts[2] = {{target_ + done_, missing},
                            {buffer_.data() + end_, buffer_.size() - end_}};
    const int skip = missing == 0 ? 1 : 0;
    const ssize_t count = readv(fd, parts + skip, 2 - skip);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return outcome;
    if (count <= 0) {
      outcome.closed = true;
      outcome.error = count < 0 ? errno : 0;
      return outcome;
    }
    const size_t bytes = static_cast<size_t>(count);
    outcome.moved += bytes;
    const size_t direct = std::min(bytes, missing);
    if (direct > 0) Advance(direct);
    end_ += bytes - direct;
    outcome.status = Consume(sink);
    if (!outcome.status.ok()) return outcome;
    // Less than was asked for: the rest has not arrived, and asking again would only say so.
    if (bytes < parts[1].iov_len + missing) return outcome;
  }
  return outcome;
}

// Bytes of the payload have come to where it goes. They are in the cache, so the checksum is made
// at once.
void FrameReader::Advance(size_t bytes) {
  crc_ = Crc32c({target_ + done_, bytes}, crc_);
  done_ += bytes;
}

// Uses what lies in the buffer, and ends the frame whose payload is complete.
absl::Status FrameReader::Consume(FrameSink* sink) {
  for (;;) {
    if (!in_payload_) {
      if (end_ - begin_ < kHeaderBytes) return absl::OkStatus();
      const std::span<const std::byte, kHeaderBytes> bytes(buffer_.data() + begin_, kHeaderBytes);
      TUTTI_ASSIGN_OR_RETURN(header_, ParseHeader(bytes));
      begin_ += kHeaderBytes;
      target_ = nullptr;
      done_ = 0;
      crc_ = 0;
      TUTTI_RETURN_IF_ERROR(sink->BeginFrame(header_, &target_));
      TUTTI_CHECK(target_ != nullptr || header_.payload == 0);
      in_payload_ = true;
    }
    const size_t buffered = std::min<size_t>(header_.payload - done_, end_ - begin_);
    if (buffered > 0) {
      std::memcpy(target_ + done_, buffer_.data() + begin_, buffered);
      begin_ += buffered;
      Advance(buffered);
    }
    if (done_ < header_.payload) return absl::OkStatus();
    in_payload_ = false;
    if (crc_ != header_.payload_crc) {
      return DataLoss(
          "payload of a {} frame is damaged: its CRC32C is {:08x}, the bytes give {:08x}",
          NameOf(header_.kind), header_.payload_crc, crc_);
    }
    TUTTI_RETURN_IF_ERROR(sink->EndFrame(header_, target_));
  }
}

}  // namespace tutti::net::tcp
