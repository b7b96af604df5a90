#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/link/links.h"
#include "tutti/net/port/port.h"

namespace tutti::net {

// Notes what the links of a task tell, and waits for it.
class Recorder final : public LinkEvents {
 public:
  struct Message {
    std::string task;
    uint64_t incarnation = 0;
    std::string header;
    std::vector<std::string> payloads;
  };

  absl::Status Place(Link&, std::string_view, std::span<const uint64_t> sizes,
                     std::span<Bytes> places) override {
    const std::lock_guard lock(mutex_);
    ++places_asked;
    last_sizes.assign(sizes.begin(), sizes.end());
    if (!refuse_place.ok()) return refuse_place;
    for (size_t i = 0; i < sizes.size(); ++i) {
      auto& memory = memory_.emplace_back(std::make_unique<std::byte[]>(sizes[i]));
      places[i] = Bytes(memory.get(), sizes[i]);
    }
    return absl::OkStatus();
  }

  void Received(Link& link, std::string_view header, std::vector<Payload> payloads) override {
    if (const auto call = Locked<OnReceived>([this] { return on_received_; }); call != nullptr) {
      call(link, header, payloads);
    }
    const std::lock_guard lock(mutex_);
    Message& message = messages.emplace_back();
    message.task = link.peer().task;
    message.incarnation = link.peer().incarnation;
    message.header = header;
    uint64_t bytes = 0;
    for (Payload& payload : payloads) {
      bytes += payload.bytes.size();
      message.payloads.emplace_back(reinterpret_cast<const char*>(payload.bytes.data()),
                                    payload.bytes.size());
      if (keep) kept.push_back(std::move(payload));
    }
    payloads.clear();  // what is read in place is released before anybody hears of the message
    if (take) link.Taken(bytes);
    changed_.notify_all();
  }

  void Broken(Link& link, const absl::Status& reason) override {
    const std::lock_guard lock(mutex_);
    broken.emplace_back(link.peer().task, reason);
    changed_.notify_all();
  }

  // False if it does not come about in 30 s.
  bool WaitUntil(const std::function<bool()>& done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), done);
  }
  bool WaitForMessages(size_t count) {
    return WaitUntil([&] { return messages.size() >= count; });
  }
  // Of the first link that broke.
  absl::Status WaitForEnd() {
    if (!WaitUntil([&] { return !broken.empty(); })) return DeadlineExceeded("nothing broke");
    const std::lock_guard lock(mutex_);
    return broken.front().second;
  }
  template <typename T>
  T Locked(const std::function<T()>& read) {
    const std::lock_guard lock(mutex_);
    return read();
  }

  using OnReceived = std::function<void(Link&, std::string_view, const std::vector<Payload>&)>;
  void CallOnReceived(OnReceived call) {
    const std::lock_guard lock(mutex_);
    on_received_ = std::move(call);
  }

  // Set before the links are used.
  bool take = true;
  bool keep = false;
  absl::Status refuse_place;
  // Read when nothing comes any more, or in WaitUntil.
  std::vector<Message> messages;
  std::vector<std::pair<std::string, absl::Status>> broken;
  std::vector<Payload> kept;
  std::vector<uint64_t> last_sizes;
  int places_asked = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  OnReceived on_received_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

inline Identity TestTask(const std::string& task, uint64_t incarnation) {
  Identity identity;
  identity.job = "cluster";
  identity.token = "secret";
  identity.task = task;
  identity.incarnation = incarnation;
  return identity;
}

// A task with a port and links.
struct TestNode {
  TestNode(const std::string& task, uint64_t incarnation,
           const std::function<void(LinksOptions*)>& edit = nullptr, int listening_fd = -1,
           const std::function<void(Recorder*)>& prepare = nullptr) {
    LinksOptions options;
    options.identity = TestTask(task, incarnation);
    if (edit != nullptr) edit(&options);
    if (prepare != nullptr) prepare(&events);
    links = ValueOrThrow(Links::Create(options, &events));
    port = ValueOrThrow(Port::Open({.identity = options.identity, .listening_fd = listening_fd}));
    links->Serve(port.get());
    ThrowIfError(port->Start());
  }
  ~TestNode() {
    port.reset();
    links.reset();
  }
  std::shared_ptr<Link> To(const TestNode& other, const std::string& task,
                           uint64_t incarnation = 0) {
    return links->To(task, other.port->address(), incarnation);
  }

  Recorder events;
  std::unique_ptr<Links> links;
  std::unique_ptr<Port> port;
};

// A payload that owns its bytes.
inline Payload PayloadOf(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  return {std::as_bytes(std::span(owner->data(), owner->size())), owner};
}

}  // namespace tutti::net
