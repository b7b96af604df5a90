#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/train/mirror/feed_channel.h"
#include "tutti/train/run_config.h"

namespace tutti {

// Serves the checkpoints of a training to the evaluator of its cluster if the evaluator does not
// share the model directory. A thread of the chief connects to the evaluator at its address and
// answers its requests; the training never waits for it.
//
//   CheckpointFeed feed(config);   // the training may begin
//   ...
//   feed.Finish();                 // "finished" is written
//
// Does nothing where the cluster has no evaluator or this task does not lead. Thread-safe.
class CheckpointFeed {
 public:
  // `config` has joined. Throws Error when there is no thread.
  explicit CheckpointFeed(const RunConfig& config);
  ~CheckpointFeed();  // ends at once

  // Call it after the training: serves the remaining checkpoints to a connected evaluator, as long
  // as it reads some data every `patience_seconds`. Returns at once if no evaluator is connected.
  void Finish(double patience_seconds = 10);

 private:
  enum class End { kLost, kNeedsNoMore };

  void Work();
  std::shared_ptr<FeedChannel> Connect();
  End Serve(FeedChannel& channel);
  absl::Status Answer(FeedChannel& channel, const FeedFrame& request);
  absl::StatusOr<DirectoryState> Look() const;
  absl::StatusOr<std::vector<FeedFile>> Open(int64_t step);
  absl::StatusOr<std::string> Read(const FeedRead& read);
  void Tell(std::string_view text) const;
  bool Pause(double seconds);  // false: the end was asked for

  const RunConfig& config_;
  std::string path_;       // of the model directory
  std::string evaluator_;  // its address; empty: there is nobody to give anything to

  // Of the thread.
  std::optional<checkpoint::SavedCheckpoint> open_;  // what the evaluator is reading
  std::map<std::string, std::pair<checkpoint::File, int64_t>> files_;  // of it, with their sizes
  std::string told_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<FeedChannel> channel_;  // null: no evaluator is connected
  bool stop_ = false;
  bool finishing_ = false;
  bool over_ = false;  // the thread has ended
  int64_t given_ = 0;  // files opened and parts of them read
  std::thread thread_;
};

}  // namespace tutti
