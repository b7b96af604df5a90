#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/checkpoint/file.h"

namespace tutti::checkpoint {

// "checkpoint-000123" for step 123.
std::string CheckpointName(int64_t step);
// The step of such a name; nothing for other names.
std::optional<int64_t> StepOfName(std::string_view name);
// The steps of the checkpoints in a directory, the newest first. Empty when there is none.
absl::StatusOr<std::vector<int64_t>> ListCheckpoints(FileSystem& files, const std::string& path);

// Which checkpoint was the best so far, by which metric. In the file "best".
struct Best {
  int64_t step = 0;
  std::string metric;
  double value = 0;
};
// DATA_LOSS for a file that no writer writes.
absl::StatusOr<std::optional<Best>> ReadBest(FileSystem& files, const std::string& path);
// By the one process that evaluates: the job itself, or its evaluator.
absl::Status WriteBest(FileSystem& files, const std::string& path, const Best& best);

// That a training has come to its end. In the file "finished", which is there from the last
// checkpoint of a training to the beginning of the next.
struct Finish {
  int64_t step = 0;   // of the last checkpoint
  std::string until;  // how far the training was to go: "200 steps"; "stopped" if a hook ended it
  bool operator==(const Finish&) const = default;
};
absl::StatusOr<std::optional<Finish>> ReadFinish(FileSystem& files, const std::string& path);
// Does a job hold the directory at this moment?
absl::StatusOr<bool> IsHeld(FileSystem& files, const std::string& path);
// Who held it last: the owner and, in a second line, a random number of that job, which no other
// directory has. NOT_FOUND when nobody has.
absl::StatusOr<std::string> HolderOf(FileSystem& files, const std::string& path);

// The directory in which the one job that trains a model keeps its checkpoints:
//
//   checkpoint-000100/   whole: its name is given to it by the last of all calls that make it
//   .tmp-checkpoint-...  one that is being written
//   .deleted-...         one that is being removed
//   best                 ReadBest
//   finished             ReadFinish
//   lock                 held by the job
//
// At every moment, through any crash or loss of power, the newest checkpoint that Publish has
// returned from can be loaded. Not thread-safe.
class ModelDirectory {
 public:
  // Makes the directory if it does not exist, locks it, checks that it can be written to, and
  // removes incomplete files of an earlier job. FAILED_PRECONDITION, naming the `owner` of the
  // other job, if another job holds the lock for more than a second.
  static absl::StatusOr<ModelDirectory> Open(FileSystem& files, const std::string& path,
                                             const std::string& owner);

  const std::string& path() const { return path_; }

  // RESOURCE_EXHAUSTED unless the file system has room for so many bytes.
  absl::Status CheckRoom(int64_t bytes) const;

  // An empty directory to write the checkpoint of a step into.
  absl::StatusOr<std::string> Begin(int64_t step);
  // Makes what was written there the checkpoint of that step, durably. All its files have been
  // synced. One that has the name already is replaced.
  absl::Status Publish(int64_t step);
  // Throws away what was written.
  void Discard(int64_t step);

  // Removes a checkpoint, unless somebody reads it: then false.
  absl::StatusOr<bool> Remove(int64_t step);
  // Removes all but the newest `keep` checkpoints (0: none is removed) and the best one. One that
  // somebody reads stays. Gives back what was removed. A file "best" that is damaged is renamed to
  // "damaged-best" with a warning, and no checkpoint counts as the best one.
  absl::StatusOr<std::vector<int64_t>> Retain(int64_t keep);

  // Renames a checkpoint that cannot be used to "damaged-checkpoint-...". An earlier one of that
  // name is removed.
  absl::Status PutAside(int64_t step);

  // Call RemoveFinish when a training begins, and WriteFinish when its last checkpoint is
  // published.
  absl::Status RemoveFinish();
  absl::Status WriteFinish(const Finish& finish);

 private:
  ModelDirectory(FileSystem& files, std::string path, File lock)
      : files_(&files), path_(std::move(path)), lock_(std::move(lock)) {}
  std::string Inside(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string TemporaryPath(int64_t step) const;
  // Takes its name from a checkpoint, unless somebody reads it: then false.
  absl::StatusOr<bool> SetAside(int64_t step);
  absl::StatusOr<std::optional<Best>> BestOrPutAside();
  absl::Status RemoveLeftovers();
  absl::Status CheckWritable();

  FileSystem* files_;
  std::string path_;
  File lock_;
};

}  // namespace tutti::checkpoint
