#include "tutti/cluster/task_status.h"

#include <utility>

#include "tutti/net/wire.h"

namespace tutti {
namespace {

using net::WireReader;
using net::WireWriter;

// The length of a list whose elements take at least `least` bytes each. 0 after an error.
size_t GetCount(WireReader& in, size_t least) {
  const uint32_t count = in.U32();
  if (count <= in.remaining() / least) return count;
  in.Raw(in.remaining() + 1);  // an element that is not there
  return 0;
}

void Put(const TaskStatus& status, WireMessage& to) {
  WireWriter out(&to.fields);
  out.Text32(status.task);
  out.U64(status.incarnation);
  out.Text32(status.address);
  out.Text32(status.error);
  out.I64(status.uptime_nanos);
  WireMessage devices;
  EncodeDevices(status.devices, devices);
  out.Text32(devices.fields);
  out.I64(status.sessions);
  out.I64(status.registered_steps);
  out.I64(status.memory_bytes);
  out.U64(status.refused_values);
  out.U64(status.refused_links);
  out.U64(status.fenced_messages);
  out.U64(status.bytes_received);
  out.U64(status.bytes_sent);
  out.I64(status.requests);
  out.I64(status.busy_nanos);
  out.I64(status.lock_nanos);
  out.I64(status.cloned_bytes);
  out.U32(uint32_t(status.links.size()));
  for (const TaskStatus::Link& link : status.links) {
    out.Text32(link.peer);
    out.U64(link.incarnation);
    out.U64(link.messages_sent);
    out.U64(link.bytes_sent);
    out.U64(link.messages_received);
    out.U64(link.bytes_received);
  }
  out.U32(uint32_t(status.steps.size()));
  for (const TaskStatus::Step& step : status.steps) {
    out.U64(step.session);
    out.I64(step.step);
    out.Text32(step.master);
    out.I64(step.running_nanos);
    out.Text32(step.waits_for);
  }
}

absl::Status Get(WireReader& in, TaskStatus& status) {
  status.task = in.Text32();
  status.incarnation = in.U64();
  status.address = in.Text32();
  status.error = in.Text32();
  status.uptime_nanos = in.I64();
  const std::string_view devices = in.Text32();
  if (in.ok()) {
    TUTTI_ASSIGN_OR_RETURN(status.devices, DecodeDevices(devices));
  }
  status.sessions = in.I64();
  status.registered_steps = in.I64();
  status.memory_bytes = in.I64();
  status.refused_values = in.U64();
  status.refused_links = in.U64();
  status.fenced_messages = in.U64();
  status.bytes_received = in.U64();
  status.bytes_sent = in.U64();
  status.requests = in.I64();
  status.busy_nanos = in.I64();
  status.lock_nanos = in.I64();
  status.cloned_bytes = in.I64();
  status.links.resize(GetCount(in, 44));
  for (TaskStatus::Link& link : status.links) {
    link.peer = in.Text32();
    link.incarnation = in.U64();
    link.messages_sent = in.U64();
    link.bytes_sent = in.U64();
    link.messages_received = in.U64();
    link.bytes_received = in.U64();
  }
  status.steps.resize(GetCount(in, 32));
  for (TaskStatus::Step& step : status.steps) {
    step.session = in.U64();
    step.step = in.I64();
    step.master = in.Text32();
    step.running_nanos = in.I64();
    step.waits_for = in.Text32();
  }
  return absl::OkStatus();
}

}  // namespace

void EncodeTaskStatus(const TaskStatus& status, WireMessage& to) { Put(status, to); }

absl::StatusOr<TaskStatus> DecodeTaskStatus(std::string_view fields) {
  WireReader in(fields);
  TaskStatus status;
  TUTTI_RETURN_IF_ERROR(Get(in, status));
  if (!in.Complete()) return InvalidArgument("a task's status that is cut off or too long");
  return status;
}

void EncodeTaskStatuses(const std::vector<TaskStatus>& statuses, WireMessage& to) {
  WireWriter(&to.fields).U32(uint32_t(statuses.size()));
  for (const TaskStatus& status : statuses) Put(status, to);
}

absl::StatusOr<std::vector<TaskStatus>> DecodeTaskStatuses(std::string_view fields) {
  WireReader in(fields);
  std::vector<TaskStatus> statuses(GetCount(in, 128));
  for (TaskStatus& status : statuses) TUTTI_RETURN_IF_ERROR(Get(in, status));
  if (!in.Complete()) return InvalidArgument("a cluster's status that is cut off or too long");
  return statuses;
}

}  // namespace tutti
