#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tutti/testing/checkpoint/test_file_system.h"

namespace tutti::testing {

// What a disk may hold after a loss of power. Files and directories keep what was synced. Of what
// was done to them since, each write and each change of a name may be there or not, in any
// combination, and a write may be there in part. That is weaker than what any journaling file
// system promises.
//
//   CrashModel model(folder);                  // as it lies there, all of it durable
//   for (const FileCall& call : calls) { model.Apply(call); model.Crash(other_folder, random, 0.5);
//   }
class CrashModel {
 public:
  explicit CrashModel(const std::string& root);

  void Apply(const FileCall& call);

  // Writes one state that may be found after a crash now into the empty directory `target`. Every
  // unsynced change is kept with the given probability.
  void Crash(const std::string& target, std::mt19937& random, double keep) const;

  // How many changes are not synced.
  size_t unsynced() const;

 private:
  struct Inode;
  using InodeRef = std::shared_ptr<Inode>;
  struct NameChange {
    std::vector<std::string> remove;
    std::map<std::string, InodeRef> add;
  };
  struct DataChange {
    FileCall::Kind kind = FileCall::kWrite;  // kWrite, kAllocate or kTruncate
    int64_t offset = 0;                      // or the size
    std::string data;
  };
  struct Inode {
    bool directory = false;
    // What the running system sees, what the disk surely has, and what happened since.
    std::map<std::string, InodeRef> names, synced_names;
    std::vector<NameChange> name_changes;
    std::string synced_data;
    std::vector<DataChange> data_changes;
  };

  static void Load(const std::string& path, Inode& inode);
  InodeRef Find(const std::string& path) const;
  InodeRef ParentOf(const std::string& path, std::string* name) const;
  static void Change(Inode& directory, NameChange change);
  static void Change(std::string& file, const DataChange& change, size_t kept_bytes);
  static void Write(const Inode& inode, const std::string& target, std::mt19937& random,
                    double keep);
  static size_t CountUnsynced(const Inode& inode);

  const std::string root_;
  InodeRef tree_;
};

}  // namespace tutti::testing
