#pragma once

#include "tutti/client/session.h"

namespace tutti::testing {

// Do sessions under test talk to a SerializingWorker? They do when the environment variable
// TUTTI_TEST_WORKER is "bytes"; CTest runs the tests of client/ in both ways.
bool WorkerIsSerializing();

// A Session like any other, whose worker the environment chooses.
class SessionUnderTest : public Session {
 public:
  explicit SessionUnderTest(const Graph& graph, const SessionOptions& options = {});
};

}  // namespace tutti::testing
