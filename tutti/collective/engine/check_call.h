#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "tutti/collective/communicator.h"
#include "tutti/collective/engine/group_state.h"
#include "tutti/collective/operation/call.h"

namespace tutti::collective {

// What can be seen to be wrong with a call at once, without its peers.
absl::Status CheckCall(const GroupState& group, const Call& call, const CallOptions& options);

// What the call says of itself to the peers.
Descriptor DescriptorOf(const GroupState& group, const Call& call, const CallOptions& options,
                        const Choice& choice);

// The bytes of the call's data.
int64_t BytesOf(const GroupState& group, const Call& call);

}  // namespace tutti::collective
