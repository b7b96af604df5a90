#include "tutti/train/strategies/ps/letters.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/source.h"
#include "tutti/train/strategies/ps/parameter_servers.h"

namespace tutti {
namespace {

// Answers to a worker that has died stay in its queue; there are few before its loss is noticed.
constexpr int64_t kCapacity = 64;
constexpr int64_t kNumbers = 4;  // from, start, number, late

Tensor BytesOf(std::string_view text) {
  Tensor bytes(kUInt8, Shape{int64_t(text.size())});
  if (!text.empty()) std::memcpy(bytes.raw(), text.data(), text.size());
  return bytes;
}

std::string TextOf(const Tensor& bytes) {
  return std::string(static_cast<const char*>(bytes.raw()), bytes.bytes());
}

}  // namespace

Letters::Letters(const ParameterServers& servers) {
  {
    const DeviceScope on(graph_, servers.devices.front());
    NameScope scope(graph_, "peers");
    numbers_ = Placeholder(graph_, kInt64, Shape{kNumbers}, "numbers");
    what_ = Placeholder(graph_, kUInt8, Shape{kUnknownDim}, "what");
    text_ = Placeholder(graph_, kUInt8, Shape{kUnknownDim}, "text");
    const QueueComponents letter = {
        {kInt64, Shape{kNumbers}}, {kUInt8, Shape{kUnknownDim}}, {kUInt8, Shape{kUnknownDim}}};
    const std::vector<Output> contents = {numbers_, what_, text_};
    const QueueOptions options = {.capacity = kCapacity + 2 * int64_t(servers.workers)};
    for (int r = 0; r < servers.workers; ++r) {
      const Output letters = FIFOQueue(graph_, letter, options, fmt::format("letters_{}", r));
      send_.push_back(Enqueue(letters, contents));
      receive_.push_back(Dequeue(letters));
    }
  }
  SessionOptions options;
  servers.connect(options);
  session_.emplace(graph_, options);
}

void Letters::Send(int to, const Letter& letter, const RunOptions& options) {
  const Tensor numbers =
      Tensor::Vector<int64_t>({letter.from, letter.start, letter.number, letter.late ? 1 : 0});
  const std::array<Feed, 3> feeds = {
      Feed{numbers_, numbers}, {what_, BytesOf(letter.what)}, {text_, BytesOf(letter.text)}};
  session_->Run(feeds, {}, std::span(&send_[size_t(to)], 1), options);
}

Letter Letters::Receive(int worker, const std::stop_token& stop, std::chrono::nanoseconds timeout) {
  const std::vector<Tensor> parts =
      session_->Run(std::span<const Feed>(), receive_[size_t(worker)],
                    std::span<const Node* const>(), {.timeout = timeout, .stop = stop});
  const int64_t* numbers = parts[0].data<int64_t>();
  return {numbers[0], numbers[1], numbers[2], numbers[3] != 0, TextOf(parts[1]), TextOf(parts[2])};
}

}  // namespace tutti
