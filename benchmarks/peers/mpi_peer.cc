// All-reduce and broadcast of an MPI: Open MPI, MPICH or Intel MPI, by the compiler wrapper it is
// built with.
#include <mpi.h>

#include "benchmarks/peers/collective_peer.h"

namespace {

class Mpi {
 public:
  Mpi() {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  Mpi(const Mpi&) = delete;
  ~Mpi() { MPI_Finalize(); }
  int rank() const { return rank_; }
  int size() const { return size_; }
  void Barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void AllReduce(const float* from, float* to, size_t count) {
    MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, int(count), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }
  void Broadcast(float* data, size_t count) {
    MPI_Bcast(data, int(count), MPI_FLOAT, 0, MPI_COMM_WORLD);
  }
  void MaxOverRanks(double* values, size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, values, int(count), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  }

 private:
  int rank_ = 0, size_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  return peers::Main(argc, argv, [](const peers::Options&) { return Mpi(); });
}
