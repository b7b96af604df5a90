#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/link/frame.h"
#include "tutti/net/link/joining.h"
#include "tutti/net/link/link_test_task.h"
#include "tutti/net/wire.h"

// Peers that die, hang, or send what no peer should.
namespace tutti::net {
namespace {

using link::EncodeFrame;
using link::EncodeHello;
using link::FrameKind;
using link::PayloadPlace;
using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;
const std::string kA = "/job:worker/task:0";
const std::string kB = "/job:ps/task:0";

std::string TextOf(const absl::Status& status) { return std::string(MessageOf(status)); }

// Of a process that is busy with large payloads on a host that is busy, too.
constexpr double kPatience = 30;

// Two processes -----------------------------------------------------------------------------------

class LinkProcessTest : public testing::TestWithParam<bool> {
 protected:
  // Forks task B, which answers every message, before this process has threads.
  void Fork(double silence_seconds) {
    Socket listening = ValueOrThrow(Listen(ValueOrThrow(Resolve({"127.0.0.1", 0})).front()));
    address_ = ToString(ValueOrThrow(LocalAddress(listening.fd())));
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      TestNode b(kB, 2, Edit(silence_seconds), listening.Release(), [](Recorder* events) {
        events->CallOnReceived([](Link& link, std::string_view header, const auto& payloads) {
          link.Send("answer to " + std::string(header), payloads);
        });
      });
      while (true) pause();
    }
  }
  static std::function<void(LinksOptions*)> Edit(double silence_seconds) {
    return [silence_seconds](LinksOptions* options) {
      options->shared_memory = GetParam();
      options->silence_seconds = silence_seconds;
    };
  }
  void TearDown() override {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  std::string address_;
  pid_t child_ = -1;
};
INSTANTIATE_TEST_SUITE_P(Kinds, LinkProcessTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Tcp"; });

TEST_P(LinkProcessTest, MessagesCrossAndAKilledPeerIsNamed) {
  Fork(kPatience);
  TestNode a(kA, 1, Edit(kPatience));
  const auto link = a.links->To(kB, address_);
  const std::string large(20 << 20, 'x');
  link->Send("one", {PayloadOf(large)});
  link->Send("two", {PayloadOf("small")});
  ASSERT_TRUE(a.events.WaitForMessages(2)) << a.events.WaitForEnd();
  EXPECT_EQ(a.events.messages[0].header, "answer to one");
  EXPECT_TRUE(a.events.messages[0].payloads[0] == large);
  EXPECT_EQ(a.events.messages[1].payloads[0], "small");
  EXPECT_EQ(link->kind(), GetParam() ? LinkKind::kMemory : LinkKind::kSocket);
  kill(child_, SIGKILL);
  const absl::Status status = a.events.WaitForEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(status), HasSubstr(kB));
  link->Send("to nobody", {PayloadOf(large)});
}

TEST_P(LinkProcessTest, AStoppedPeerIsNoticed) {
  Fork(1);
  TestNode a(kA, 1, Edit(1));
  a.links->To(kB, address_)->Send("one", {});
  ASSERT_TRUE(a.events.WaitForMessages(1));
  kill(child_, SIGSTOP);
  const absl::Status status = a.events.WaitForEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(status), HasSubstr("/job:ps/task:0 (127.0.0.1:"));
  EXPECT_THAT(TextOf(status), HasSubstr("has sent nothing for 1 s"));
}

// A hand-made peer --------------------------------------------------------------------------------

// A frame with one message without payloads, the first on its link.
std::string Bare(const std::string& header) {
  std::string text;
  WireWriter(&text).U32(static_cast<uint32_t>(header.size()));
  return EncodeFrame(FrameKind::kMessages, 1, text + header);
}

// Task B without links: a connection to A that has passed the handshake.
class LinkBadFramesTest : public testing::Test {
 protected:
  LinkBadFramesTest() {
    Connection made =
        ValueOrThrow(ConnectTo(a_.port->address(), TestTask(kB, 2), Identity::Purpose::kLink, kA,
                               NowNanos() + 20 * kSecond));
    socket_ = std::move(made.socket);
  }
  void Write(const std::string& bytes) {
    const absl::Status status = WriteAll(socket_.fd(), bytes, NowNanos() + 20 * kSecond);
    EXPECT_TRUE(status.ok()) << status;
  }
  std::string Read(size_t bytes) {
    std::string text(bytes, 0);
    const auto into = std::as_writable_bytes(std::span(text));
    for (size_t filled = 0; filled < bytes;) {
      ThrowIfError(WaitFor(socket_.fd(), POLLIN, NowNanos() + 20 * kSecond));
      const IoResult result = ReadSome(socket_.fd(), into.subspan(filled));
      if (result.kind != IoResult::Kind::kMoved) ThrowIfError(Unavailable("it ended"));
      filled += result.bytes;
    }
    return text;
  }
  void Open() {
    Write(EncodeFrame(FrameKind::kHello, 0, EncodeHello({.window = 1000})));
    Write(EncodeFrame(FrameKind::kOpen, 0, ""));
  }
  // Expects that the link ends with that code and text.
  void ExpectEnd(absl::StatusCode code, const std::string& text) {
    const absl::Status status = a_.events.WaitForEnd();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(TextOf(status), HasSubstr(kB));
    EXPECT_THAT(TextOf(status), HasSubstr(text));
  }

  TestNode a_{kA, 1};
  Socket socket_;
};

TEST_F(LinkBadFramesTest, GoodFramesPass) {
  Open();
  const std::vector<PayloadPlace> places = {{.bytes = 3}, {.bytes = 0}};
  Write(EncodeFrame(FrameKind::kMessage, 1, "header", places) + "abc");
  ASSERT_TRUE(a_.events.WaitForMessages(1));
  EXPECT_EQ(a_.events.messages[0].header, "header");
  EXPECT_EQ(a_.events.messages[0].payloads, (std::vector<std::string>{"abc", ""}));
}

TEST_F(LinkBadFramesTest, ByteByByte) {
  Open();
  const std::string frame =
      EncodeFrame(FrameKind::kMessage, 1, "header", std::vector<PayloadPlace>{{.bytes = 3}}) +
      "abc";
  for (const char c : frame) Write(std::string(1, c));
  ASSERT_TRUE(a_.events.WaitForMessages(1));
  EXPECT_EQ(a_.events.messages[0].payloads[0], "abc");
}

// The packet that joins memory and the hello travel on two sockets, so either may come first.
TEST_F(LinkBadFramesTest, JoiningMemoryBeforeTheHello) {
  const int64_t deadline = NowNanos() + 20 * kSecond;
  const std::string head = Read(link::kHeadBytes);
  const link::FrameHead parsed = ValueOrThrow(link::ParseHead(
      std::as_bytes(std::span<const char, link::kHeadBytes>(head.data(), link::kHeadBytes))));
  const link::Hello hello = ValueOrThrow(link::ParseHello(Read(parsed.body_bytes())));
  Socket joined = ValueOrThrow(link::JoinAt(hello.socket, hello.secret));
  // The task reads what comes to its joining socket, in turn: this one's end tells that it has.
  {
    Socket later = ValueOrThrow(link::JoinAt(hello.socket, "another secret"));
    ThrowIfError(WaitFor(later.fd(), POLLIN, deadline));
  }
  Write(EncodeFrame(FrameKind::kHello, 0, EncodeHello({.window = 1000})));
  const absl::Status written =
      WriteAll(joined.fd(), EncodeFrame(FrameKind::kOpen, 0, "") + Bare("header"), deadline);
  EXPECT_TRUE(written.ok()) << written;
  ASSERT_TRUE(a_.events.WaitForMessages(1)) << a_.events.WaitForEnd();
  EXPECT_EQ(a_.events.messages[0].header, "header");
}

TEST_F(LinkBadFramesTest, Garbage) {
  Open();
  Write(std::string(100, 'g'));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "not a frame: begins with 0x6767, expected 0x6c74");
  // The peer is told, too.
  std::string said;
  std::byte piece[4096];
  while (WaitFor(socket_.fd(), POLLIN, NowNanos() + 20 * kSecond).ok()) {
    const IoResult result = ReadSome(socket_.fd(), piece);
    if (result.kind != IoResult::Kind::kMoved) break;
    said.append(reinterpret_cast<const char*>(piece), result.bytes);
  }
  EXPECT_THAT(said, HasSubstr("not a frame"));
}

TEST_F(LinkBadFramesTest, FlippedBitsInAHead) {
  Open();
  std::string frame = Bare("header");
  frame[9] ^= 4;
  Write(frame);
  ExpectEnd(absl::StatusCode::kDataLoss, "head of a frame is damaged");
}

TEST_F(LinkBadFramesTest, FlippedBitsInABody) {
  Open();
  std::string frame = Bare("header");
  frame.back() ^= 4;
  Write(frame);
  ExpectEnd(absl::StatusCode::kDataLoss, "body of a frame is damaged");
}

TEST_F(LinkBadFramesTest, FlippedBitsInAPayload) {
  Open();
  const std::vector<PayloadPlace> places = {{.bytes = 3}};
  Write(EncodeFrame(FrameKind::kMessage, 1, "header", places, link::kPayloadCrc) + "abc" + "1234");
  ExpectEnd(absl::StatusCode::kDataLoss, "payload 0 of a message is damaged");
  EXPECT_TRUE(a_.events.messages.empty());
}

TEST_F(LinkBadFramesTest, HalfAFrame) {
  Open();
  Write(Bare("header").substr(0, 30));
  socket_.Close();
  // It is a reset where the socket had bytes that nobody read.
  ExpectEnd(absl::StatusCode::kUnavailable, "connection");
  EXPECT_TRUE(a_.events.messages.empty());
}

TEST_F(LinkBadFramesTest, MessagesBeforeTheLinkIsOpen) {
  Write(Bare("header"));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "a frame of kind 11 before the link was open");
}

TEST_F(LinkBadFramesTest, AMessageTwice) {
  Open();
  Write(Bare("header"));
  Write(Bare("header"));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "message 1 came after message 1");
}

TEST_F(LinkBadFramesTest, AFrameOfMessagesThatDoNotFit) {
  Open();
  std::string text;
  WireWriter(&text).U32(3);
  text += "one";
  WireWriter(&text).U32(100);
  Write(EncodeFrame(FrameKind::kMessages, 1, text + "cut off"));
  ExpectEnd(absl::StatusCode::kInvalidArgument,
            "a message of 100 bytes in a frame that has 11 left");
}

TEST_F(LinkBadFramesTest, AFrameWithoutMessages) {
  Open();
  Write(EncodeFrame(FrameKind::kMessages, 1, ""));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "a frame of messages without any");
}

TEST_F(LinkBadFramesTest, TakingWhatWasNotSent) {
  Open();
  Write(EncodeFrame(FrameKind::kTaken, 5, ""));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "it has taken 5 bytes of payloads, of 0");
}

TEST_F(LinkBadFramesTest, ReleasingWhatIsNotHeld) {
  Open();
  Write(EncodeFrame(FrameKind::kReleased, 5, ""));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "it released message 5");
}

TEST_F(LinkBadFramesTest, MemoryThatIsNotKnown) {
  Open();
  Write(EncodeFrame(FrameKind::kMessage, 1, "x",
                    std::vector<PayloadPlace>{{.bytes = 3, .offset = 9, .region = 7}}));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "region 7 of shared memory, which is not known");
}

TEST_F(LinkBadFramesTest, ARegionWithoutItsFile) {
  Open();
  Write(EncodeFrame(FrameKind::kRegion, 1, std::string(8, 'x')));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "came without its size or its file");
}

// Lengths have 64 bits; whoever gives the places decides.
TEST_F(LinkBadFramesTest, SizesBeyondFourGigabytes) {
  a_.events.refuse_place = ResourceExhausted("too large for this test");
  Open();
  const uint64_t size = (uint64_t{5} << 30) + 1;
  Write(EncodeFrame(FrameKind::kMessage, 1, "x", std::vector<PayloadPlace>{{.bytes = size}}));
  ExpectEnd(absl::StatusCode::kResourceExhausted, "too large for this test");
  EXPECT_EQ(a_.events.last_sizes, std::vector<uint64_t>{size});
}

TEST_F(LinkBadFramesTest, AbsurdSizes) {
  Open();
  Write(EncodeFrame(FrameKind::kMessage, 1, "x",
                    std::vector<PayloadPlace>{{.bytes = uint64_t{1} << 60}}));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "payload 0 of a message has 1152921504606846976");
}

TEST_F(LinkBadFramesTest, UnknownKinds) {
  Open();
  Write(EncodeFrame(static_cast<FrameKind>(77), 1, "x"));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "frame kind 77, expected 1 to 11");
}

}  // namespace
}  // namespace tutti::net
