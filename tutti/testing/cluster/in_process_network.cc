#include "tutti/testing/cluster/in_process_network.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "tutti/base/status.h"

namespace tutti::testing {

struct InProcessNetwork::State {
  std::mutex mutex;
  std::map<std::string, TaskPeers*> processes;  // null: lost
  std::vector<std::shared_ptr<Link>> links;
  std::vector<std::unique_ptr<Port>> ports;
  std::map<TaskPeers*, int> busy;  // threads that are in its code
  std::condition_variable idle;
  std::atomic<int64_t> untaken{0};
  LaneThreads calls;

  void Enter(TaskPeers* peers) {  // REQUIRES: the mutex is held
    ++busy[peers];
  }
  void Exit(TaskPeers* peers) {
    std::lock_guard lock(mutex);
    if (--busy[peers] == 0) idle.notify_all();
  }
};

// One end. Its thread tells its owner what the other end sent.
class InProcessNetwork::Link final : public net::Link {
 public:
  Link(State* state, net::TaskIdentity peer, TaskPeers* events)
      : state_(state), peer_(std::move(peer)), events_(events) {}
  ~Link() override { thread_.join(); }

  void Start(Link* other) {
    other_ = other;
    thread_ = std::thread([this] { Loop(); });
  }

  // Whether it leads from one to the other, and stands.
  bool Joins(const TaskPeers* from, const TaskPeers* to) {
    std::lock_guard lock(mutex_);
    return events_ == from && other_->events_ == to && over_.ok();
  }

  const net::TaskIdentity& peer() const override { return peer_; }
  net::LinkKind kind() const override { return net::LinkKind::kSocket; }
  std::string Describe() const override { return peer_.task + " (in process)"; }

  void Send(std::string header, std::vector<net::Payload> payloads) override {
    ++messages_;
    bytes_ += header.size();
    Message message{std::move(header), {}};
    for (const net::Payload& payload : payloads) {
      bytes_ += payload.bytes.size();
      message.payloads.emplace_back(payload.bytes.begin(), payload.bytes.end());
      state_->untaken += int64_t(payload.bytes.size());
    }
    other_->Put(std::move(message));
  }
  void SendCounted(std::string header, std::vector<net::Payload> payloads) override {
    state_->untaken += int64_t(header.size());
    Send(std::move(header), std::move(payloads));
  }
  void Taken(uint64_t bytes) override { state_->untaken -= int64_t(bytes); }
  void Close(absl::Status reason) override {
    End(reason);
    other_->End(reason);
  }
  Counters counters() const override {  // of what was sent
    Counters counters;
    counters.messages_sent = messages_;
    counters.bytes_sent = bytes_;
    return counters;
  }

 private:
  struct Message {
    std::string header;
    std::vector<std::vector<std::byte>> payloads;
  };

  void Put(Message message) {
    std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(message));
    changed_.notify_one();
  }
  void End(const absl::Status& reason) {
    std::lock_guard lock(mutex_);
    if (over_.ok()) over_ = reason;
    changed_.notify_one();
  }

  void Loop() {
    for (;;) {
      Message message;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !inbox_.empty() || !over_.ok(); });
        if (!over_.ok()) break;
        message = std::move(inbox_.front());
        inbox_.pop_front();
      }
      std::vector<uint64_t> sizes;
      for (const auto& payload : message.payloads) sizes.push_back(payload.size());
      std::vector<net::Bytes> places(sizes.size());
      std::vector<net::Payload> placed(sizes.size());
      if (!sizes.empty()) {
        const absl::Status status = events_->Place(*this, message.header, sizes, places);
        if (!status.ok()) {
          Close(status);
          continue;
        }
        for (size_t i = 0; i < sizes.size(); ++i) {
          std::memcpy(places[i].data(), message.payloads[i].data(), sizes[i]);
          placed[i].bytes = places[i];
        }
      }
      events_->Received(*this, message.header, std::move(placed));
    }
    events_->Broken(*this, over_);
    state_->Exit(events_);
  }

  State* const state_;
  const net::TaskIdentity peer_;
  TaskPeers* const events_;
  Link* other_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> inbox_;
  std::atomic<uint64_t> messages_ = 0, bytes_ = 0;  // sent
  absl::Status over_;
  std::thread thread_;
};

namespace {

class Channel final : public ControlChannel {
 public:
  using Deliver = std::function<void(ControlMethod, ControlRequest, ControlDone)>;
  Channel(LaneThreads* threads, Deliver deliver)
      : threads_(threads), deliver_(std::move(deliver)) {}

  void Call(ControlMethod method, ControlRequest request, ControlDone done) override {
    threads_->Post([=, deliver = deliver_]() mutable {
      deliver(method, std::move(request), std::move(done));
    });
  }

 private:
  LaneThreads* const threads_;
  const Deliver deliver_;
};

}  // namespace

// The network as one process sees it.
class InProcessNetwork::Port final : public Network {
 public:
  Port(State* state, TaskPeers* peers) : state_(state), peers_(peers) {}

  std::shared_ptr<net::Link> OpenLink(const std::string& task, const net::TaskIdentity&) override {
    std::lock_guard lock(state_->mutex);
    TaskPeers* const other = state_->processes[task];
    if (other == nullptr) return nullptr;
    // Two processes have one link, whoever opened it.
    for (const auto& link : state_->links) {
      if (link->Joins(peers_, other)) return link;
    }
    auto here = std::make_shared<Link>(state_, other->self(), peers_);
    auto there = std::make_shared<Link>(state_, peers_->self(), other);
    state_->Enter(peers_);
    state_->Enter(other);
    here->Start(there.get());
    there->Start(here.get());
    state_->links.push_back(here);
    state_->links.push_back(std::move(there));
    return here;
  }

  absl::StatusOr<Control> OpenControl(const std::string& task, int64_t,
                                      std::function<void(absl::Status)>) override {
    net::TaskIdentity identity;
    {
      std::lock_guard lock(state_->mutex);
      const auto it = state_->processes.find(task);
      if (it == state_->processes.end() || it->second == nullptr) {
        return Unavailable("nobody listens there");
      }
      identity = it->second->self();
    }
    const auto deliver = [state = state_, task](ControlMethod method, ControlRequest request,
                                                ControlDone done) {
      TaskPeers* peers = nullptr;
      {
        std::lock_guard lock(state->mutex);
        peers = state->processes[task];
        if (peers != nullptr) state->Enter(peers);
      }
      if (peers == nullptr) {
        done(Unavailable("{} is gone", task));
        return;
      }
      peers->Handle(method, std::move(request), std::move(done));
      state->Exit(peers);
    };
    return Control{std::make_shared<Channel>(&state_->calls, deliver), identity};
  }

  std::string AddressOf(const std::string&) const override { return "in process"; }

 private:
  State* const state_;
  TaskPeers* const peers_;
};

InProcessNetwork::InProcessNetwork() : state_(std::make_shared<State>()) {}
InProcessNetwork::~InProcessNetwork() { state_->links.clear(); }

Network* InProcessNetwork::Join(const std::string& task, TaskPeers* peers) {
  std::lock_guard lock(state_->mutex);
  state_->processes[task] = peers;
  state_->ports.push_back(std::make_unique<Port>(state_.get(), peers));
  return state_->ports.back().get();
}

void InProcessNetwork::Lose(const std::string& task) {
  std::vector<Link*> broken;
  {
    std::lock_guard lock(state_->mutex);
    state_->processes[task] = nullptr;
    for (const auto& link : state_->links) {
      if (link->peer().task == task) broken.push_back(link.get());
    }
  }
  for (Link* link : broken) link->Close(Unavailable("{} was lost", task));
}

void InProcessNetwork::Leave(const std::string& task, TaskPeers* peers) {
  std::unique_lock lock(state_->mutex);
  if (state_->processes[task] == peers) state_->processes[task] = nullptr;
  state_->idle.wait(lock, [&] { return state_->busy[peers] == 0; });
}

int64_t InProcessNetwork::untaken_bytes() const { return state_->untaken; }

}  // namespace tutti::testing
