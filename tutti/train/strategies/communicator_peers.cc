#include "tutti/train/strategies/communicator_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tutti/base/status.h"
#include "tutti/collective/communicator.h"

namespace tutti {
namespace {

class CommunicatorPeers final : public Peers {
 public:
  explicit CommunicatorPeers(std::shared_ptr<collective::Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  int workers() const override { return communicator_->size(); }
  int rank() const override { return communicator_->rank(); }

  // First the lengths, then the texts, as whole numbers.
  std::vector<std::string> Gather(std::string_view what, std::string_view own) override {
    collective::Group& world = communicator_->world();
    const auto ranks = size_t(world.size());
    const auto rank = size_t(world.rank());
    std::vector<int64_t> lengths(ranks);
    lengths[rank] = int64_t(own.size());
    const std::string length_key = fmt::format("{}/length", what);
    ThrowIfError(world.AllGather(lengths.data(), 1, kInt64, {.key = length_key}).Wait());
    std::vector<int64_t> counts(ranks);
    int64_t total = 0, before = 0;
    for (size_t r = 0; r < ranks; ++r) {
      counts[r] = (lengths[r] + 3) / 4;
      if (r < rank) before += counts[r];
      total += counts[r];
    }
    std::vector<int32_t> all(size_t(std::max<int64_t>(total, 1)));
    std::memcpy(all.data() + before, own.data(), own.size());
    ThrowIfError(world.AllGatherV(all.data(), counts, kInt32, {.key = what}).Wait());
    std::vector<std::string> texts;
    const int32_t* from = all.data();
    for (size_t r = 0; r < ranks; ++r) {
      texts.emplace_back(reinterpret_cast<const char*>(from), size_t(lengths[r]));
      from += counts[r];
    }
    return texts;
  }

  void Sum(std::string_view what, std::span<double> values) override {
    ThrowIfError(communicator_->world()
                     .AllReduce(values.data(), int64_t(values.size()), kFloat64, {.key = what})
                     .Wait());
  }

  void Abort(Code code, std::string_view message) override {
    communicator_->Abort(MakeStatus(static_cast<absl::StatusCode>(code), "{}", message));
  }
  std::string Failure() const override { return std::string(MessageOf(communicator_->status())); }

  CommunicationStats stats() const override {
    const collective::CommunicatorStats stats = communicator_->stats();
    return {.bytes = stats.bytes,
            .active_nanos = stats.active_nanos,
            .exposed_nanos = stats.exposed_nanos,
            .waited_nanos = stats.waited_nanos};
  }

 private:
  const std::shared_ptr<collective::Communicator> communicator_;
};

}  // namespace

std::shared_ptr<Peers> MakeCommunicatorPeers(
    std::shared_ptr<collective::Communicator> communicator) {
  return std::make_shared<CommunicatorPeers>(std::move(communicator));
}

}  // namespace tutti
