#include "tutti/net/link/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/link/link_test_task.h"

namespace tutti::net {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kA = "/job:worker/task:0";
const std::string kB = "/job:ps/task:0";

std::string TextOf(const absl::Status& status) { return std::string(MessageOf(status)); }

std::string RandomBytes(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// Every test with TCP and with joined memory.
class LinksTest : public testing::TestWithParam<bool> {
 protected:
  static std::function<void(LinksOptions*)> Options(
      const std::function<void(LinksOptions*)>& more = nullptr) {
    return [more](LinksOptions* options) {
      options->shared_memory = GetParam();
      if (more != nullptr) more(options);
    };
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, LinksTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Tcp"; });

TEST_P(LinksTest, MessagesArriveWholeAndInOrder) {
  TestNode a(kA, 1, Options()), b(kB, 2, Options());
  const std::shared_ptr<Link> link = a.To(b, kB);
  const std::vector<size_t> sizes = {0, 1, 100, 5000, 70000, 300000, 3 << 20, 7};
  for (size_t i = 0; i < sizes.size(); ++i) {
    link->Send("message " + std::to_string(i),
               {PayloadOf(RandomBytes(sizes[i], 1)), PayloadOf("small")});
    link->Send("bare " + std::to_string(i), {});
  }
  ASSERT_TRUE(b.events.WaitForMessages(2 * sizes.size()));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Recorder::Message& message = b.events.messages[2 * i];
    EXPECT_EQ(message.task, kA);
    EXPECT_EQ(message.incarnation, 1u);
    EXPECT_EQ(message.header, "message " + std::to_string(i));
    ASSERT_EQ(message.payloads.size(), 2u);
    EXPECT_TRUE(message.payloads[0] == RandomBytes(sizes[i], 1)) << "payload " << i;
    EXPECT_EQ(message.payloads[1], "small");
    EXPECT_EQ(b.events.messages[2 * i + 1].header, "bare " + std::to_string(i));
  }
  EXPECT_EQ(link->kind(), GetParam() ? LinkKind::kMemory : LinkKind::kSocket);
  EXPECT_EQ(link->peer(), (TaskIdentity{kB, 2}));
  EXPECT_THAT(link->Describe(), HasSubstr(GetParam() ? "shared memory" : "tcp"));
  EXPECT_EQ(link->counters().messages_sent, 2 * sizes.size());
  ASSERT_EQ(b.links->All().size(), 1u);
  EXPECT_EQ(b.links->All()[0]->counters().messages_received, 2 * sizes.size());
  EXPECT_EQ(b.links->All()[0]->counters().bytes_received, link->counters().bytes_sent);
}

TEST_P(LinksTest, AnswersComeOverTheSameLink) {
  TestNode b(kB, 2, Options(), -1, [](Recorder* events) {
    events->CallOnReceived([](Link& link, std::string_view header, const auto&) {
      link.Send("answer to " + std::string(header), {});
    });
  });
  TestNode client("client", 77, Options());
  client.To(b, kB)->Send("question", {});
  ASSERT_TRUE(client.events.WaitForMessages(1));
  EXPECT_EQ(client.events.messages[0].header, "answer to question");
  EXPECT_EQ(b.links->All()[0]->peer(), (TaskIdentity{"client", 77}));
}

TEST_P(LinksTest, AskingTwiceGivesTheSameLink) {
  TestNode a(kA, 1, Options()), b(kB, 2, Options());
  const auto link = a.To(b, kB);
  EXPECT_EQ(a.To(b, kB), link);
  link->Send("x", {});
  ASSERT_TRUE(b.events.WaitForMessages(1));
  EXPECT_EQ(a.To(b, kB, 2), link);
  // Also from the side that accepted it.
  EXPECT_EQ(b.To(a, kA)->peer(), (TaskIdentity{kA, 1}));
  EXPECT_EQ(b.links->All().size(), 1u);
}

TEST_P(LinksTest, BothSidesOpenAtOnce) {
  for (int round = 0; round < 30; ++round) {
    TestNode a(kA, 1, Options()), b(kB, 2, Options());
    std::promise<void> go;
    std::shared_future<void> start = go.get_future().share();
    const auto open = [&](TestNode& from, const TestNode& to, const std::string& task) {
      return std::thread([&, task] {
        start.wait();
        for (int i = 0; i < 3; ++i) from.To(to, task)->Send(std::to_string(i), {PayloadOf("p")});
      });
    };
    std::thread one = open(a, b, kB), two = open(b, a, kA);
    go.set_value();
    one.join();
    two.join();
    for (TestNode* node : {&a, &b}) {
      ASSERT_TRUE(node->events.WaitForMessages(3)) << "round " << round;
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(node->events.messages[i].header, std::to_string(i));
      EXPECT_EQ(node->links->All().size(), 1u);
      EXPECT_TRUE(node->events.Locked<bool>([&] { return node->events.broken.empty(); }));
    }
  }
}

// Past the window messages with payloads wait at the sender; others pass.
TEST_P(LinksTest, TheWindowHoldsBackWhatIsNotTaken) {
  TestNode b(kB, 2, Options([](LinksOptions* options) { options->window_bytes = 100'000; }), -1,
             [](Recorder* events) { events->take = false; });
  TestNode a(kA, 1, Options());
  const auto link = a.To(b, kB);
  const auto headers = [&] {
    return b.events.Locked<std::vector<std::string>>([&] {
      std::vector<std::string> all;
      for (const auto& message : b.events.messages) all.push_back(message.header);
      return all;
    });
  };
  for (int i = 0; i < 4; ++i) link->Send(std::to_string(i), {PayloadOf(std::string(40'000, 'x'))});
  link->Send("bare", {});
  ASSERT_TRUE(b.events.WaitForMessages(3));
  EXPECT_THAT(headers(), ElementsAre("0", "1", "bare"));
  b.links->All()[0]->Taken(40'000);
  ASSERT_TRUE(b.events.WaitForMessages(4));
  b.links->All()[0]->Taken(40'000);
  ASSERT_TRUE(b.events.WaitForMessages(5));
  EXPECT_THAT(headers(), ElementsAre("0", "1", "bare", "2", "3"));
  // One that is larger than the window goes alone.
  link->Send("large", {PayloadOf(std::string(400'000, 'x'))});
  b.links->All()[0]->Taken(80'000);
  ASSERT_TRUE(b.events.WaitForMessages(6));
}

// Values that are too small for payloads are held back, too.
TEST_P(LinksTest, TheWindowHoldsBackHeadersThatCount) {
  TestNode b(kB, 2, Options([](LinksOptions* options) { options->window_bytes = 1000; }), -1,
             [](Recorder* events) { events->take = false; });
  TestNode a(kA, 1, Options());
  const auto link = a.To(b, kB);
  for (int i = 0; i < 25; ++i) link->SendCounted(std::string(100, char('a' + i)), {});
  link->Send("last", {});
  ASSERT_TRUE(b.events.WaitForMessages(11));
  const auto last = [&] {
    return b.events.Locked<std::string>([&] { return b.events.messages.back().header; });
  };
  EXPECT_EQ(last(), "last");
  b.links->All()[0]->Taken(1000);
  ASSERT_TRUE(b.events.WaitForMessages(21));
  EXPECT_EQ(last(), std::string(100, 't'));
  b.links->All()[0]->Taken(100);
  ASSERT_TRUE(b.events.WaitForMessages(22));
  b.links->All()[0]->Taken(1000);
  ASSERT_TRUE(b.events.WaitForMessages(26));
}

TEST_P(LinksTest, OwnersGoWhenTheBytesHaveNoMoreUse) {
  TestNode a(kA, 1, Options()), b(kB, 2, Options());
  const auto link = a.To(b, kB);
  std::vector<std::weak_ptr<const void>> owners;
  for (const size_t size : {10, 200'000}) {
    Payload payload = PayloadOf(std::string(size, 'x'));
    owners.emplace_back(payload.owner);
    link->Send("x", {std::move(payload)});
  }
  ASSERT_TRUE(b.events.WaitForMessages(2));
  // An answer that was sent after the last release shows that the releases have come.
  std::promise<void> answered;
  a.events.CallOnReceived([&](Link&, std::string_view, const auto&) { answered.set_value(); });
  b.links->All()[0]->Send("answer", {});
  answered.get_future().wait();
  for (const auto& owner : owners) EXPECT_TRUE(owner.expired());
}

TEST_P(LinksTest, CloseSendsWhatWasSentAndTellsTheReason) {
  TestNode a(kA, 1, Options()), b(kB, 2, Options());
  const auto link = a.To(b, kB);
  link->Send("first", {});
  ASSERT_TRUE(b.events.WaitForMessages(1));
  for (int i = 0; i < 100; ++i) link->Send("more", {PayloadOf(std::string(20'000, 'x'))});
  link->Close(FailedPrecondition("the session is over"));
  link->Send("too late", {});
  const absl::Status there = b.events.WaitForEnd();
  EXPECT_EQ(there.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(TextOf(there), HasSubstr(kA));
  EXPECT_THAT(TextOf(there), HasSubstr("closed the link: the session is over"));
  EXPECT_GE(b.events.messages.size(), 101u);
  EXPECT_EQ(TextOf(a.events.WaitForEnd()), "the session is over");
  EXPECT_TRUE(a.links->All().empty());
  // The next one is a new link.
  EXPECT_NE(a.To(b, kB), link);
  a.To(b, kB)->Send("again", {});
  EXPECT_TRUE(b.events.WaitUntil([&] { return b.events.messages.back().header == "again"; }));
}

TEST_P(LinksTest, TheEndOfAProcessIsTold) {
  TestNode a(kA, 1, Options());
  {
    TestNode b(kB, 2, Options());
    a.To(b, kB)->Send("x", {});
    ASSERT_TRUE(b.events.WaitForMessages(1));
  }
  const absl::Status status = a.events.WaitForEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(status), HasSubstr("/job:ps/task:0 is shutting down"));
}

TEST_P(LinksTest, ARestartedTaskReplacesItsLink) {
  TestNode a(kA, 1, Options());
  TestNode first(kB, 5, Options());
  const auto old = first.To(a, kA);
  old->Send("first", {});
  ASSERT_TRUE(a.events.WaitForMessages(1));
  TestNode second(kB, 6, Options());
  second.To(a, kA)->Send("second", {});
  ASSERT_TRUE(a.events.WaitForMessages(2));
  EXPECT_EQ(a.events.messages[1].incarnation, 6u);
  const absl::Status status = a.events.WaitForEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(TextOf(status), HasSubstr("it restarted as incarnation 6"));
  EXPECT_EQ(first.events.WaitForEnd().code(), absl::StatusCode::kUnavailable);
  // The older one cannot come back, and is told.
  first.To(a, kA)->Send("zombie", {});
  ASSERT_TRUE(first.events.WaitUntil([&] { return first.events.broken.size() == 2; }));
  EXPECT_THAT(TextOf(first.events.broken[1].second),
              HasSubstr("incarnation 5 of /job:ps/task:0 is over: it restarted as 6"));
  EXPECT_EQ(a.links->refused(), 1u);
  EXPECT_EQ(a.links->All().size(), 1u);
}

TEST_P(LinksTest, AnotherIncarnationThanExpectedIsAborted) {
  TestNode a(kA, 1, Options()), b(kB, 6, Options());
  a.To(b, kB, 5)->Send("x", {});
  const absl::Status status = a.events.WaitForEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(TextOf(status), HasSubstr("it restarted: incarnation 6 answered, 5 was expected"));
  a.To(b, kB, 6)->Send("y", {});
  ASSERT_TRUE(b.events.WaitForMessages(1));
  EXPECT_EQ(b.events.messages[0].header, "y");
  // The link of 6 stands; 5 is told at once.
  a.To(b, kB, 5);
  ASSERT_TRUE(a.events.WaitUntil([&] { return a.events.broken.size() == 2; }));
  EXPECT_EQ(a.events.broken[1].second.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(a.links->All().size(), 1u);
}

TEST(Links, ATaskThatIsNotThereIsNamed) {
  TestNode a(kA, 1, [](LinksOptions* options) { options->connect_seconds = 0.05; });
  a.links->To(kB, "127.0.0.1:1")->Send("x", {PayloadOf("y")});
  const absl::Status status = a.events.WaitForEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(status), HasSubstr("/job:ps/task:0 (127.0.0.1:1): not reached"));
  EXPECT_THAT(TextOf(status), HasSubstr("connection refused"));
  a.links->To(kB, "no-such-host.invalid:1");
  ASSERT_TRUE(a.events.WaitUntil([&] { return a.events.broken.size() == 2; }));
  EXPECT_THAT(TextOf(a.events.broken[1].second), HasSubstr("no-such-host.invalid"));
}

TEST(Links, ATaskHasNoLinkToItself) {
  TestNode a(kA, 1);
  a.To(a, kA)->Send("x", {});
  EXPECT_EQ(TextOf(a.events.WaitForEnd()), kA + " has no link to itself");
}

// What came in place over a link may be sent back over it, also when the link is closing: its owner
// then goes without a word.
TEST(Links, APayloadMayBeSentBack) {
  TestNode a(kA, 1);
  TestNode b(kB, 2, nullptr, -1, [](Recorder* events) {
    events->CallOnReceived([](Link& link, std::string_view, const std::vector<Payload>& payloads) {
      link.Send("back", payloads);
      link.Close(Cancelled("enough"));
      for (int i = 0; i < 3; ++i) link.Send("too late", payloads);
    });
  });
  a.To(b, kB)->Send("x", {PayloadOf(RandomBytes(1 << 20, 5))});
  // What was sent too late may still come until the end.
  EXPECT_EQ(a.events.WaitForEnd().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(b.events.WaitForEnd().code(), absl::StatusCode::kCancelled);
  ASSERT_FALSE(a.events.messages.empty());
  EXPECT_TRUE(a.events.messages[0].payloads[0] == RandomBytes(1 << 20, 5));
}

TEST(Links, ANameIsLookedUp) {
  TestNode a(kA, 1), b(kB, 2);
  const std::string port = b.port->address().substr(b.port->address().rfind(':'));
  a.links->To(kB, "localhost" + port)->Send("x", {});
  EXPECT_TRUE(b.events.WaitForMessages(1));
}

TEST(Links, OneSideWithoutSharedMemoryStaysOnTcp) {
  TestNode a(kA, 1);
  TestNode b(kB, 2, [](LinksOptions* options) { options->shared_memory = false; });
  a.To(b, kB)->Send("x", {PayloadOf(RandomBytes(1 << 20, 3))});
  ASSERT_TRUE(b.events.WaitForMessages(1));
  EXPECT_TRUE(b.events.messages[0].payloads[0] == RandomBytes(1 << 20, 3));
  EXPECT_EQ(b.links->All()[0]->kind(), LinkKind::kSocket);
}

TEST(Links, IncarnationsGrow) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 100; ++i) seen.insert(MakeIncarnation());
  EXPECT_GT(seen.size(), 95u);
}

}  // namespace
}  // namespace tutti::net
