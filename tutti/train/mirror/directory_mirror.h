#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tutti/checkpoint/model_directory.h"
#include "tutti/net/port/port.h"
#include "tutti/train/mirror/feed_channel.h"
#include "tutti/train/run_config.h"

namespace tutti {

// Mirrors the chief's model directory into the evaluator's RunConfig::model_dir if the two are not
// one directory: fetches new checkpoints (checkpoint_feed.h), removes old ones by RunConfig::keep,
// and writes "finished" at the end. Readers see the same as if the training wrote there: the
// directory is locked while a training runs. Does nothing if the directory is shared. Thread-safe.
class DirectoryMirror {
 public:
  // Listens at the evaluator's address in the cluster. Null if it has no address there, or cannot
  // listen, which is logged but is no error because the disk may be shared. `config` outlives this.
  static std::unique_ptr<DirectoryMirror> Start(const RunConfig& config);
  ~DirectoryMirror();

  // Why fetching has ended for good: this directory cannot be written to.
  absl::Status status() const;

 private:
  explicit DirectoryMirror(const RunConfig& config) : config_(config) {}
  absl::Status Listen();
  void Work();
  absl::Status Follow(FeedChannel& channel);
  absl::StatusOr<bool> IsShared(const DirectoryState& state) const;
  // False: some of it is being read.
  absl::StatusOr<bool> RemoveStale(FeedChannel& channel, const DirectoryState& state);
  absl::Status Update(FeedChannel& channel, const DirectoryState& state);
  absl::Status Fetch(FeedChannel& channel, int64_t step);
  void Tell(std::string_view text) const;

  const RunConfig& config_;
  // Of the thread.
  std::optional<checkpoint::ModelDirectory> directory_;  // while a chief is connected
  bool clean_ = false;  // nothing of an earlier training is left there

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<FeedChannel> next_, current_;
  bool stop_ = false;
  absl::Status status_;
  std::unique_ptr<net::Port> port_;
  std::thread thread_;
};

}  // namespace tutti
