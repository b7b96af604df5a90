#include "tutti/cluster/grpc/etcd_calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <utility>

#include "proto/etcd.grpc.pb.h"
#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"

namespace tutti {
namespace {

// A member that was lost is tried again after at most so long, and then has so long to connect.
constexpr int kBackoffMillis = 500;
constexpr int kConnectMillis = 2000;
constexpr int64_t kTellAfter = 2'000'000'000;  // of silence
constexpr int64_t kTellEvery = 5'000'000'000;

// A member that was lost is tried again soon; one that hangs is noticed while a watch waits. etcd
// ends connections that are pinged more often than every 5 s.
grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMillis);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kBackoffMillis);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 6000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

}  // namespace

EtcdCalls::EtcdCalls(EtcdOptions options) : options_(std::move(options)) {
  name_ = fmt::format("etcd ({})", fmt::join(options_.endpoints, ", "));
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = options_.ca;
  tls.pem_cert_chain = options_.certificate;
  tls.pem_private_key = options_.key;
  const auto credentials =
      options_.ca.empty() ? grpc::InsecureChannelCredentials() : grpc::SslCredentials(tls);
  for (const std::string& endpoint : options_.endpoints) {
    channels_.push_back(grpc::CreateCustomChannel(endpoint, credentials, Arguments()));
  }
}

// What etcd means it says with a code of its own; the codes below are those of a member that dies
// in the middle of an answer, or whose own clock finds our deadline over first (UNKNOWN).
bool EtcdCalls::MayPass(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
      return true;
    default:
      return false;
  }
}

absl::Status EtcdCalls::ToStatus(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  const auto code =
      MayPass(status) ? absl::StatusCode::kUnavailable : absl::StatusCode(int(status.error_code()));
  return MakeStatus(code, "{}: {}", name_, status.error_message());
}

void EtcdCalls::Skip(size_t member) {
  size_t expected = member;  // unless another call has moved on already
  current_.compare_exchange_strong(expected, (member + 1) % channels_.size());
}

// Nothing moves on a channel but while somebody waits for it, so this waits for changes of its
// state and never sleeps.
absl::Status EtcdCalls::Connect(size_t member, bool patient) const {
  const auto now = std::chrono::system_clock::now();
  const auto back_off = now + std::chrono::milliseconds(kBackoffMillis + kBackoffMillis / 2);
  const auto limit = now + std::chrono::milliseconds(kConnectMillis);
  bool failed_before = true;
  grpc::Channel& channel = *channels_[member];
  while (true) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
    const bool failed = state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN;
    if (!failed) failed_before = false;
    if ((failed && !(patient && failed_before)) ||
        !channel.WaitForStateChange(state, failed ? back_off : limit)) {
      return Unavailable("{}: no connection to {}", name_, options_.endpoints[member]);
    }
  }
}

absl::Status EtcdCalls::AddToken(const Channel& channel, grpc::ClientContext& context) {
  if (options_.user.empty()) return absl::OkStatus();
  std::string token;
  {
    const std::lock_guard lock(mutex_);
    token = token_;
  }
  if (token.empty()) {
    grpc::ClientContext log_in;
    log_in.set_deadline(std::chrono::system_clock::now() +
                        std::chrono::milliseconds(int64_t(options_.attempt_seconds * 1e3)));
    etcdserverpb::AuthenticateRequest request;
    request.set_name(options_.user);
    request.set_password(options_.password);
    etcdserverpb::AuthenticateResponse response;
    const grpc::Status status =
        etcdserverpb::Auth::NewStub(channel)->Authenticate(&log_in, request, &response);
    if (!status.ok()) {
      return WithPrefix(ToStatus(status), fmt::format("user \"{}\": ", options_.user));
    }
    token = response.token();
    const std::lock_guard lock(mutex_);
    token_ = token;
  }
  context.AddMetadata("token", token);
  return absl::OkStatus();
}

void EtcdCalls::ForgetToken() {
  const std::lock_guard lock(mutex_);
  token_.clear();
}

absl::Status EtcdCalls::Call(const Attempt& attempt, bool* unsure) {
  const int64_t deadline = NowNanos() + int64_t(options_.patience_seconds * 1e9);
  bool new_token = false, patient = channels_.size() == 1;
  *unsure = false;
  absl::Status last;
  for (size_t tried = 0;; ++tried) {
    if (tried == channels_.size()) {  // none of them
      Silent(last);
      if (options_.stopped != nullptr && options_.stopped()) return last;
      if (NowNanos() >= deadline) {
        return Unavailable("{}; tried for {} s", MessageOf(last), options_.patience_seconds);
      }
      patient = true;
      tried = 0;
    }
    const size_t member = current();
    absl::Status status = Connect(member, patient);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(int64_t(options_.attempt_seconds * 1e3)));
    if (status.ok()) status = AddToken(channel(member), context);
    if (status.ok()) {
      const grpc::Status answer = attempt(channel(member), context);
      if (answer.error_code() == grpc::StatusCode::UNAUTHENTICATED && !new_token) {
        new_token = true;  // the token is too old
        ForgetToken();
        continue;
      }
      if (MayPass(answer)) *unsure = true;
      status = ToStatus(answer);
    }
    if (!absl::IsUnavailable(status)) {
      Answered();
      return status;
    }
    last = status;
    Skip(member);
  }
}

void EtcdCalls::Answered() {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    if (told_at_ != 0) {
      text = fmt::format("{} answers again, after {:.1f} s", name_,
                         double(NowNanos() - silent_since_) * 1e-9);
    }
    silent_since_ = told_at_ = 0;
  }
  if (text.empty()) return;
  if (options_.notice != nullptr) {
    options_.notice(text);
  } else {
    Log(LogLevel::kWarning, "{}", text);
  }
}

void EtcdCalls::Silent(const absl::Status& why) {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    const int64_t now = NowNanos();
    if (silent_since_ == 0) silent_since_ = now;
    if (now - silent_since_ >= kTellAfter && now - told_at_ >= kTellEvery) {
      told_at_ = now;
      text = fmt::format("{} for {:.0f} s; what needs it waits, up to {} s", MessageOf(why),
                         double(now - silent_since_) * 1e-9, options_.patience_seconds);
    }
  }
  if (text.empty()) return;
  if (options_.notice != nullptr) {
    options_.notice(text);
  } else {
    Log(LogLevel::kWarning, "{}", text);
  }
}

}  // namespace tutti
