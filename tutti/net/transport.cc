#include "tutti/net/transport.h"

namespace tutti::net {

void Request::Take(size_t /*offset*/, ConstBytes /*piece*/) {}

}  // namespace tutti::net
