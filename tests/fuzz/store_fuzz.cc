// Requests to a coordinator's store, one after the other, whatever bytes they are: each is answered
// once, and what is read as a request is written as one that is read alike.
#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/base/check.h"
#include "tutti/net/coordination/store/codec.h"
#include "tutti/net/coordination/store/service.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::net;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  MemoryStore store;
  StoreService service(&store);
  int asked = 0, answered = 0;
  while (!rest.empty() && asked < 64) {
    // The first byte of each is its length.
    const size_t bytes = uint8_t(rest.front());
    const std::string_view request = rest.substr(1, bytes);
    rest.remove_prefix(1 + request.size());
    ++asked;
    service.Handle("caller", request, [&](const auto&) { ++answered; });
    if (const auto decoded = DecodeStoreRequest(request); decoded.ok()) {
      const std::string again = Encode(*decoded);
      const auto twice = DecodeStoreRequest(again);
      TUTTI_CHECK(twice.ok() && Encode(*twice) == again);
    }
    (void)DecodeStoreReply(request);
  }
  service.Stop();
  TUTTI_CHECK(answered == asked);
  return 0;
}
