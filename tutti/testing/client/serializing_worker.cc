#include "tutti/testing/client/serializing_worker.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/runtime/messages/message_codec.h"

namespace tutti::testing {

SerializingWorker::SerializingWorker(std::shared_ptr<Worker> worker, uint64_t seed, bool hold_calls)
    : worker_(std::move(worker)), hold_calls_(hold_calls), random_(seed) {}

SerializingWorker::~SerializingWorker() { TUTTI_CHECK(calls_ == 0); }

bool SerializingWorker::Coin() {
  std::lock_guard lock(mutex_);
  return random_() % 2 == 0;
}

void SerializingWorker::Post(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    pending_.push_back(std::move(job));
  }
  threads_.Post([this] {
    std::function<void()> chosen;
    {
      std::lock_guard lock(mutex_);
      std::swap(pending_[random_() % pending_.size()], pending_.back());
      chosen = std::move(pending_.back());
      pending_.pop_back();
    }
    chosen();
  });
}

namespace {

// The tensors as they come: plain bytes in memory of their own.
std::vector<Tensor> Received(const std::vector<Tensor>& sent) {
  std::vector<Tensor> received;
  for (const Tensor& tensor : sent) {
    received.emplace_back(kUInt8, Shape{int64_t(tensor.bytes())});
    std::memcpy(received.back().raw(), tensor.raw(), tensor.bytes());
  }
  return received;
}

absl::Status ThereAndBack(const absl::Status& status) {
  WireMessage message;
  EncodeStatus(status, message);
  return DecodeStatus(message.fields);
}

RunResponse Failed(absl::Status status) {
  RunResponse response;
  response.status = std::move(status);
  return response;
}

}  // namespace

void SerializingWorker::ListDevices(DevicesDone done) {
  Post([this, done = std::move(done)] {
    worker_->ListDevices([done](absl::StatusOr<std::vector<DeviceInfo>> devices) {
      WireMessage message;
      if (devices.ok()) EncodeDevices(*devices, message);
      done(devices.ok() ? DecodeDevices(message.fields) : std::move(devices));
    });
  });
}

void SerializingWorker::Register(RegisterRequest request, RegisterDone done) {
  auto message = std::make_shared<WireMessage>();
  const absl::Status encoded = EncodeRegister(request, *message);
  Post([this, message, encoded, done = std::move(done)] {
    absl::StatusOr<RegisterRequest> decoded =
        encoded.ok() ? DecodeRegister(message->fields, Received(message->tensors))
                     : absl::StatusOr<RegisterRequest>(encoded);
    if (!decoded.ok()) {
      done(decoded.status());
      return;
    }
    worker_->Register(*std::move(decoded), [done](absl::StatusOr<uint64_t> handle) {
      done(handle.ok() ? handle : ThereAndBack(handle.status()));
    });
  });
}

void SerializingWorker::Deregister(uint64_t handle) { worker_->Deregister(handle); }

void SerializingWorker::Run(RunRequest&& request, RunDone done) {
  ++calls_;
  const auto answered = std::make_shared<std::atomic<bool>>(false);
  const auto answer = [done = std::move(done), answered](RunResponse&& response) {
    done(std::move(response));
    answered->store(true);
    answered->notify_one();
  };
  auto message = std::make_shared<WireMessage>();
  EncodeRun(request, *message);
  message->tensors = Received(message->tensors);
  Post([this, message, answer] {
    absl::StatusOr<RunRequest> decoded = DecodeRun(message->fields, message->tensors);
    if (!decoded.ok()) {
      answer(Failed(decoded.status()));
      return;
    }
    worker_->Run(*std::move(decoded), [this, answer](RunResponse&& response) {
      auto sent = std::make_shared<WireMessage>();
      EncodeResponse(response, *sent);
      sent->tensors = Received(sent->tensors);
      // The answer may be overtaken by others, too.
      Post([sent, answer] {
        absl::StatusOr<RunResponse> back = DecodeResponse(sent->fields, sent->tensors);
        answer(back.ok() ? *std::move(back) : Failed(back.status()));
      });
    });
  });
  if (hold_calls_ && Coin()) answered->wait(false);
  --calls_;
}

void SerializingWorker::Abort(const StepId& id, absl::Status reason) {
  worker_->Abort(id, ThereAndBack(reason));
}

void SerializingWorker::CleanUp(const StepId& id) { worker_->CleanUp(id); }

}  // namespace tutti::testing
