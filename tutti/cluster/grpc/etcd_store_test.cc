// The suite of stores over a real etcd, and what only that has: members that are lost, users and
// certificates.
#include "tutti/cluster/grpc/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <mutex>

#include "tutti/base/status.h"
#include "tutti/net/coordination/gathering.h"
#include "tutti/net/coordination/store/store_suite.h"
#include "tutti/testing/cluster/etcd_under_test.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using testing::EtcdUnderTest;
using ::testing::HasSubstr;

std::string TextOf(const absl::Status& status) { return std::string(MessageOf(status)); }

std::shared_ptr<net::Store> Open(const EtcdUnderTest& etcd, EtcdOptions options = {}) {
  options.endpoints = etcd.endpoints();
  return ValueOrThrow(OpenEtcd(std::move(options)));
}

// Every test has an etcd of its own.
std::shared_ptr<net::Store> MakeStore(int members, std::string* skip) {
  *skip = EtcdUnderTest::Missing();
  if (!skip->empty()) return nullptr;
  const auto etcd = std::make_shared<EtcdUnderTest>(EtcdUnderTest::Options{.members = members});
  const std::shared_ptr<net::Store> store = Open(*etcd);
  return {store.get(), [etcd, store](net::Store*) {}};
}

}  // namespace

namespace net {
INSTANTIATE_TEST_SUITE_P(
    Etcd, StoreSuite,
    ::testing::Values(
        StoreUnderTest{"One", [](std::string* skip) { return MakeStore(1, skip); }, 1},
        StoreUnderTest{"Three", [](std::string* skip) { return MakeStore(3, skip); }, 1}),
    [](const auto& info) { return info.param.name; });
}  // namespace net

namespace {

class EtcdStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = EtcdUnderTest::Missing(); !missing.empty()) {
      GTEST_SKIP() << missing;
    }
  }
};

TEST_F(EtcdStoreTest, ALostMemberIsNotNoticed) {
  EtcdUnderTest etcd({.members = 3});
  std::mutex mutex;
  std::vector<std::string> notices;
  const auto store = Open(etcd, {.notice = [&](const std::string& text) {
                            const std::lock_guard lock(mutex);
                            notices.push_back(text);
                          }});
  ASSERT_TRUE(store->Put("a", "0").ok());
  std::vector<std::string> seen;
  std::promise<void> all;
  const auto watch =
      ValueOrThrow(store->StartWatch("a", 1, [&](std::span<const net::StoreEvent> events) {
        for (const net::StoreEvent& event : events) seen.push_back(event.entry.value);
        if (seen.size() == 7) all.set_value();
      }));
  for (int member = 0; member < 3; ++member) {
    etcd.Kill(member);
    ASSERT_TRUE(store->Put("a", std::to_string(2 * member + 1)).ok());
    etcd.Start(member);
    ASSERT_TRUE(store->Put("a", std::to_string(2 * member + 2)).ok());
    // The next one may go only when this one is back.
    etcd.Control({"--command-timeout=20s", "endpoint", "health", "--cluster"});
  }
  all.get_future().wait();
  EXPECT_THAT(seen, ElementsAre("0", "1", "2", "3", "4", "5", "6"));
}

// Two of three are gone: what needs the store waits, says so, and goes on. The lease that nobody
// could keep alive meanwhile is still there.
TEST_F(EtcdStoreTest, ALostMajorityPauses) {
  EtcdUnderTest etcd({.members = 3});
  std::promise<std::string> paused, again;
  std::once_flag once, once_again;
  // Short attempts, so that many of them end in every way there is.
  EtcdOptions options{.attempt_seconds = 0.1};
  options.notice = [&](const std::string& text) {
    if (text.find("answers again") != std::string::npos) {
      std::call_once(once_again, [&] { again.set_value(text); });
    } else {
      std::call_once(once, [&] { paused.set_value(text); });
    }
  };
  const auto store = Open(etcd, std::move(options));
  // The etcd is there.
  etcd.Control({"--command-timeout=20s", "endpoint", "health", "--cluster"});
  const net::LeaseId lease = ValueOrThrow(store->Grant(5));
  ASSERT_TRUE(store->Put("place", "mine", {.lease = lease}).ok());
  etcd.Kill(0);
  etcd.Kill(1);
  auto put =
      std::async(std::launch::async, [&] { return store->Put("a", "1", {.if_version = 0}); });
  auto told = paused.get_future();
  while (told.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
    ASSERT_NE(put.wait_for(std::chrono::seconds(0)), std::future_status::ready)
        << put.get().status();
  }
  const std::string text = told.get();
  EXPECT_THAT(text, HasSubstr("etcd (127.0.0.1:"));
  EXPECT_THAT(text, HasSubstr("what needs it waits, up to 60 s"));
  etcd.Start(0);
  etcd.Start(1);
  const auto revision = put.get();
  ASSERT_TRUE(revision.ok()) << revision.status();
  EXPECT_EQ(ValueOrThrow(store->Get("a"))->version, *revision);
  EXPECT_THAT(again.get_future().get(), HasSubstr("answers again, after "));
  EXPECT_TRUE(store->KeepAlive(lease).ok());
  EXPECT_TRUE(ValueOrThrow(store->Get("place")).has_value());
}

TEST_F(EtcdStoreTest, AnEtcdThatIsNotThereIsNamed) {
  const auto store =
      ValueOrThrow(OpenEtcd({.endpoints = {"127.0.0.1:1"}, .patience_seconds = 0.2}));
  const absl::Status status = store->Get("a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(status), HasSubstr("etcd (127.0.0.1:1): "));
  EXPECT_THAT(TextOf(status), HasSubstr("tried for 0.2 s"));
  std::promise<absl::Status> ended;
  const auto watch = ValueOrThrow(store->StartWatch(
      "", 1, [](std::span<const net::StoreEvent>) {},
      [&](const absl::Status& why) { ended.set_value(why); }));
  EXPECT_EQ(ended.get_future().get().code(), absl::StatusCode::kUnavailable);
}

TEST_F(EtcdStoreTest, WhatIsForgottenIsTold) {
  EtcdUnderTest etcd({});
  const auto store = Open(etcd);
  int64_t last = 0;
  for (int i = 0; i < 5; ++i) last = ValueOrThrow(store->Put("a", std::to_string(i)));
  etcd.Control({"compact", std::to_string(last)});
  std::promise<absl::Status> ended;
  const auto watch = ValueOrThrow(store->StartWatch(
      "", 1, [](std::span<const net::StoreEvent>) {},
      [&](const absl::Status& why) { ended.set_value(why); }));
  EXPECT_EQ(ended.get_future().get().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(EtcdStoreTest, UsersAndCertificates) {
  EtcdUnderTest etcd({.tls = true});
  etcd.Control({"user", "add", "root:secret"});
  etcd.Control({"user", "grant-role", "root", "root"});
  etcd.Control({"auth", "enable"});
  ::setenv("ETCDCTL_CACERT", etcd.File("ca.pem").c_str(), 1);
  ::setenv("ETCDCTL_CERT", etcd.File("client.pem").c_str(), 1);
  ::setenv("ETCDCTL_KEY", etcd.File("client-key.pem").c_str(), 1);
  ::setenv("ETCDCTL_USER", "root:secret", 1);
  EtcdOptions right = ValueOrThrow(ParseEtcdUrl(etcd.url("job")));
  for (const char* name : {"ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY", "ETCDCTL_USER"}) {
    ::unsetenv(name);
  }
  right.patience_seconds = 20;
  const auto store = ValueOrThrow(OpenEtcd(right));
  EXPECT_TRUE(store->Put("a", "1").ok());
  EXPECT_EQ(ValueOrThrow(store->Get("a"))->value, "1");
  std::promise<void> told;
  const auto watch = ValueOrThrow(
      store->StartWatch("a", 1, [&](std::span<const net::StoreEvent>) { told.set_value(); }));
  told.get_future().wait();

  EtcdOptions wrong = right;
  wrong.password = "guess";
  const absl::Status refused = ValueOrThrow(OpenEtcd(wrong))->Get("a").status();
  EXPECT_FALSE(absl::IsUnavailable(refused));
  EXPECT_THAT(TextOf(refused), HasSubstr("user \"root\": etcd (127.0.0.1:"));
  EXPECT_THAT(TextOf(refused), HasSubstr("invalid user ID or password"));
  wrong = right;
  wrong.user = "";
  EXPECT_THAT(TextOf(ValueOrThrow(OpenEtcd(wrong))->Get("a").status()),
              HasSubstr("permission denied"));
  wrong = right;
  wrong.certificate = wrong.key = "";
  wrong.patience_seconds = 0.2;
  EXPECT_EQ(ValueOrThrow(OpenEtcd(wrong))->Get("a").status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(EtcdStoreTest, AMembershipOverIt) {
  EtcdUnderTest etcd({});
  const std::vector<std::string> tasks = {"/job:ps/task:0", "/job:worker/task:0"};
  const auto options = [&](const std::string& task, uint64_t incarnation) {
    return net::MembershipOptions{
        .store = Open(etcd), .task = task, .incarnation = incarnation, .tasks = tasks};
  };
  auto ps = ValueOrThrow(net::Membership::Join(options(tasks[0], 1)));
  auto worker = ValueOrThrow(net::Membership::Join(options(tasks[1], 1)));
  EXPECT_TRUE(ps->AwaitAll(60).ok());
  auto there = std::async(std::launch::async, [&] { return net::Barrier(*ps, "start", 60); });
  EXPECT_TRUE(net::Barrier(*worker, "start", 60).ok());
  EXPECT_TRUE(there.get().ok());
  // The next incarnation has a greater revision, and the old one can write nothing.
  const int64_t before = worker->revision();
  worker.reset();
  worker = ValueOrThrow(net::Membership::Join(options(tasks[1], 2)));
  EXPECT_GT(worker->revision(), before);
  EXPECT_EQ(ps->CheckFence(tasks[1], before).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(EtcdUrl, SaysWhatIsWrong) {
  const EtcdOptions options = ValueOrThrow(ParseEtcdUrl("etcd://a:2379,[::1]:2379/my-job"));
  EXPECT_THAT(options.endpoints, ElementsAre("a:2379", "[::1]:2379"));
  EXPECT_EQ(options.job, "my-job");
  EXPECT_EQ(ValueOrThrow(ParseEtcdUrl("etcd://a:2379")).job, "tutti");
  for (const auto& [url, why] : std::vector<std::pair<std::string, std::string>>{
           {"http://a:1", "it does not begin with etcd://"},
           {"etcd://a", "no port"},
           {"etcd://a:1,,b:2", "no port"},
           {"etcd://a:1/", "the name of the job is empty"},
           {"etcd://me:secret@a:1", "belong into ETCDCTL_USER"}}) {
    const absl::Status status = ParseEtcdUrl(url).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(TextOf(status), HasSubstr(why));
  }
  ::setenv("ETCDCTL_CACERT", "/no/such/file", 1);
  EXPECT_THAT(TextOf(ParseEtcdUrl("etcd://a:1").status()),
              HasSubstr("ETCDCTL_CACERT: cannot read /no/such/file: no such file or directory"));
  ::unsetenv("ETCDCTL_CACERT");
}

}  // namespace
}  // namespace tutti
