#include "tutti/net/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tutti/base/status.h"
#include "tutti/net/token.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

using ::testing::HasSubstr;

constexpr size_t kVersionOffset = 8;

Identity Rank(int rank, int size = 4) {
  Identity identity;
  identity.job = "train";
  identity.token = "secret";
  identity.rank = rank;
  identity.size = size;
  identity.generation = 7;
  return identity;
}

// Both ends of a connection, with bytes carried between them by hand.
struct Pair {
  Pair(const Identity& connecting, const Identity& accepting, int expected = 0,
       Handshake::Admit admit = nullptr)
      : a(connecting, true, expected), b(accepting, false, -1, std::move(admit)) {
    a.Start(&to_b);
    b.Start(&to_a);
  }

  // Carries `piece` bytes at a time until nobody has anything to say.
  void Run(size_t piece = 1 << 20) {
    while (Carry(&to_b, &b, &to_a, piece) || Carry(&to_a, &a, &to_b, piece)) {
    }
  }

  static bool Carry(std::string* from, Handshake* to, std::string* answer, size_t piece) {
    if (from->empty() || to->state() != Handshake::State::kMore) return false;
    size_t consumed = 0;
    to->Feed(AsBytes(std::string_view(*from).substr(0, piece)), &consumed, answer);
    from->erase(0, consumed);
    return true;
  }

  std::string to_a, to_b;
  Handshake a, b;
};

std::string Text(const Handshake& handshake) { return std::string(MessageOf(handshake.status())); }

// Runs it, and expects that both ends fail with the same reason and text.
void ExpectRefused(Pair pair, Refusal reason, const std::string& text) {
  pair.Run();
  EXPECT_EQ(pair.b.state(), Handshake::State::kFailed);
  EXPECT_EQ(pair.b.refusal(), reason);
  EXPECT_FALSE(pair.b.refused_by_peer());
  EXPECT_THAT(Text(pair.b), HasSubstr(text));
  EXPECT_EQ(pair.a.state(), Handshake::State::kFailed);
  EXPECT_EQ(pair.a.refusal(), reason);
  EXPECT_TRUE(pair.a.refused_by_peer());
  EXPECT_EQ(Text(pair.a), "refused by the peer: " + Text(pair.b));
}

TEST(Handshake, TellsEachEndWhoTheOtherIs) {
  for (const size_t piece : {1, 3, 16, 1000}) {
    Identity connecting = Rank(3);
    connecting.stream = 5;
    Pair pair(connecting, Rank(0));
    pair.Run(piece);
    ASSERT_EQ(pair.a.state(), Handshake::State::kDone) << pair.a.status();
    ASSERT_EQ(pair.b.state(), Handshake::State::kDone) << pair.b.status();
    EXPECT_EQ(pair.b.peer().rank, 3);
    EXPECT_EQ(pair.b.peer().stream, 5u);
    EXPECT_EQ(pair.b.peer().job, "train");
    EXPECT_EQ(pair.b.peer().token, "");
    EXPECT_EQ(pair.a.peer().rank, 0);
    EXPECT_EQ(pair.a.peer().generation, 7);
    EXPECT_TRUE(pair.to_a.empty() && pair.to_b.empty());
  }
}

TEST(Handshake, AllowsNoTokenAndNoJobName) {
  Identity connecting = Rank(1), accepting = Rank(0);
  connecting.token = accepting.token = "";
  connecting.job = accepting.job = "";
  Pair pair(connecting, accepting);
  pair.Run();
  EXPECT_EQ(pair.a.state(), Handshake::State::kDone) << pair.a.status();
  EXPECT_EQ(pair.b.state(), Handshake::State::kDone) << pair.b.status();
}

TEST(Handshake, LeavesWhatFollows) {
  Pair pair(Rank(1), Rank(0));
  Pair::Carry(&pair.to_b, &pair.b, &pair.to_a, 1000);
  Pair::Carry(&pair.to_a, &pair.a, &pair.to_b, 1000);
  const size_t proof = pair.to_b.size();
  EXPECT_EQ(pair.b.Wants(), 4u);  // the next header
  pair.to_b += "first frame";
  size_t consumed = 0;
  EXPECT_EQ(pair.b.Feed(AsBytes(pair.to_b), &consumed, &pair.to_a), Handshake::State::kDone);
  EXPECT_EQ(consumed, proof);
  EXPECT_EQ(pair.b.Wants(), 0u);
  EXPECT_EQ(pair.b.Feed(AsBytes("more"), &consumed, &pair.to_a), Handshake::State::kDone);
  EXPECT_EQ(consumed, 0u);
}

TEST(Handshake, NamesWhatDoesNotFit) {
  Identity other = Rank(1);
  other.token = "guess";
  ExpectRefused(Pair(other, Rank(0)), Refusal::kToken, "wrong token");
  other.token = "";
  ExpectRefused(Pair(other, Rank(0)), Refusal::kToken, "wrong token");
  other = Rank(1);
  other.job = "tr\nain";
  ExpectRefused(Pair(other, Rank(0)), Refusal::kJob, "job is 'tr\\x0aain', expected 'train'");
  other = Rank(1);
  other.generation = 6;
  ExpectRefused(Pair(other, Rank(0)), Refusal::kGeneration, "generation is 6, expected 7");
  ExpectRefused(Pair(Rank(1, 5), Rank(0, 4)), Refusal::kSize, "job of 5 ranks, expected 4");
  ExpectRefused(Pair(Rank(4), Rank(0)), Refusal::kRank, "rank 4 is out of range, expected 0 to 3");
  ExpectRefused(Pair(Rank(-1), Rank(0)), Refusal::kRank, "rank -1 is out of range");
  ExpectRefused(Pair(Rank(0), Rank(0)), Refusal::kTaken, "rank 0 is taken: it is this process");
  other = Rank(1);
  other.purpose = Identity::Purpose::kTcpData;
  ExpectRefused(Pair(other, Rank(0)), Refusal::kPurpose,
                "connection is for tcp data, expected control");
  ExpectRefused(Pair(Rank(1), Rank(0), 0,
                     [](const Identity& peer, std::string* text) {
                       EXPECT_EQ(peer.rank, 1);
                       *text = "rank 1 is taken by another";
                       return Refusal::kTaken;
                     }),
                Refusal::kTaken, "rank 1 is taken by another");
}

Identity Task(const std::string& task, uint64_t incarnation,
              Identity::Purpose purpose = Identity::Purpose::kLink) {
  Identity identity;
  identity.job = "train";
  identity.token = "secret";
  identity.task = task;
  identity.incarnation = incarnation;
  identity.purpose = purpose;
  return identity;
}

// A task that accepts connections of any purpose, and one that connects to the task `expected`.
struct TaskPair {
  TaskPair(const Identity& connecting, Identity accepting, const std::string& expected)
      : a(connecting, expected), b(Open(std::move(accepting)), false, -1) {
    a.Start(&to_b);
    while (Pair::Carry(&to_b, &b, &to_a, 1000) || Pair::Carry(&to_a, &a, &to_b, 1000)) {
    }
  }
  static Identity Open(Identity identity) {
    identity.any_purpose = true;
    identity.purpose = Identity::Purpose::kControl;
    return identity;
  }

  std::string to_a, to_b;
  Handshake a, b;
};

TEST(Handshake, TellsTasksWhoTheOtherIs) {
  for (const Identity::Purpose purpose :
       {Identity::Purpose::kRpc, Identity::Purpose::kLink, Identity::Purpose::kCheckpoints}) {
    TaskPair pair(Task("/job:worker/task:1", 17, purpose), Task("/job:ps/task:0", 5),
                  "/job:ps/task:0");
    ASSERT_EQ(pair.a.state(), Handshake::State::kDone) << pair.a.status();
    ASSERT_EQ(pair.b.state(), Handshake::State::kDone) << pair.b.status();
    EXPECT_EQ(pair.b.peer().task, "/job:worker/task:1");
    EXPECT_EQ(pair.b.peer().incarnation, 17u);
    EXPECT_EQ(pair.b.peer().purpose, purpose);
    EXPECT_EQ(pair.a.peer().task, "/job:ps/task:0");
    EXPECT_EQ(pair.a.peer().incarnation, 5u);
  }
  TaskPair clients(Task("client", 1), Task("client", 2), "client");
  EXPECT_EQ(clients.a.state(), Handshake::State::kDone) << clients.a.status();
}

TEST(Handshake, RefusesTasksThatAreNotMeant) {
  TaskPair other(Task("/job:worker/task:1", 17), Task("/job:ps/task:1", 5), "/job:ps/task:0");
  EXPECT_EQ(other.a.refusal(), Refusal::kTask);
  EXPECT_EQ(Text(other.a), "task is '/job:ps/task:1', expected '/job:ps/task:0'");
  EXPECT_EQ(Text(other.b), "refused by the peer: " + Text(other.a));
  TaskPair nameless(Task("", 17), Task("/job:ps/task:1", 5), "/job:ps/task:1");
  EXPECT_EQ(nameless.b.refusal(), Refusal::kTask);
  EXPECT_EQ(Text(nameless.b), "it does not say which task it is");
  TaskPair twice(Task("/job:ps/task:1", 17), Task("/job:ps/task:1", 5), "/job:ps/task:1");
  EXPECT_EQ(twice.b.refusal(), Refusal::kTaken);
  EXPECT_EQ(Text(twice.b),
            "task '/job:ps/task:1' is taken: two processes were started as this task");
}

// Where one purpose is expected, a connection between tasks is refused like any other.
TEST(Handshake, TasksAreNoRanks) {
  ExpectRefused(Pair(Task("/job:ps/task:1", 5), Task("/job:ps/task:0", 5, Identity::Purpose::kRpc)),
                Refusal::kPurpose, "connection is for a link between tasks, expected gRPC");
  ExpectRefused(Pair(Rank(1), Task("/job:ps/task:0", 5)), Refusal::kPurpose,
                "connection is for control, expected a link between tasks");
}

TEST(Handshake, StatusCodes) {
  Identity other = Rank(1);
  other.token = "guess";
  Pair token(other, Rank(0));
  token.Run();
  EXPECT_EQ(token.a.status().code(), absl::StatusCode::kPermissionDenied);
  Pair taken(Rank(0), Rank(0));
  taken.Run();
  EXPECT_EQ(taken.a.status().code(), absl::StatusCode::kAlreadyExists);
  Pair size(Rank(1, 5), Rank(0));
  size.Run();
  EXPECT_EQ(size.b.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Handshake, ConnectingSideRefusesAnotherRankThanItCalled) {
  Pair pair(Rank(1), Rank(2), /*expected=*/0);
  pair.Run();
  EXPECT_EQ(Text(pair.a), "rank is 2, expected 0");
  EXPECT_EQ(Text(pair.b), "refused by the peer: rank is 2, expected 0");
}

TEST(Handshake, TellsOtherVersionsApart) {
  Pair pair(Rank(1), Rank(0));
  pair.to_b[kVersionOffset] = 9;
  ExpectRefused(std::move(pair), Refusal::kVersion, "protocol version is 9, expected 3");
}

TEST(Handshake, AnswersForeignProtocolsWithSilence) {
  for (const std::string_view bytes : {"GET / HTTP/1.1\r\n", "\x16\x03\x01", "T0", "SSH-2.0"}) {
    Handshake handshake(Rank(0), false, -1);
    std::string out;
    handshake.Start(&out);
    size_t consumed = 0;
    EXPECT_EQ(handshake.Feed(AsBytes(bytes), &consumed, &out), Handshake::State::kFailed);
    EXPECT_EQ(out, "");
    EXPECT_EQ(handshake.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Text(handshake), HasSubstr("not a Tutti process: its first bytes are '"));
  }
}

// An acceptor that has not the token cannot finish by sending the proof back.
TEST(Handshake, AProofIsNoAccept) {
  Pair pair(Rank(1), Rank(0));
  Pair::Carry(&pair.to_b, &pair.b, &pair.to_a, 1000);
  Pair::Carry(&pair.to_a, &pair.a, &pair.to_b, 1000);
  std::string echo = pair.to_b;
  echo[0] = 3;  // the type of an accept
  size_t consumed = 0;
  EXPECT_EQ(pair.a.Feed(AsBytes(echo), &consumed, &pair.to_b), Handshake::State::kFailed);
  EXPECT_EQ(pair.a.refusal(), Refusal::kToken);
}

TEST(Handshake, ChecksLengthsBeforeItWaitsForThem) {
  Pair pair(Rank(1), Rank(0));
  std::string hello = pair.to_b;
  hello[14] = '\xff';
  hello[15] = '\xff';
  size_t consumed = 0;
  EXPECT_EQ(pair.b.Feed(AsBytes(std::string_view(hello).substr(0, 16)), &consumed, &pair.to_a),
            Handshake::State::kFailed);
  EXPECT_THAT(Text(pair.b), HasSubstr("message of type 1 has 65535 bytes, expected 1 to 577"));
}

// Whatever byte is changed on the way, the two never both believe in a handshake.
TEST(Handshake, AnyChangedByteIsSeen) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 2000; ++trial) {
    Pair pair(Rank(1), Rank(0));
    const size_t target = random() % 250;
    const char flip = static_cast<char>(1 + random() % 255);
    size_t seen = 0;
    bool changed = false;
    const auto spoil = [&](std::string* bytes) {
      if (!changed && target < seen + bytes->size()) {
        (*bytes)[target - seen] = static_cast<char>((*bytes)[target - seen] ^ flip);
        changed = true;
      }
      seen += bytes->size();
    };
    for (bool more = true; more;) {
      spoil(&pair.to_b);
      more = Pair::Carry(&pair.to_b, &pair.b, &pair.to_a, 1000);
      spoil(&pair.to_a);
      more = Pair::Carry(&pair.to_a, &pair.a, &pair.to_b, 1000) || more;
    }
    ASSERT_FALSE(changed && pair.a.state() == Handshake::State::kDone &&
                 pair.b.state() == Handshake::State::kDone)
        << "byte " << target << " changed by " << static_cast<int>(flip);
  }
}

TEST(Token, KnownDigest) {
  // RFC 4231, test case 2.
  std::string hex;
  for (const char c : TokenDigest("Jefe", "what do ya want for nothing?")) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  EXPECT_EQ(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_FALSE(SameDigest("ab", "ac"));
  EXPECT_FALSE(SameDigest("ab", "abc"));
  EXPECT_NE(MakeNonce(), MakeNonce());
}

TEST(Wire, ReadsWhatWasWritten) {
  std::string bytes;
  WireWriter writer(&bytes);
  writer.U8(0xfe);
  writer.U16(0x1234);
  writer.I32(-2);
  writer.U64(0x0123456789abcdefu);
  writer.Text16("abc");
  writer.Text32("");
  EXPECT_EQ(bytes.substr(1, 2), "\x34\x12");
  WireReader reader(bytes);
  EXPECT_EQ(reader.U8(), 0xfe);
  EXPECT_EQ(reader.U16(), 0x1234);
  EXPECT_EQ(reader.I32(), -2);
  EXPECT_EQ(reader.U64(), 0x0123456789abcdefu);
  EXPECT_EQ(reader.Text16(), "abc");
  EXPECT_FALSE(reader.Complete());
  EXPECT_EQ(reader.Text32(), "");
  EXPECT_TRUE(reader.Complete());
}

TEST(Wire, NeverReadsPastTheEnd) {
  WireReader reader(std::string_view("\x05\x00\x00\x00\x61\x62", 6));
  EXPECT_EQ(reader.Text32(), "");
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.U8(), 0);  // and nothing after a failure
  EXPECT_FALSE(reader.Complete());
}

}  // namespace
}  // namespace tutti::net
