#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tutti/train/learning_rate.h"
#include "tutti/train/strategy.h"

namespace tutti {

namespace collective {
class Communicator;
}

// How a program is to be run: what its flags and the launch environment said. Main makes it; a
// program may change defaults beforehand (MainOptions::defaults).
struct RunConfig {
  int64_t max_steps = 1000;          // --max-steps: updates to make, over all workers
  int64_t batch_size = 64;           // --batch-size: samples a worker takes for an update
  double learning_rate = 1e-3;       // --learning-rate
  int64_t seed = 1;                  // --seed: fixes initial values, the order of samples, dropout
  int64_t log_every = 0;             // --log-every: steps between lines of the log; 0: every 10 s
  std::string strategy = "local";    // --strategy
  std::string algorithm = "auto";    // --algorithm, of all-reduce
  std::string wire = "as-is";        // --wire: how gradients travel
  bool scale_learning_rate = false;  // --scale-learning-rate: times the number of workers
  int64_t warmup_steps = 0;          // --warmup-steps: of the learning rate
  double start_timeout = 60;         // --start-timeout: seconds for all workers to appear
  std::string report;                // --report: what a training took, as JSON
  std::string trace;                 // --trace: a Chrome trace of all workers

  // Set by Main.
  std::string program;                                               // its file name
  std::string role = "local";                                        // "/job:worker/task:1"
  std::string job = "local";                                         // "worker"
  int task = 0;                                                      // 1
  std::shared_ptr<collective::Communicator> communicator = nullptr;  // null: alone
  std::shared_ptr<const Strategy> strategy_object = nullptr;

  int workers() const { return strategy_object == nullptr ? 1 : strategy_object->workers(); }
  int rank() const { return strategy_object == nullptr ? 0 : strategy_object->rank(); }
  // `rate` as the flags want it: times the number of workers, and warmed up.
  LearningRate Adjusted(const LearningRate& rate) const;
  bool leads() const { return rank() == 0; }  // prints, writes files
};

}  // namespace tutti
