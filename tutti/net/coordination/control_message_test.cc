#include "tutti/net/coordination/control_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tutti/base/status.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

using ::testing::HasSubstr;

ControlMessage Sample() {
  ControlMessage message;
  message.type = ControlMessage::Type::kVerdict;
  message.code = absl::StatusCode::kUnavailable;
  message.rank = 2;
  message.number = 0x0123456789abcdef;
  message.counters = {1, 2, UINT64_MAX};
  message.texts = {"rank 2 died", "", std::string(1000, 'x')};
  return message;
}

TEST(ControlMessage, ComesOutAsItWentIn) {
  const ControlMessage sample = Sample();
  const std::string bytes = Encode(sample) + Encode({}) + Encode(sample);
  for (const size_t piece : {1, 7, 5000}) {
    ControlReader reader(4096);
    std::vector<ControlMessage> messages;
    for (size_t i = 0; i < bytes.size(); i += piece) {
      reader.Append(AsBytes(std::string_view(bytes).substr(i, piece)));
      for (bool found = true; found;) {
        ControlMessage message;
        ASSERT_TRUE(reader.Next(&message, &found).ok());
        if (found) messages.push_back(message);
      }
    }
    EXPECT_EQ(messages, (std::vector<ControlMessage>{sample, {}, sample}));
  }
}

TEST(ControlMessage, CarriesAStatus) {
  const auto message = ControlMessage::Of(ControlMessage::Type::kFailure, 3, DataLoss("bad"));
  EXPECT_EQ(message.status(), absl::DataLossError("bad"));
  EXPECT_EQ(message.rank, 3);
}

TEST(ControlMessage, RefusesALengthOverTheLimitWhenItSeesIt) {
  ControlReader reader(100);
  std::string length;
  WireWriter(&length).U32(101);
  reader.Append(AsBytes(length));
  ControlMessage message;
  bool found = false;
  EXPECT_THAT(std::string(MessageOf(reader.Next(&message, &found))),
              HasSubstr("message of 101 bytes, the limit is 100"));
}

TEST(ControlMessage, NamesWhatIsBroken) {
  const auto error = [](size_t offset, uint8_t value) {
    std::string bytes = Encode(Sample()).substr(4);
    bytes[offset] = static_cast<char>(value);
    ControlMessage message;
    return std::string(MessageOf(Decode(bytes, &message)));
  };
  EXPECT_THAT(error(0, 0), HasSubstr("type 0, expected 1 to 12"));
  EXPECT_THAT(error(0, 13), HasSubstr("type 13, expected 1 to 12"));
  EXPECT_THAT(error(1, 17), HasSubstr("status code 17, expected 0 to 16"));
  EXPECT_THAT(error(17, 0xff), HasSubstr("counters in"));            // the count's highest byte
  EXPECT_THAT(error(45, 0xff), HasSubstr("texts in"));               // the same of the texts
  EXPECT_THAT(error(49, 0xff), HasSubstr("do not fit the fields"));  // and of the first's length
}

TEST(ControlMessage, AnyBytesAreReadOrRefused) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string good = Encode(Sample()).substr(4);
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string bytes = good;
    for (int i = 0; i < 3; ++i) bytes[random() % 60] = static_cast<char>(random());
    bytes.resize(random() % 2 == 0 ? bytes.size() : random() % bytes.size());
    ControlMessage message;
    if (!Decode(bytes, &message).ok()) continue;
    EXPECT_EQ(Encode(message).substr(4), bytes);
  }
}

}  // namespace
}  // namespace tutti::net
