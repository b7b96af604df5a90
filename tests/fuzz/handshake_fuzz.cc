// A handshake with somebody who sends anything, and one between two honest ends whose bytes are
// changed on the way. Neither crashes or keeps more than it should; and where a byte was changed,
// the ends never both believe in the handshake.
//
// Input: the first byte's lowest bit chooses. Then either the stranger's bytes, in pieces of
// (second byte + 1); or triples (position u16, bits to flip u8) of the honest dialogue.
#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/base/check.h"
#include "tutti/net/handshake.h"
#include "tutti/net/wire.h"

namespace {

using tutti::net::AsBytes;
using tutti::net::Handshake;
using tutti::net::Identity;

Identity Rank(int rank) {
  Identity identity;
  identity.job = "fuzz";
  identity.token = "secret";
  identity.rank = rank;
  identity.size = 4;
  return identity;
}

void MeetStranger(std::string_view bytes, size_t piece, bool connecting) {
  Handshake handshake(Rank(connecting ? 1 : 0), connecting, connecting ? 0 : -1);
  std::string out;
  handshake.Start(&out);
  while (!bytes.empty() && handshake.state() == Handshake::State::kMore) {
    TUTTI_CHECK(handshake.Wants() > 0 && handshake.Wants() < 1024);
    size_t consumed = 0;
    handshake.Feed(AsBytes(bytes.substr(0, piece)), &consumed, &out);
    TUTTI_CHECK(consumed <= piece);
    bytes.remove_prefix(consumed);
  }
  TUTTI_CHECK(handshake.state() != Handshake::State::kDone);  // nobody guesses the token
  TUTTI_CHECK(out.size() < 2048);
  TUTTI_CHECK(handshake.status().ok() == (handshake.state() == Handshake::State::kMore));
}

void MeetThroughNoise(std::string_view triples) {
  Handshake a(Rank(1), true, 0), b(Rank(0), false, -1);
  std::string to_a, to_b;
  a.Start(&to_b);
  size_t carried = 0;
  bool changed = false;
  const auto carry = [&](std::string* bytes, Handshake* to, std::string* answer) {
    if (bytes->empty() || to->state() != Handshake::State::kMore) return false;
    for (size_t i = 0; i + 3 <= triples.size(); i += 3) {
      tutti::net::WireReader reader(triples.substr(i, 3));
      const size_t position = reader.U16();
      const uint8_t flip = reader.U8();
      if (position < carried || position >= carried + bytes->size() || flip == 0) continue;
      char& byte = (*bytes)[position - carried];
      byte = static_cast<char>(byte ^ flip);
      changed = true;
    }
    carried += bytes->size();
    size_t consumed = 0;
    to->Feed(AsBytes(*bytes), &consumed, answer);
    bytes->erase(0, consumed);
    return true;
  };
  while (carry(&to_b, &b, &to_a) || carry(&to_a, &a, &to_b)) {
  }
  const bool both = a.state() == Handshake::State::kDone && b.state() == Handshake::State::kDone;
  TUTTI_CHECK(changed || both);
  // Two flips of one byte may undo each other; single ones must be seen.
  if (triples.size() == 3) TUTTI_CHECK(both != changed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  if ((data[0] & 1) != 0) {
    MeetThroughNoise(rest);
  } else {
    MeetStranger(rest, size_t{data[1]} + 1, (data[0] & 2) != 0);
  }
  return 0;
}
