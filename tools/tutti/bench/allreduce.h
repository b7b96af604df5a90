#pragma once

#include <cstdint>
#include <string>
#include <vector>

// `tutti bench allreduce`: how long an all-reduce takes between processes.
namespace tutti::tools {

struct AllReduceBench {
  std::vector<int> ranks = {2};
  std::vector<std::string> bytes = {"4", "1K", "64K", "256K", "1M", "4M", "16M", "64M", "256M"};
  std::vector<std::string> transports = {"shm"};
  bool broadcast = false;  // from rank 0, instead of an all-reduce
  std::string algorithm = "auto";
  std::string memory = "registered";
  std::string reduction = "sum";
  std::string wire = "as-is";
  int busy = 0;          // processes that compute all the time beside the ranks, on the same cores
  double seconds = 0.2;  // of timed calls for each size, about
  bool json = false;
  bool explain = false;  // print why the algorithm was chosen, as text on stderr

  // One rank of a job; negative: all of them are started.
  int rank = -1;
  int size = 0;
  std::string address;  // one of the two
  std::string file;
  int parent = 0;  // the process that started it, and with which it ends; 0: any
};

// Starts `program` once for each rank, job after job: every transport with every number of ranks.
// Throws Error, with the first rank that failed, for a mistake in an option before anything is
// started. SIGINT, SIGTERM and SIGHUP end the ranks, and are an Error of code kCancelled.
void BenchAllReduce(const AllReduceBench& bench, const std::string& program);

// Is one rank. For each size: some calls to warm up, then timed calls. Before each of them every
// rank writes its data anew and waits in a barrier, and after it checks its result; neither is
// timed. The slowest rank's time of a call counts; rank 0 prints the median of the calls, and for
// sizes up to 4 KB also the time of one of many calls back to back, which holds the writing. A line
// has the fields of every figure and besides, for programs: bytes, ranks, us, calls,
// back_to_back_us, algorithm.
void AllReduceRank(const AllReduceBench& bench);

}  // namespace tutti::tools
