#include "tutti/runtime/messages/message_codec.h"

#include <gtest/gtest.h>

#include <random>

#include "tutti/compile/program_text.h"
#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

// Encoders with the message as their result, and decoders of it.
WireMessage EncodedRegister(const RegisterRequest& request) {
  WireMessage message;
  EXPECT_TRUE(EncodeRegister(request, message).ok());
  return message;
}
WireMessage EncodedRun(const RunRequest& request) {
  WireMessage message;
  EncodeRun(request, message);
  return message;
}
WireMessage EncodedResponse(const RunResponse& response) {
  WireMessage message;
  EncodeResponse(response, message);
  return message;
}

RegisterRequest SomeRegistration() {
  RegisterRequest request{.session = 77, .parts = {}, .options = {.optimize = false}};
  request.parts.push_back({.device = "/job:ps/task:1/cpu:0",
                           .program = *ParseProgram("x = Placeholder() {dtype=float32, shape=[2]}\n"
                                                    "y = Neg(x)\n"
                                                    "n = NoOp()\n"
                                                    "feed x\n"
                                                    "fetch y\n"
                                                    "target n\n"),
                           .feed_index = {3},
                           .fetch_index = {1}});
  Program& program = request.parts[0].program;
  const int arena = program.memory.AddArena("bucket", "registered");
  program.memory.SetLayout(program.fetches[0], Layout("aB8b"));
  program.memory.SetPin(program.feeds[0], {.arena = arena, .offset = 64});
  program.memory.joined_buckets.insert(program.targets[0]->id());
  return request;
}

RunRequest SomeRun() {
  RunRequest request{.id = {5, 9}, .handle = 4, .random_step = 11, .trace = true, .feeds = {}};
  request.feeds.push_back(Tensor::Vector<int64_t>({1, 2, 3}));
  request.feeds.push_back(Tensor::Zeros(kFloat32, {0, 4}));
  request.feeds.push_back(Tensor());
  return request;
}

RunResponse SomeResponse() {
  RunResponse response;
  response.status = Aborted("lost");
  response.unfinished = "; not done: x";
  response.results.push_back(Tensor::Scalar(2.5f));
  response.trace = std::make_unique<StepTrace>();
  response.trace->nodes.push_back({"n", "Neg", "/cpu:0", 1, 2, 8, ""});
  response.trace->arena_bytes = 64;
  response.trace->peaks.push_back({"/cpu:0", "n", {{"n", 8}}});
  return response;
}

TEST(MessageCodec, GivesBackWhatWasEncoded) {
  const auto registration = [] {
    const WireMessage sent = EncodedRegister(SomeRegistration());
    return DecodeRegister(sent.fields, sent.tensors);
  }();
  ASSERT_TRUE(registration.ok()) << registration.status();
  EXPECT_EQ(registration->session, 77u);
  EXPECT_FALSE(registration->options.optimize);
  ASSERT_EQ(registration->parts.size(), 1u);
  EXPECT_EQ(registration->parts[0].device, "/job:ps/task:1/cpu:0");
  EXPECT_EQ(registration->parts[0].feed_index, std::vector<int>{3});
  const RegisterRequest expected = SomeRegistration();
  EXPECT_EQ(ToText(registration->parts[0].program), ToText(expected.parts[0].program));
  EXPECT_EQ(registration->parts[0].program.memory, expected.parts[0].program.memory);

  const auto run = DecodeRun(EncodedRun(SomeRun()).fields, {});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->id, (StepId{5, 9}));
  EXPECT_EQ(run->handle, 4u);
  EXPECT_EQ(run->random_step, 11);
  EXPECT_TRUE(run->trace);
  EXPECT_EQ(run->feeds[0].ToString(), "int64 [3] {1, 2, 3}");
  EXPECT_EQ(run->feeds[1].shape(), (Shape{0, 4}));
  EXPECT_FALSE(run->feeds[2].valid());

  const auto response = DecodeResponse(EncodedResponse(SomeResponse()).fields, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, Aborted("lost"));
  EXPECT_EQ(response->unfinished, "; not done: x");
  EXPECT_EQ(response->results[0].scalar<float>(), 2.5f);
  ASSERT_NE(response->trace, nullptr);
  EXPECT_EQ(response->trace->nodes[0].op, "Neg");
  EXPECT_EQ(response->trace->peaks[0].values[0].bytes, 8);

  const std::vector<DeviceInfo> devices = {{"/job:a/task:0/cpu:0", "cpu", 4, 1 << 30, true, 99}};
  WireMessage list;
  EncodeDevices(devices, list);
  EXPECT_EQ(*DecodeDevices(list.fields), devices);
}

TEST(MessageCodec, LargeTensorsTravelBesideTheFields) {
  RunRequest request{.id = {1, 2}, .handle = 3};
  request.feeds.push_back(Tensor::Zeros(kFloat32, {40, 40}));
  request.feeds.push_back(Tensor::Scalar(1.0f));
  const WireMessage sent = EncodedRun(request);
  ASSERT_EQ(sent.tensors.size(), 1u);
  EXPECT_EQ(sent.tensors[0].raw(), request.feeds[0].raw()) << "nothing is copied";
  const auto back = DecodeRun(sent.fields, sent.tensors);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->feeds[0].raw(), request.feeds[0].raw());
  EXPECT_EQ(back->feeds[0].shape(), (Shape{40, 40}));

  EXPECT_EQ(MessageOf(DecodeRun(sent.fields, {}).status()), "a tensor whose bytes did not come");
  const std::vector<Tensor> other = {Tensor::Zeros(kUInt8, {40})};
  EXPECT_EQ(MessageOf(DecodeRun(sent.fields, other).status()),
            "a tensor of float32 [40, 40] came with 40 bytes; expected 6400");
  const std::vector<Tensor> more = {sent.tensors[0], sent.tensors[0]};
  EXPECT_EQ(MessageOf(DecodeRun(sent.fields, more).status()), "a run request that is too long");
}

TEST(MessageCodec, LargeConstantsTravelBesideThePrograms) {
  RegisterRequest request{.session = 1, .parts = {}, .options = {}};
  Program program;
  Constant(*program.graph, Tensor::Zeros(kFloat32, {2000}), "c");
  request.parts.push_back({"/job:ps/task:1/cpu:0", std::move(program), {}, {}});
  const WireMessage sent = EncodedRegister(request);
  EXPECT_LT(sent.fields.size(), 400u);
  ASSERT_EQ(sent.tensors.size(), 1u);
  const auto back = DecodeRegister(sent.fields, sent.tensors);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->parts[0].program.graph->Find("c")->attr<Tensor>("value").shape(), (Shape{2000}));
  EXPECT_FALSE(DecodeRegister(sent.fields, {}).ok());
}

TEST(MessageCodec, RequestsOfClientsAndValues) {
  MasterRunRequest request;
  request.step = 4;
  request.feeds = {{7, 1}};
  request.feed_values.push_back(Tensor::Scalar(2.0f));
  request.fetches = {{8, 0}, {9, 1}};
  request.targets = {3};
  request.timeout_nanos = 5;
  request.trace = true;
  WireMessage sent;
  EncodeMasterRun(request, sent);
  const auto back = DecodeMasterRun(sent.fields, {});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->step, 4);
  EXPECT_EQ(back->feeds[0].node, 7);
  EXPECT_EQ(back->feed_values[0].scalar<float>(), 2.0f);
  EXPECT_EQ(back->fetches[1].index, 1);
  EXPECT_EQ(back->targets[0], 3);
  EXPECT_EQ(back->timeout_nanos, 5);
  EXPECT_TRUE(back->trace);
  for (size_t length = 0; length < sent.fields.size(); ++length) {
    EXPECT_FALSE(DecodeMasterRun(sent.fields.substr(0, length), {}).ok()) << length;
  }

  WireMessage value;
  MemoryPool pool;
  EncodeValue({1, 2}, "a;b;c", Tensor::Scalar(3.0f), value);
  const auto received =
      DecodeValue(value.fields, {}, [&](std::string_view) -> MemoryPool& { return pool; });
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->id, (StepId{1, 2}));
  EXPECT_EQ(received->key, "a;b;c");
  EXPECT_EQ(received->value.scalar<float>(), 3.0f);
}

TEST(MessageCodec, RefusesWhatIsCutOffOrTooLong) {
  const std::string run = EncodedRun(SomeRun()).fields;
  for (size_t length = 0; length < run.size(); ++length) {
    EXPECT_FALSE(DecodeRun(run.substr(0, length), {}).ok()) << length;
  }
  EXPECT_EQ(MessageOf(DecodeRun(run + "x", {}).status()), "a run request that is too long");
  const std::string response = EncodedResponse(SomeResponse()).fields;
  for (size_t length = 0; length < response.size(); ++length) {
    EXPECT_FALSE(DecodeResponse(response.substr(0, length), {}).ok()) << length;
  }
  const std::string registration = EncodedRegister(SomeRegistration()).fields;
  for (size_t length = 0; length < registration.size(); ++length) {
    EXPECT_FALSE(DecodeRegister(registration.substr(0, length), {}).ok()) << length;
  }
}

// Flipped bytes give an error or another message, never a crash or a huge allocation.
TEST(MessageCodec, SurvivesFlippedBytes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::string messages[] = {EncodedRun(SomeRun()).fields,
                                  EncodedResponse(SomeResponse()).fields,
                                  EncodedRegister(SomeRegistration()).fields};
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = messages[i % 3];
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = char(random());
    }
    (void)DecodeRun(bytes, {});
    (void)DecodeResponse(bytes, {});
    (void)DecodeRegister(bytes, {});
  }
}

}  // namespace
}  // namespace tutti
