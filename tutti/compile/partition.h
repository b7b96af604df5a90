#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/program.h"
#include "tutti/device/device_info.h"

namespace tutti {

// The part of a step that runs on one device. Edges from other devices are Recv nodes here and Send
// nodes there. `feed_index[i]` is the position, in the whole program, of this part's feed i;
// fetches likewise. It owns all it holds, so it can be sent to another process.
struct Partition {
  std::string device;
  Program program;
  std::vector<int> feed_index;
  std::vector<int> fetch_index;
};

// Cuts a placed program into one part per device that has nodes, in the order of `devices`. A value
// that several nodes of a device need crosses once, by one Send and one Recv; a control edge
// crosses as an empty message, once per node and device. Constants and feeds do not cross: every
// device that needs one has it, so several parts may have the same feed. Neither do views of what
// is there, nor what is made from small constants: they are computed again, on devices of one type.
//
// Send and Recv of a value meet under a key that says where it comes from and where it goes:
//   SOURCE;DESTINATION;NAME    /job:ps/task:0/cpu:0;/job:worker/task:1/cpu:0;w
// with the full names of both devices. NAME is that of the output ("w", "split:1"), or of the node
// with ":done" behind for a control edge. No name has a semicolon. Inside of loops the number of
// each iteration follows, the outermost first: ";3;0".
absl::StatusOr<std::vector<Partition>> CutByDevice(const Program& program,
                                                   std::span<const DeviceInfo> devices);

// Checks that the parts of a step fit together: every Recv has exactly one Send, with the same key
// and type, in the part that its key names, and every Send has its Recv. Otherwise the step would
// wait for ever. INTERNAL with the node and the key. CutByDevice checks its result with it.
absl::Status CheckTransfers(std::span<const Partition> parts);

}  // namespace tutti
