#include "tutti/net/loopback/loopback_transport.h"

#include "tutti/net/transport_suite.h"

namespace tutti::net {
namespace {

INSTANTIATE_TEST_SUITE_P(Loopback, TransportSuite,
                         testing::Values(TransportCase{"loopback", &LoopbackTransport::Make}));

}  // namespace
}  // namespace tutti::net
