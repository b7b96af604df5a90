// All-reduce of Gloo, over TCP on the loopback device: it has no other transport on one host. The
// ranks find each other through files. TUTTI_GLOO_ALGORITHM chooses ring (the default), bcube,
// halving-doubling or ring-chunked; the last two are of Gloo's older interface.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "benchmarks/peers/collective_peer.h"

namespace {

class Gloo {
 public:
  explicit Gloo(const peers::Options& options) : algorithm_(Algorithm()) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    gloo::rendezvous::FileStore store(options.store);
    context->connectFullMesh(store, device);
    context_ = context;
  }
  int rank() const { return context_->rank; }
  int size() const { return context_->size; }
  void Barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  void AllReduce(const float* from, float* to, size_t count) {
    if (algorithm_ == "halving-doubling" || algorithm_ == "ring-chunked") {
      if (from != to) std::copy(from, from + count, to);
      Prepared(to, count).run();
    } else {
      Reduce(from, to, count, gloo::sum<float>);
    }
  }
  void MaxOverRanks(double* values, size_t count) {
    Reduce(values, values, count, gloo::max<double>);
  }

 private:
  static std::string Algorithm() {
    const char* const name = std::getenv("TUTTI_GLOO_ALGORITHM");
    return name ? name : "ring";
  }

  template <typename T>
  void Reduce(const T* from, T* to, size_t count,
              void (*function)(void*, const void*, const void*, size_t)) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm_ == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                               : gloo::AllreduceOptions::Algorithm::RING);
    if (from != to) options.setInput(const_cast<T*>(from), count);
    options.setOutput(to, count);
    options.setReduceFunction(function);
    gloo::allreduce(options);
  }

  // The older interface ties an algorithm to its memory.
  gloo::Algorithm& Prepared(float* data, size_t count) {
    if (prepared_ && prepared_data_ == data && prepared_count_ == count) return *prepared_;
    const std::vector<float*> pointers = {data};
    if (algorithm_ == "halving-doubling") {
      prepared_ =
          std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, pointers, int(count));
    } else {
      prepared_ =
          std::make_unique<gloo::AllreduceRingChunked<float>>(context_, pointers, int(count));
    }
    prepared_data_ = data;
    prepared_count_ = count;
    return *prepared_;
  }

  std::string algorithm_;
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<gloo::Algorithm> prepared_;
  float* prepared_data_ = nullptr;
  size_t prepared_count_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return peers::Main(argc, argv, [](const peers::Options& options) { return Gloo(options); });
}
