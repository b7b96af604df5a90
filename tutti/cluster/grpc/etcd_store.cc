// Every change is a transaction: conditions on the revisions of keys, what to do when they hold,
// and what to read when they do not, so that the error can tell what was there.
//
// A call that was not answered may have been carried out, and is made again at another member. To
// set a key again does no harm. A condition that held the first time does not hold the second time:
// so where an attempt before was not answered, a key that has our value and lease is taken for
// ours. The number of a lease is chosen here, so that a second grant of it is recognised.
#include "tutti/cluster/grpc/etcd_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "proto/etcd.grpc.pb.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/cluster/grpc/etcd_calls.h"
#include "tutti/net/wire.h"

namespace tutti {
namespace {

namespace pb = etcdserverpb;
using net::LeaseId;
using net::StoreEntry;
using net::StoreEvent;

constexpr auto kPause = std::chrono::milliseconds(100);  // between two streams of a watch

// The first key behind all that begin with `prefix`.
std::string EndOf(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');
  prefix.back() = char(uint8_t(prefix.back()) + 1);
  return prefix;
}

LeaseId MakeLeaseId() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return LeaseId(random() >> 1) | 1;
}

class EtcdStore final : public net::Store {
 public:
  explicit EtcdStore(EtcdOptions options)
      : calls_(std::make_shared<EtcdCalls>(std::move(options))),
        prefix_(calls_->options().prefix) {}

  using Store::Put;
  absl::StatusOr<int64_t> Put(const std::string& key, std::string value,
                              const PutOptions& options) override;
  absl::StatusOr<int64_t> Delete(const std::string& key,
                                 std::optional<int64_t> if_version) override;
  absl::StatusOr<Range> List(std::string_view prefix) override;
  absl::StatusOr<std::optional<StoreEntry>> Get(const std::string& key) override;
  absl::StatusOr<LeaseId> Grant(double seconds) override;
  absl::Status KeepAlive(LeaseId lease) override;
  absl::Status Revoke(LeaseId lease) override;
  using Store::StartWatch;
  absl::StatusOr<std::unique_ptr<Watch>> StartWatch(std::string prefix, int64_t from,
                                                    OnEvents on_events, OnEnd on_end) override;

 private:
  class Stream;

  void Require(pb::TxnRequest& request, const std::string& key, int64_t version) const {
    pb::Compare& compare = *request.add_compare();
    compare.set_target(pb::Compare::MOD);
    compare.set_key(prefix_ + key);
    compare.set_mod_revision(version);
    request.add_failure()->mutable_request_range()->set_key(prefix_ + key);
  }
  absl::StatusOr<pb::TxnResponse> Commit(const pb::TxnRequest& request, bool* unsure);
  absl::StatusOr<pb::RangeResponse> Read(const pb::RangeRequest& request);
  static StoreEntry EntryOf(const pb::KeyValue& found, size_t prefix);

  const std::shared_ptr<EtcdCalls> calls_;
  const std::string prefix_;
};

StoreEntry EtcdStore::EntryOf(const pb::KeyValue& found, size_t prefix) {
  return {found.key().substr(std::min(prefix, found.key().size())), found.value(),
          found.create_revision(), found.mod_revision(), found.lease()};
}

absl::StatusOr<pb::TxnResponse> EtcdStore::Commit(const pb::TxnRequest& request, bool* unsure) {
  pb::TxnResponse response;
  TUTTI_RETURN_IF_ERROR(calls_->Call(
      [&](const EtcdCalls::Channel& channel, grpc::ClientContext& context) {
        return pb::KV::NewStub(channel)->Txn(&context, request, &response);
      },
      unsure));
  return response;
}

absl::StatusOr<pb::RangeResponse> EtcdStore::Read(const pb::RangeRequest& request) {
  pb::RangeResponse response;
  bool unsure = false;
  TUTTI_RETURN_IF_ERROR(calls_->Call(
      [&](const EtcdCalls::Channel& channel, grpc::ClientContext& context) {
        return pb::KV::NewStub(channel)->Range(&context, request, &response);
      },
      &unsure));
  return response;
}

// Keys -------------------------------------------------------------------------------------------

absl::StatusOr<int64_t> EtcdStore::Put(const std::string& key, std::string value,
                                       const PutOptions& options) {
  pb::TxnRequest request;
  if (options.if_version) Require(request, key, *options.if_version);
  if (options.guard) Require(request, options.guard->key, options.guard->version);
  pb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(prefix_ + key);
  put.set_value(value);
  put.set_lease(options.lease);
  bool unsure = false;
  TUTTI_ASSIGN_OR_RETURN(const pb::TxnResponse response, Commit(request, &unsure));
  if (response.succeeded()) return response.header().revision();
  for (int i = 0; i < response.responses_size(); ++i) {
    const pb::RangeResponse& read = response.responses(i).response_range();
    const int64_t version = read.kvs_size() == 0 ? 0 : read.kvs(0).mod_revision();
    const pb::Compare& wanted = request.compare(i);
    if (version == wanted.mod_revision()) continue;
    if (unsure && wanted.key() == prefix_ + key && version != 0 && read.kvs(0).value() == value &&
        read.kvs(0).lease() == options.lease) {
      return version;
    }
    const std::string there =
        version == 0 ? "there is no such key" : fmt::format("it is {}", version);
    const std::string expected = wanted.mod_revision() == 0
                                     ? "no such key"
                                     : fmt::format("version {}", wanted.mod_revision());
    return FailedPrecondition("key '{}': expected {}, but {}",
                              net::Printable(wanted.key().substr(prefix_.size())), expected, there);
  }
  return FailedPrecondition("key '{}': it was not as expected", net::Printable(key));
}

absl::StatusOr<int64_t> EtcdStore::Delete(const std::string& key,
                                          std::optional<int64_t> if_version) {
  pb::TxnRequest request;
  if (if_version) Require(request, key, *if_version);
  request.add_success()->mutable_request_delete_range()->set_key(prefix_ + key);
  bool unsure = false;
  TUTTI_ASSIGN_OR_RETURN(const pb::TxnResponse response, Commit(request, &unsure));
  const bool deleted =
      response.succeeded() && response.responses(0).response_delete_range().deleted() > 0;
  const bool there = !response.succeeded() && response.responses(0).response_range().kvs_size() > 0;
  if (deleted || (unsure && !there)) return response.header().revision();
  if (response.succeeded()) return NotFound("there is no key '{}'", net::Printable(key));
  return FailedPrecondition(
      "key '{}': expected version {}, but {}", net::Printable(key), *if_version,
      there ? fmt::format("it is {}", response.responses(0).response_range().kvs(0).mod_revision())
            : "there is no such key");
}

absl::StatusOr<net::Store::Range> EtcdStore::List(std::string_view prefix) {
  pb::RangeRequest request;
  request.set_key(prefix_ + std::string(prefix));
  request.set_range_end(EndOf(request.key()));
  TUTTI_ASSIGN_OR_RETURN(const pb::RangeResponse response, Read(request));
  Range range{.revision = response.header().revision()};
  for (const pb::KeyValue& found : response.kvs()) {
    range.entries.push_back(EntryOf(found, prefix_.size()));
  }
  return range;
}

absl::StatusOr<std::optional<StoreEntry>> EtcdStore::Get(const std::string& key) {
  pb::RangeRequest request;
  request.set_key(prefix_ + key);
  TUTTI_ASSIGN_OR_RETURN(const pb::RangeResponse response, Read(request));
  if (response.kvs_size() == 0) return std::nullopt;
  return EntryOf(response.kvs(0), prefix_.size());
}

// Leases -----------------------------------------------------------------------------------------

absl::StatusOr<LeaseId> EtcdStore::Grant(double seconds) {
  if (!(seconds > 0 && seconds <= 86'400)) {
    return InvalidArgument("a lease of {} s; expected more than 0 and at most 86,400 s", seconds);
  }
  pb::LeaseGrantRequest request;
  request.set_id(MakeLeaseId());
  request.set_ttl(int64_t(std::ceil(seconds)));
  pb::LeaseGrantResponse response;
  bool unsure = false;
  const absl::Status status = calls_->Call(
      [&](const EtcdCalls::Channel& channel, grpc::ClientContext& context) {
        return pb::Lease::NewStub(channel)->LeaseGrant(&context, request, &response);
      },
      &unsure);
  if (!status.ok() && !(unsure && absl::IsFailedPrecondition(status))) return status;
  return request.id();
}

absl::Status EtcdStore::KeepAlive(LeaseId lease) {
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  pb::LeaseKeepAliveResponse response;
  bool unsure = false;
  TUTTI_RETURN_IF_ERROR(calls_->Call(
      [&](const EtcdCalls::Channel& channel, grpc::ClientContext& context) {
        const auto stub = pb::Lease::NewStub(channel);
        const auto stream = stub->LeaseKeepAlive(&context);
        const bool answered = stream->Write(request) && stream->Read(&response);
        if (answered) context.TryCancel();
        const grpc::Status status = stream->Finish();
        return answered ? grpc::Status::OK : status;
      },
      &unsure));
  return response.ttl() > 0 ? absl::OkStatus() : NotFound("lease {} is over", lease);
}

absl::Status EtcdStore::Revoke(LeaseId lease) {
  pb::LeaseRevokeRequest request;
  request.set_id(lease);
  pb::LeaseRevokeResponse response;
  bool unsure = false;
  const absl::Status status = calls_->Call(
      [&](const EtcdCalls::Channel& channel, grpc::ClientContext& context) {
        return pb::Lease::NewStub(channel)->LeaseRevoke(&context, request, &response);
      },
      &unsure);
  return unsure && absl::IsNotFound(status) ? absl::OkStatus() : status;
}

// Watches ----------------------------------------------------------------------------------------

// One stream after the other, each from behind the last change that came, on a thread of its own.
class EtcdStore::Stream final : public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::shared_ptr<EtcdCalls> calls, std::string prefix, int64_t from, OnEvents on_events,
         OnEnd on_end)
      : calls_(std::move(calls)),
        prefix_(std::move(prefix)),
        from_(std::max<int64_t>(1, from)),
        on_events_(std::move(on_events)),
        on_end_(std::move(on_end)) {}

  absl::Status Start() {
    TUTTI_ASSIGN_OR_RETURN(
        thread_, StartThread("a watch of the etcd", [self = shared_from_this()] { self->Run(); }));
    return absl::OkStatus();
  }
  // No call is made afterwards.
  void End() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      if (context_ != nullptr) context_->TryCancel();
      changed_.notify_all();
    }
    if (thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();  // it holds what it uses
    } else {
      thread_.join();
    }
  }

 private:
  bool ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  void Run() {
    int64_t silent_since = NowNanos();
    while (!ended()) {
      const size_t member = calls_->current();
      bool answered = false;
      const absl::Status status = Read(member, &answered);
      if (ended()) return;
      if (answered) silent_since = NowNanos();
      const bool passes = absl::IsUnavailable(status);
      const bool patient =
          double(NowNanos() - silent_since) * 1e-9 < calls_->options().patience_seconds;
      if (!passes || !patient) {
        if (on_end_ != nullptr) on_end_(status);
        return;
      }
      calls_->Skip(member);
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kPause, [this] { return ended_; });
    }
  }

  // Until the stream ends.
  absl::Status Read(size_t member, bool* answered) {
    grpc::ClientContext context;
    // A member that finds itself without a majority ends the stream instead of keeping silent.
    context.AddMetadata("hasleader", "true");
    TUTTI_RETURN_IF_ERROR(calls_->Connect(member, /*patient=*/true));
    const EtcdCalls::Channel& channel = calls_->channel(member);
    TUTTI_RETURN_IF_ERROR(calls_->AddToken(channel, context));
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return absl::OkStatus();
      context_ = &context;
    }
    const auto stub = pb::Watch::NewStub(channel);
    const auto stream = stub->Watch(&context);
    pb::WatchRequest request;
    request.mutable_create_request()->set_key(prefix_);
    request.mutable_create_request()->set_range_end(EndOf(prefix_));
    request.mutable_create_request()->set_start_revision(from_);
    absl::Status refused;
    pb::WatchResponse response;
    for (bool more = stream->Write(request); more && refused.ok() && stream->Read(&response);) {
      *answered = true;
      calls_->Answered();
      if (response.canceled()) {
        refused =
            response.compact_revision() > 0
                ? OutOfRange(
                      "changes since revision {} are asked for; they are known since "
                      "{}",
                      from_, response.compact_revision())
                : MakeStatus(absl::StatusCode::kPermissionDenied, "etcd ends the watch of '{}': {}",
                             net::Printable(prefix_), response.cancel_reason());
      }
      Tell(response);
      if (ended()) break;
    }
    context.TryCancel();
    const grpc::Status status = stream->Finish();
    {
      const std::lock_guard lock(mutex_);
      context_ = nullptr;
    }
    if (!refused.ok()) return refused;
    if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED && *answered) {
      calls_->ForgetToken();
      return Unavailable("etcd: {}", status.error_message());
    }
    // A stream that ends without a reason, or as we cancelled it, is begun again.
    if (status.ok() || status.error_code() == grpc::StatusCode::CANCELLED) {
      return Unavailable("etcd ended a watch");
    }
    return calls_->ToStatus(status);
  }

  void Tell(const pb::WatchResponse& response) {
    std::vector<StoreEvent> events;
    for (const pb::Event& event : response.events()) {
      const bool put = event.type() == pb::Event::PUT;
      events.push_back({put ? StoreEvent::Kind::kPut : StoreEvent::Kind::kDelete,
                        EntryOf(event.kv(), calls_->options().prefix.size())});
      from_ = std::max(from_, event.kv().mod_revision() + 1);
    }
    if (!events.empty() && !ended()) on_events_(events);
  }

  const std::shared_ptr<EtcdCalls> calls_;
  const std::string prefix_;
  int64_t from_;
  const OnEvents on_events_;
  const OnEnd on_end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  grpc::ClientContext* context_ = nullptr;  // of the stream there is
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<net::Store::Watch>> EtcdStore::StartWatch(std::string prefix,
                                                                         int64_t from,
                                                                         OnEvents on_events,
                                                                         OnEnd on_end) {
  class Handle final : public Watch {
   public:
    explicit Handle(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
    ~Handle() override { stream_->End(); }

   private:
    const std::shared_ptr<Stream> stream_;
  };
  auto stream = std::make_shared<Stream>(calls_, prefix_ + prefix, from, std::move(on_events),
                                         std::move(on_end));
  TUTTI_RETURN_IF_ERROR(stream->Start());
  return std::make_unique<Handle>(std::move(stream));
}

}  // namespace

absl::StatusOr<std::shared_ptr<net::Store>> OpenEtcd(EtcdOptions options) {
  if (options.endpoints.empty()) return InvalidArgument("an etcd without endpoints");
  return std::make_shared<EtcdStore>(std::move(options));
}

}  // namespace tutti
