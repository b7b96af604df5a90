// All-reduce of oneCCL on host memory. MPI, which is Intel's, only starts the ranks and tells them
// rank 0's address.
#include <mpi.h>

#include <oneapi/ccl.hpp>

#include "benchmarks/peers/collective_peer.h"

namespace {

ccl::shared_ptr_class<ccl::kvs> MakeStore(int rank) {
  ccl::kvs::address_type address;
  ccl::shared_ptr_class<ccl::kvs> store;
  if (rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  MPI_Bcast(address.data(), int(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  return rank == 0 ? store : ccl::create_kvs(address);
}

class OneCcl {
 public:
  OneCcl()
      : communicator_(
            ccl::create_communicator(Start().second, Start().first, MakeStore(Start().first))) {}
  OneCcl(const OneCcl&) = delete;
  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  void Barrier() { ccl::barrier(communicator_); }
  void AllReduce(const float* from, float* to, size_t count) {
    ccl::allreduce(from, to, count, ccl::reduction::sum, communicator_).wait();
  }
  void MaxOverRanks(double* values, size_t count) {
    ccl::allreduce(values, values, count, ccl::reduction::max, communicator_).wait();
  }

 private:
  // Rank and size.
  static std::pair<int, int> Start() {
    static const std::pair<int, int> place = [] {
      ccl::init();
      int rank, size;
      MPI_Init(nullptr, nullptr);
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      MPI_Comm_size(MPI_COMM_WORLD, &size);
      return std::pair(rank, size);
    }();
    return place;
  }
  ccl::communicator communicator_;
};

}  // namespace

int main(int argc, char** argv) {
  const int code = peers::Main(argc, argv, [](const peers::Options&) { return OneCcl(); });
  MPI_Finalize();
  return code;
}
