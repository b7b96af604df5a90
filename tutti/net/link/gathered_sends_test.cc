#include "tutti/net/link/gathered_sends.h"

#include <gtest/gtest.h>

#include <thread>

#include "tutti/net/link/link_test_task.h"

namespace tutti::net {
namespace {

struct CountedQueue final : SendQueue {
  void WriteQueued() override { ++writes; }
  int writes = 0;
};

TEST(GatheredSendsTest, AQueueIsWrittenOnceForAllThatGathered) {
  const auto queue = std::make_shared<CountedQueue>(), other = std::make_shared<CountedQueue>();
  EXPECT_FALSE(GatheredSends::Add(queue)) << "outside of a scope the caller writes";
  {
    const GatheredSends outer;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(GatheredSends::Add(queue));
    EXPECT_TRUE(GatheredSends::Add(other));
    {
      const GatheredSends inner;
      EXPECT_TRUE(GatheredSends::Add(queue));
    }
    EXPECT_EQ(queue->writes, 0) << "the end of an inner scope writes nothing";
    GatheredSends::Flush();
    EXPECT_EQ(queue->writes, 1);
    EXPECT_EQ(other->writes, 1);
    GatheredSends::Flush();
    EXPECT_EQ(queue->writes, 1) << "nothing gathered since";
    EXPECT_TRUE(GatheredSends::Add(queue));
    std::thread([&] { EXPECT_FALSE(GatheredSends::Add(queue)) << "another thread"; }).join();
  }
  EXPECT_EQ(queue->writes, 2) << "the end of the outermost scope writes";
  EXPECT_FALSE(GatheredSends::Add(queue));
}

// What is released by a write may send again: it gathers anew, and the scope's end writes it.
TEST(GatheredSendsTest, AWriteMaySend) {
  struct Sender final : SendQueue {
    void WriteQueued() override {
      ++writes;
      EXPECT_TRUE(GatheredSends::Add(other));
    }
    std::shared_ptr<CountedQueue> other = std::make_shared<CountedQueue>();
    int writes = 0;
  };
  const auto sender = std::make_shared<Sender>();
  {
    const GatheredSends gathered;
    EXPECT_TRUE(GatheredSends::Add(sender));
    GatheredSends::Flush();
    EXPECT_EQ(sender->writes, 1);
    EXPECT_EQ(sender->other->writes, 0);
  }
  EXPECT_EQ(sender->other->writes, 1);
}

class GatheredLinkTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Kinds, GatheredLinkTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Tcp"; });

TEST_P(GatheredLinkTest, MessagesArriveInOrderAndALargeOneTakesThoseBeforeItAlong) {
  const auto options = [](LinksOptions* given) { given->shared_memory = GetParam(); };
  TestNode a("/job:worker/task:0", 1, options), b("/job:ps/task:0", 2, options);
  const std::shared_ptr<Link> link = a.To(b, "/job:ps/task:0");
  link->Send("first", {});
  ASSERT_TRUE(b.events.WaitForMessages(1));  // the link is open
  {
    const GatheredSends gathered;
    link->Send("small 1", {PayloadOf("x")});
    link->Send("small 2", {});
    link->Send("large", {PayloadOf(std::string(2 << 20, 'y'))});
    ASSERT_TRUE(b.events.WaitForMessages(4)) << "a large message does not wait for the scope's end";
    link->Send("small 3", {});
  }
  ASSERT_TRUE(b.events.WaitForMessages(5));
  const char* const expected[] = {"first", "small 1", "small 2", "large", "small 3"};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(b.events.messages[i].header, expected[i]);
}

}  // namespace
}  // namespace tutti::net
