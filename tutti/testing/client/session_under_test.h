#pragma once

#include "tutti/client/session.h"

namespace tutti::testing {

// Do the steps of sessions under test run behind bytes? The environment variable TUTTI_TEST_WORKER
// chooses: "bytes" is a SerializingWorker, "cluster" a cluster of two processes (`tutti server`),
// made for each session, to whose task /job:local/task:0 it is connected. CTest runs the tests of
// client/ in all three ways.
bool WorkerIsSerializing();

// A Session like any other, whose worker the environment chooses. One with a communicator or a
// server of its own stays in this process.
class SessionUnderTest : public Session {
 public:
  explicit SessionUnderTest(const Graph& graph, const SessionOptions& options = {});
};

}  // namespace tutti::testing
