// The handshake.
//
//   connecting                              accepting
//   preamble, hello            ------->
//                              <-------     preamble, hello
//   proof                      ------->
//                              <-------     accept
//
// The accepting side is silent until somebody has spoken who knows the preamble, so a port scanner
// learns nothing. Either side may send a refusal in place of its next message; then it is over.
//
//   preamble   "TUTTI" 00 0d 0a, version u16, zero u16
//   message    type u8, zero u8, length u16, body
//   hello  1   purpose u8, rank i32, size i32, generation i64, stream u32, incarnation u64,
//              nonce 32 bytes, length u16 and job, length u16 and task
//   proof  2   HMAC(token, "connecting" 00, L, hello of the connecting side, hello of the other);
//              L is the first hello's length, u16
//   accept 3   the same with "accepting" 00
//   refusal 4  reason u8, length u16 and text
//
// The preamble, the message header and the refusal are the same in all versions, so that a process
// of another version can be told why it is refused.
//
// Each digest covers both nonces, so it is good for this handshake only, and both identities, so
// that nobody in between can change them; and its label keeps a proof from being sent back as an
// accept. The accepting side checks first: whoever has not the token gets nothing that was made
// with it, and so nothing to try passwords on.
#include "tutti/net/handshake.h"

#include <fmt/core.h>

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/base/status.h"
#include "tutti/net/token.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

constexpr std::string_view kMagic("TUTTI\0\r\n", 8);
constexpr size_t kPreambleBytes = 12;
constexpr size_t kHeaderBytes = 4;
constexpr size_t kMaxTextBytes = 512;

enum MessageType : uint8_t { kHello = 1, kProof = 2, kAccept = 3, kRefusal = 4 };

constexpr size_t kHelloBytes = 1 + 4 + 4 + 8 + 4 + 8 + kNonceBytes + 2 + 2;  // and job and task
constexpr uint8_t kLastPurpose = static_cast<uint8_t>(Identity::Purpose::kCheckpoints);

size_t MaxBodyBytes(uint8_t type) {
  switch (type) {
    case kHello:
      return kHelloBytes + kMaxJobBytes + kMaxTaskBytes;
    case kProof:
    case kAccept:
      return kDigestBytes;
    case kRefusal:
      return 1 + 2 + kMaxTextBytes;
    default:
      return 0;
  }
}

void AppendMessage(MessageType type, std::string_view body, std::string* out) {
  TUTTI_CHECK(body.size() <= MaxBodyBytes(type));
  WireWriter writer(out);
  writer.U8(type);
  writer.U8(0);
  writer.Text16(body);
}

std::string HelloBody(const Identity& own, Identity::Purpose purpose) {
  std::string body;
  WireWriter writer(&body);
  writer.U8(static_cast<uint8_t>(purpose));
  writer.I32(own.rank);
  writer.I32(own.size);
  writer.I64(own.generation);
  writer.U32(own.stream);
  writer.U64(own.incarnation);
  writer.Raw(MakeNonce());
  writer.Text16(own.job);
  writer.Text16(own.task);
  return body;
}

absl::StatusCode CodeOf(Refusal reason) {
  switch (reason) {
    case Refusal::kToken:
      return absl::StatusCode::kPermissionDenied;
    case Refusal::kTaken:
      return absl::StatusCode::kAlreadyExists;
    case Refusal::kMalformed:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kFailedPrecondition;
  }
}

bool BetweenTasks(Identity::Purpose purpose) { return purpose >= Identity::Purpose::kRpc; }

}  // namespace

std::string_view NameOf(Identity::Purpose purpose) {
  switch (purpose) {
    case Identity::Purpose::kControl:
      return "control";
    case Identity::Purpose::kTcpData:
      return "tcp data";
    case Identity::Purpose::kShm:
      return "shared memory";
    case Identity::Purpose::kRpc:
      return "gRPC";
    case Identity::Purpose::kLink:
      return "a link between tasks";
    case Identity::Purpose::kCheckpoints:
      return "checkpoints";
  }
  return "unknown";
}

Handshake::Handshake(const Identity& own, bool connecting, int expected_peer, Admit admit)
    : own_(own),
      connecting_(connecting),
      expected_peer_(expected_peer),
      admit_(std::move(admit)),
      wanted_(kPreambleBytes) {
  TUTTI_CHECK(own.job.size() <= kMaxJobBytes && own.task.size() <= kMaxTaskBytes);
  own_hello_ = HelloBody(own, own.purpose);
}

Handshake::Handshake(const Identity& own, std::string expected_task)
    : own_(own),
      connecting_(true),
      expected_peer_(-1),
      expected_task_(std::move(expected_task)),
      wanted_(kPreambleBytes) {
  TUTTI_CHECK(own.job.size() <= kMaxJobBytes && own.task.size() <= kMaxTaskBytes);
  own_hello_ = HelloBody(own, own.purpose);
}

void Handshake::Start(std::string* out) {
  if (!connecting_) return;
  SendPreamble(out);
  AppendMessage(kHello, own_hello_, out);
}

void Handshake::SendPreamble(std::string* out) {
  if (preamble_sent_) return;
  preamble_sent_ = true;
  WireWriter writer(out);
  writer.Raw(kMagic);
  writer.U16(kProtocolVersion);
  writer.U16(0);
}

size_t Handshake::Wants() const { return state_ == State::kMore ? wanted_ - buffer_.size() : 0; }

Handshake::State Handshake::Feed(std::span<const std::byte> in, size_t* consumed,
                                 std::string* out) {
  const std::string_view text = AsText(in);
  size_t used = 0;
  while (state_ == State::kMore && used < text.size()) {
    const std::string_view piece = text.substr(used, Wants());
    buffer_.append(piece);
    used += piece.size();
    if (stage_ == Stage::kPreamble) {
      HandlePreamble(out);  // also with a part of it: a foreign protocol shows in the first bytes
    } else if (buffer_.size() == wanted_) {
      stage_ == Stage::kHeader ? HandleHeader(out) : HandleMessage(out);
    }
  }
  *consumed = used;
  return state_;
}

void Handshake::HandlePreamble(std::string* out) {
  const size_t known = std::min(buffer_.size(), kMagic.size());
  if (buffer_.compare(0, known, kMagic, 0, known) != 0) {
    // Nobody there would understand a refusal.
    Fail(Refusal::kMalformed,
         fmt::format("not a Tutti process: its first bytes are '{}'", Printable(buffer_)));
    return;
  }
  if (buffer_.size() < kPreambleBytes) return;
  WireReader reader(std::string_view(buffer_).substr(kMagic.size()));
  const uint16_t version = reader.U16();
  if (version != kProtocolVersion) {
    Refuse(
        Refusal::kVersion,
        fmt::format("protocol version is {}, expected {}: all processes must run the same release",
                    version, kProtocolVersion),
        out);
    return;
  }
  if (reader.U16() != 0) {
    Refuse(Refusal::kMalformed, "the reserved bytes of the preamble are not zero", out);
    return;
  }
  buffer_.clear();
  stage_ = Stage::kHeader;
  wanted_ = kHeaderBytes;
}

void Handshake::HandleHeader(std::string* out) {
  WireReader reader(buffer_);
  type_ = reader.U8();
  const uint8_t zero = reader.U8();
  const size_t length = reader.U16();
  const MessageType expected = !peer_known_ ? kHello : connecting_ ? kAccept : kProof;
  if ((type_ != expected && type_ != kRefusal) || zero != 0) {
    Refuse(Refusal::kMalformed,
           fmt::format("message type {}, expected {} or {}", type_ + 256 * zero,
                       static_cast<int>(expected), static_cast<int>(kRefusal)),
           out);
    return;
  }
  if (length == 0 || length > MaxBodyBytes(type_)) {
    Refuse(Refusal::kMalformed,
           fmt::format("message of type {} has {} bytes, expected 1 to {}", type_, length,
                       MaxBodyBytes(type_)),
           out);
    return;
  }
  buffer_.clear();
  stage_ = Stage::kBody;
  wanted_ = length;
}

void Handshake::HandleMessage(std::string* out) {
  switch (type_) {
    case kHello:
      HandleHello(out);
      break;
    case kProof:
      HandleProof(out);
      break;
    case kAccept:
      HandleAccept();
      break;
    default:
      HandleRefusal();
      break;
  }
  buffer_.clear();
  stage_ = Stage::kHeader;
  wanted_ = kHeaderBytes;
}

void Handshake::HandleHello(std::string* out) {
  WireReader reader(buffer_);
  const uint8_t purpose = reader.U8();
  peer_.rank = reader.I32();
  peer_.size = reader.I32();
  peer_.generation = reader.I64();
  peer_.stream = reader.U32();
  peer_.incarnation = reader.U64();
  reader.Raw(kNonceBytes);
  peer_.job = reader.Text16();
  peer_.task = reader.Text16();
  const bool unknown = purpose < 1 || purpose > kLastPurpose;
  if (!reader.Complete() || unknown) {
    Refuse(Refusal::kMalformed,
           unknown ? fmt::format("purpose {}, expected 1 to {}", purpose, kLastPurpose)
                   : "the hello's length does not fit its fields",
           out);
    return;
  }
  peer_.purpose = static_cast<Identity::Purpose>(purpose);
  peer_hello_ = buffer_;
  peer_known_ = true;
  std::string text;
  if (const Refusal reason = CheckPeer(&text); reason != Refusal::kNone) {
    Refuse(reason, text, out);
    return;
  }
  if (connecting_) {
    AppendMessage(kProof, Digest(/*of_connector=*/true), out);
  } else {
    if (own_.any_purpose) own_hello_ = HelloBody(own_, peer_.purpose);
    SendPreamble(out);
    AppendMessage(kHello, own_hello_, out);
  }
}

Refusal Handshake::CheckPeer(std::string* text) const {
  if (peer_.job != own_.job) {
    *text = fmt::format("job is '{}', expected '{}'", Printable(peer_.job), Printable(own_.job));
    return Refusal::kJob;
  }
  const bool other_purpose = peer_.purpose != own_.purpose && !own_.any_purpose;
  const bool between_tasks = BetweenTasks(peer_.purpose) || BetweenTasks(own_.purpose);
  if (between_tasks && !other_purpose) return CheckTask(text);
  if (between_tasks) return OtherPurpose(text);
  if (peer_.generation != own_.generation) {
    *text = fmt::format("generation is {}, expected {}", peer_.generation, own_.generation);
    return Refusal::kGeneration;
  }
  if (peer_.size != own_.size && !own_.any_size) {
    *text = fmt::format("job of {} ranks, expected {}", peer_.size, own_.size);
    return Refusal::kSize;
  }
  const int ranks = own_.any_size ? peer_.size : own_.size;
  if (peer_.rank < 0 || peer_.rank >= ranks) {
    *text = fmt::format("rank {} is out of range, expected 0 to {}", peer_.rank, ranks - 1);
    return Refusal::kRank;
  }
  if (expected_peer_ >= 0 && peer_.rank != expected_peer_) {
    *text = fmt::format("rank is {}, expected {}", peer_.rank, expected_peer_);
    return Refusal::kRank;
  }
  if (peer_.rank == own_.rank) {
    *text = fmt::format("rank {} is taken: it is this process", peer_.rank);
    return Refusal::kTaken;
  }
  return other_purpose ? OtherPurpose(text) : Refusal::kNone;
}

Refusal Handshake::OtherPurpose(std::string* text) const {
  *text =
      fmt::format("connection is for {}, expected {}", NameOf(peer_.purpose), NameOf(own_.purpose));
  return Refusal::kPurpose;
}

Refusal Handshake::CheckTask(std::string* text) const {
  if (peer_.task.empty()) {
    *text = "it does not say which task it is";
    return Refusal::kTask;
  }
  if (!expected_task_.empty() && peer_.task != expected_task_) {
    *text = fmt::format("task is '{}', expected '{}'", Printable(peer_.task),
                        Printable(expected_task_));
    return Refusal::kTask;
  }
  if (peer_.task == own_.task && peer_.task != kClientTask &&
      peer_.incarnation != own_.incarnation) {
    *text = fmt::format("task '{}' is taken: two processes were started as this task",
                        Printable(peer_.task));
    return Refusal::kTaken;
  }
  return Refusal::kNone;
}

void Handshake::HandleProof(std::string* out) {
  if (!SameDigest(buffer_, Digest(/*of_connector=*/true))) {
    Refuse(Refusal::kToken, "wrong token", out);
    return;
  }
  if (admit_ != nullptr) {
    std::string text;
    if (const Refusal reason = admit_(peer_, &text); reason != Refusal::kNone) {
      Refuse(reason, text, out);
      return;
    }
  }
  AppendMessage(kAccept, Digest(/*of_connector=*/false), out);
  state_ = State::kDone;
}

void Handshake::HandleAccept() {
  // The other side believes that it is over, so nothing more is said to it.
  if (SameDigest(buffer_, Digest(/*of_connector=*/false))) {
    state_ = State::kDone;
  } else {
    Fail(Refusal::kToken, "wrong token: the peer accepted without knowing it");
  }
}

void Handshake::HandleRefusal() {
  WireReader reader(buffer_);
  const uint8_t reason = reader.U8();
  const std::string_view text = reader.Text16();
  const uint8_t last = static_cast<uint8_t>(Refusal::kIncarnation);
  refused_by_peer_ = true;
  if (!reader.Complete() || reason == 0) {
    Fail(Refusal::kMalformed, "refused by the peer, with a broken message");
    return;
  }
  Fail(reason <= last ? static_cast<Refusal>(reason) : Refusal::kNotAdmitted,
       fmt::format("refused by the peer: {}", Printable(text, kMaxTextBytes)));
}

std::string Handshake::Digest(bool of_connector) const {
  const std::string& first = connecting_ ? own_hello_ : peer_hello_;
  const std::string& second = connecting_ ? peer_hello_ : own_hello_;
  std::string message(of_connector ? "connecting" : "accepting");
  WireWriter writer(&message);
  writer.U8(0);
  writer.Text16(first);
  writer.Raw(second);
  return TokenDigest(own_.token, message);
}

void Handshake::Refuse(Refusal reason, std::string_view text, std::string* out) {
  std::string body;
  WireWriter writer(&body);
  writer.U8(static_cast<uint8_t>(reason));
  writer.Text16(text.substr(0, kMaxTextBytes));
  SendPreamble(out);
  AppendMessage(kRefusal, body, out);
  Fail(reason, text);
}

void Handshake::Fail(Refusal reason, std::string_view text) {
  state_ = State::kFailed;
  refusal_ = reason;
  status_ = MakeStatus(CodeOf(reason), "{}", text);
}

}  // namespace tutti::net
