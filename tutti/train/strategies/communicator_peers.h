#pragma once

#include <memory>

#include "tutti/train/strategies/peers.h"

namespace tutti {

namespace collective {
class Communicator;
}

// The ranks of a communicator as workers.
std::shared_ptr<Peers> MakeCommunicatorPeers(
    std::shared_ptr<collective::Communicator> communicator);

}  // namespace tutti
