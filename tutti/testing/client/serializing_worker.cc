#include "tutti/testing/client/serializing_worker.h"

#include <string>
#include <utility>

#include "tutti/runtime/message_codec.h"

namespace tutti::testing {

SerializingWorker::SerializingWorker(std::shared_ptr<Worker> worker, uint64_t seed)
    : worker_(std::move(worker)), random_(seed) {}

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

void SerializingWorker::ListDevices(DevicesDone done) {
  Post([this, done = std::move(done)] {
    worker_->ListDevices([done](absl::StatusOr<std::vector<DeviceInfo>> devices) {
      done(devices.ok() ? DecodeDevices(EncodeDevices(*devices)) : std::move(devices));
    });
  });
}

void SerializingWorker::Register(RegisterRequest request, RegisterDone done) {
  absl::StatusOr<std::string> bytes = EncodeRegister(request);
  Post([this, bytes = std::move(bytes), done = std::move(done)] {
    absl::StatusOr<RegisterRequest> decoded =
        bytes.ok() ? DecodeRegister(*bytes) : absl::StatusOr<RegisterRequest>(bytes.status());
    if (!decoded.ok()) {
      done(decoded.status());
      return;
    }
    worker_->Register(*std::move(decoded), [done](absl::StatusOr<uint64_t> handle) {
      done(handle.ok() ? handle : DecodeStatus(EncodeStatus(handle.status())));
    });
  });
}

void SerializingWorker::Deregister(uint64_t handle) { worker_->Deregister(handle); }

void SerializingWorker::Run(RunRequest&& request, RunDone done) {
  Post([this, bytes = EncodeRun(request), done = std::move(done)] {
    absl::StatusOr<RunRequest> decoded = DecodeRun(bytes);
    if (!decoded.ok()) {
      done({.status = decoded.status(), .unfinished = {}, .results = {}, .trace = nullptr});
      return;
    }
    worker_->Run(*std::move(decoded), [this, done](RunResponse&& response) {
      // The answer may be overtaken by others, too.
      Post([answer = EncodeResponse(response), done] {
        absl::StatusOr<RunResponse> back = DecodeResponse(answer);
        done(back.ok()
                 ? *std::move(back)
                 : RunResponse{
                       .status = back.status(), .unfinished = {}, .results = {}, .trace = nullptr});
      });
    });
  });
}

void SerializingWorker::Abort(const StepId& id, absl::Status reason) {
  worker_->Abort(id, DecodeStatus(EncodeStatus(reason)));
}

void SerializingWorker::CleanUp(const StepId& id) { worker_->CleanUp(id); }

}  // namespace tutti::testing
