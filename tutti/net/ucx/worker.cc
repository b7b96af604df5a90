#include "tutti/net/ucx/worker.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/ucx/link.h"

namespace tutti::net::ucx {
namespace {

constexpr unsigned kMessageId = 7;  // of our active messages; any number does
constexpr int kTurnsOfProgress = 64;
constexpr int64_t kDrainNanos = 200'000'000;  // cancelled requests end in microseconds

bool IsLoopback(std::string_view host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

}  // namespace

absl::Status Worker::Failed(std::string_view what, ucs_status_t status) const {
  return Unavailable("UCX cannot {}: {}", what, Text(status));
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Open(const UcxOptions& options, uint64_t key,
                                                     FrameHandler* handler) {
  TUTTI_ASSIGN_OR_RETURN(const Library* library, Library::Load());
  std::unique_ptr<Worker> worker(new Worker(library, key, handler));
  TUTTI_RETURN_IF_ERROR(worker->OpenContext(options));
  TUTTI_RETURN_IF_ERROR(worker->OpenWorker());
  return worker;
}

absl::Status Worker::OpenContext(const UcxOptions& options) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = library_->config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return Failed("read its configuration", status);
  if (!options.transports.empty()) {
    status = library_->config_modify(config, "TLS", options.transports.c_str());
    if (status != UCS_OK) {
      library_->config_release(config);
      return InvalidArgument("UCX has no transports \"{}\": {}", options.transports, Text(status));
    }
  }
  // A job of one host listens to that host only.
  if (IsLoopback(options.host) && std::getenv("UCX_NET_DEVICES") == nullptr) {
    library_->config_modify(config, "NET_DEVICES", "lo");
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<size_t>(options.size);
  status = library_->init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  library_->config_release(config);
  if (status != UCS_OK) return Failed("be opened (are UCX_TLS and UCX_NET_DEVICES right?)", status);
  return absl::OkStatus();
}

absl::Status Worker::OpenWorker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = library_->worker_create(context_, &params, &worker_);
  if (status != UCS_OK) return Failed("make a worker", status);

  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &Worker::OnMessage;
  handler.arg = this;
  status = library_->worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return Failed("take messages", status);

  status = library_->worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return Failed("tell when something comes", status);

  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  status = library_->worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return Failed("tell its address", status);
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  library_->worker_release_address(worker_, address);
  return absl::OkStatus();
}

Worker::~Worker() {
  while (!arrived_.empty()) {
    Drop(arrived_.front().payload);
    arrived_.pop_front();
  }
  // Of a halted worker UCX might still read memory that is gone, so it stays.
  if (halted_) return;
  if (worker_ != nullptr) library_->worker_destroy(worker_);
  if (context_ != nullptr) library_->cleanup(context_);
}

bool Worker::Arm() {
  if (halted_) return true;
  return arrived_.empty() && completed_.empty() && failed.empty() &&
         library_->worker_arm(worker_) == UCS_OK;
}

// Connections ------------------------------------------------------------------------------------

// Where UCX has no transport that tells of broken connections, as its shared memory does not, it
// connects without that. The star notices a dead peer in any case.
absl::StatusOr<Worker::Connection> Worker::Connect(const std::string& address, Link* link) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_handler.cb = &Worker::OnFailed;
  params.err_handler.arg = link;
  Connection connection;
  ucs_status_t status = UCS_OK;
  for (const ucp_err_handling_mode_t mode :
       {UCP_ERR_HANDLING_MODE_PEER, UCP_ERR_HANDLING_MODE_NONE}) {
    params.err_mode = mode;
    connection.tells_failures = mode == UCP_ERR_HANDLING_MODE_PEER;
    status = library_->ep_create(worker_, &params, &connection.endpoint);
    if (status == UCS_OK) return connection;
    if (status != UCS_ERR_UNREACHABLE) break;
  }
  return Failed("connect", status);
}

void Worker::CloseNow(const Connection& connection, const Transfers& transfers) {
  if (halted_) return;
  if (connection.tells_failures) {
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    param.cb.send = &Worker::OnClosed;
    param.user_data = const_cast<Library*>(library_);
    library_->ep_close_nbx(connection.endpoint, &param);
  }
  halted_ = !Drain(transfers);
}

void* Worker::Close(const Connection& connection) {
  if (halted_) return nullptr;
  ucp_request_param_t param{};
  void* const request = library_->ep_close_nbx(connection.endpoint, &param);
  return UCS_PTR_IS_PTR(request) ? request : nullptr;
}

bool Worker::Closed(void* request, bool give_up) {
  if (request == nullptr) return true;
  if (!give_up && library_->request_check_status(request) == UCS_INPROGRESS) return false;
  library_->request_free(request);
  return true;
}

// Transfers --------------------------------------------------------------------------------------

Transfer* Worker::Add(Transfers* home, Ended ended) {
  if (free_.empty()) free_.emplace_back();
  home->splice(home->end(), free_, free_.begin());
  Transfer& transfer = home->back();
  transfer.worker = this;
  transfer.home = home;
  transfer.self = std::prev(home->end());
  transfer.ended = std::move(ended);
  transfer.done = false;
  return &transfer;
}

// `request` is what UCX returned: none if it is done, an error, or one whose end is told later.
void Worker::Settle(Transfer* transfer, void* request) {
  if (UCS_PTR_IS_PTR(request)) return;
  transfer->done = true;
  transfer->status = request == nullptr ? UCS_OK : UCS_PTR_STATUS(request);
  Finish(transfer);
}

void Worker::Finish(Transfer* transfer) {
  const Ended ended = std::exchange(transfer->ended, nullptr);
  const ucs_status_t status = transfer->status;
  transfer->copy.clear();
  transfer->region = nullptr;
  free_.splice(free_.begin(), *transfer->home, transfer->self);
  if (ended == nullptr) return;
  ended(status == UCS_OK ? absl::OkStatus() : Unavailable("connection lost: {}", Text(status)));
}

void Worker::StartSend(const Connection& connection, Send send, Transfers* home, Ended ended) {
  Transfer* const transfer = Add(home, std::move(ended));
  transfer->header = send.header;
  transfer->region = std::move(send.region);
  transfer->borrows = !send.copies && !send.data.empty();
  if (send.copies) {
    transfer->copy.assign(send.data.begin(), send.data.end());
    send.data = transfer->copy;
  }
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = send.flags;
  param.cb.send = &Worker::OnSent;
  param.user_data = transfer;
  Settle(transfer, library_->am_send_nbx(connection.endpoint, kMessageId, &transfer->header,
                                         sizeof(transfer->header), send.data.data(),
                                         send.data.size(), &param));
}

void Worker::StartReceive(void* descriptor, Bytes destination,
                          std::shared_ptr<message::Region> region, Transfers* home, Ended ended) {
  Transfer* const transfer = Add(home, std::move(ended));
  transfer->region = std::move(region);
  transfer->borrows = true;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = &Worker::OnReceived;
  param.user_data = transfer;
  Settle(transfer, library_->am_recv_data_nbx(worker_, descriptor, destination.data(),
                                              destination.size(), &param));
}

void Worker::Drop(const Payload& payload) {
  if (payload.remote && !halted_) library_->am_data_release(worker_, payload.data);
}

void Worker::Abandon(Transfers* transfers, const absl::Status& status) {
  std::vector<Ended> told;
  while (!transfers->empty()) {
    Transfer& transfer = transfers->front();
    if (transfer.ended != nullptr) told.push_back(std::exchange(transfer.ended, nullptr));
    transfer.home = &abandoned_;
    abandoned_.splice(abandoned_.end(), *transfers, transfer.self);
  }
  for (const Ended& ended : told) ended(status);
}

// Callbacks --------------------------------------------------------------------------------------

void Worker::OnSent(void* request, ucs_status_t status, void* user_data) {
  auto* const transfer = static_cast<Transfer*>(user_data);
  transfer->done = true;
  transfer->status = status;
  transfer->worker->completed_.push_back(transfer);
  transfer->worker->library_->request_free(request);
}

void Worker::OnReceived(void* request, ucs_status_t status, size_t /*bytes*/, void* user_data) {
  OnSent(request, status, user_data);
}

void Worker::OnClosed(void* request, ucs_status_t /*status*/, void* library) {
  static_cast<const Library*>(library)->request_free(request);
}

void Worker::OnFailed(void* user_data, ucp_ep_h /*connection*/, ucs_status_t status) {
  Link* const link = static_cast<Link*>(user_data);
  link->worker().failed.push_back({link, status});
}

ucs_status_t Worker::OnMessage(void* user_data, const void* header_bytes, size_t header_size,
                               void* data, size_t bytes, const ucp_am_recv_param_t* param) {
  Worker& worker = *static_cast<Worker*>(user_data);
  const Payload payload = {
      .data = data, .bytes = bytes, .remote = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0};
  absl::StatusOr<FrameHeader> header = ReadHeader(header_bytes, header_size, bytes);
  if (header.ok() && header->key != worker.key_) {
    header = InvalidArgument("does not know the key of this rank: it is of another job");
  }
  if (!header.ok()) {
    worker.handler_->OnStranger(header.status());
    return UCS_OK;  // drops the data
  }
  if (payload.remote) {
    worker.arrived_.push_back({.header = *header, .copy = {}, .payload = payload});
    return UCS_INPROGRESS;
  }
  if (worker.draining_ || !worker.arrived_.empty()) {
    Arrived& kept = worker.arrived_.emplace_back();
    kept.header = *header;
    kept.copy.assign(static_cast<std::byte*>(data), static_cast<std::byte*>(data) + bytes);
    kept.payload = {.data = kept.copy.data(), .bytes = bytes};
    return UCS_OK;
  }
  worker.handler_->OnFrame(*header, payload);
  return UCS_OK;
}

// Progress ---------------------------------------------------------------------------------------

void Worker::HandleArrived() {
  while (!arrived_.empty()) {
    const Arrived arrived = std::move(arrived_.front());
    arrived_.pop_front();
    handler_->OnFrame(arrived.header, arrived.payload);
  }
}

void Worker::HandleCompleted() {
  // What is told may start more transfers, but none of these is completed before UCX is called.
  for (size_t i = 0; i < completed_.size(); ++i) Finish(completed_[i]);
  completed_.clear();
}

bool Worker::Progress() {
  bool moved = !arrived_.empty() || !completed_.empty();
  HandleArrived();
  HandleCompleted();
  for (int turn = 0; turn < kTurnsOfProgress && !halted_; ++turn) {
    if (library_->worker_progress(worker_) == 0) break;
    moved = true;
    HandleArrived();
    HandleCompleted();
  }
  return moved || !failed.empty();
}

bool Worker::Drain(const Transfers& transfers) {
  const int64_t end = NowNanos() + kDrainNanos;
  const auto borrows = [](const Transfer& transfer) { return transfer.borrows && !transfer.done; };
  draining_ = true;
  while (std::any_of(transfers.begin(), transfers.end(), borrows) && NowNanos() < end) {
    library_->worker_progress(worker_);
  }
  draining_ = false;
  return std::none_of(transfers.begin(), transfers.end(), borrows);
}

}  // namespace tutti::net::ucx
