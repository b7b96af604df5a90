#include "tutti/testing/checkpoint/crash_model.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tutti/base/check.h"

namespace tutti::testing {
namespace fs = std::filesystem;

namespace {

void Put(std::string& file, size_t offset, std::string_view data) {
  if (file.size() < offset + data.size()) file.resize(offset + data.size(), '\0');
  file.replace(offset, data.size(), data);
}

bool Chance(std::mt19937& random, double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random) < probability;
}

}  // namespace

CrashModel::CrashModel(const std::string& root) : root_(root), tree_(std::make_shared<Inode>()) {
  tree_->directory = true;
  Load(root, *tree_);
}

void CrashModel::Load(const std::string& path, Inode& inode) {
  for (const auto& entry : fs::directory_iterator(path)) {
    auto child = std::make_shared<Inode>();
    child->directory = entry.is_directory();
    if (child->directory) {
      Load(entry.path(), *child);
    } else {
      std::ifstream file(entry.path(), std::ios::binary);
      std::stringstream text;
      text << file.rdbuf();
      child->synced_data = text.str();
    }
    inode.names[entry.path().filename()] = child;
  }
  inode.synced_names = inode.names;
}

CrashModel::InodeRef CrashModel::Find(const std::string& path) const {
  TUTTI_CHECK(path.starts_with(root_));
  InodeRef at = tree_;
  for (const fs::path& part : fs::path(path.substr(root_.size())).relative_path()) {
    at = at->names.at(part);
  }
  return at;
}

CrashModel::InodeRef CrashModel::ParentOf(const std::string& path, std::string* name) const {
  const fs::path whole = path;
  *name = whole.filename();
  return Find(whole.parent_path());
}

void CrashModel::Change(Inode& directory, NameChange change) {
  for (const std::string& name : change.remove) directory.names.erase(name);
  for (const auto& [name, inode] : change.add) directory.names[name] = inode;
  directory.name_changes.push_back(std::move(change));
}

void CrashModel::Change(std::string& file, const DataChange& change, size_t kept_bytes) {
  const auto at = size_t(change.offset);
  switch (change.kind) {
    case FileCall::kAllocate:
      if (file.size() < at) file.resize(at, '\0');
      return;
    case FileCall::kTruncate:
      file.resize(at, '\0');
      return;
    default:
      Put(file, at, std::string_view(change.data).substr(0, kept_bytes));
  }
}

void CrashModel::Apply(const FileCall& call) {
  std::string name, other;
  switch (call.kind) {
    case FileCall::kMakeDirectory:
    case FileCall::kCreate: {
      auto made = std::make_shared<Inode>();
      made->directory = call.kind == FileCall::kMakeDirectory;
      const InodeRef parent = ParentOf(call.path, &name);
      Change(*parent, {{}, {{name, made}}});
      return;
    }
    case FileCall::kWrite:
    case FileCall::kAllocate:
    case FileCall::kTruncate:
      Find(call.path)->data_changes.push_back({call.kind, call.offset, call.data});
      return;
    case FileCall::kSync: {
      Inode& inode = *Find(call.path);
      inode.synced_names = inode.names;
      inode.name_changes.clear();
      for (const DataChange& change : inode.data_changes) {
        Change(inode.synced_data, change, change.data.size());
      }
      inode.data_changes.clear();
      return;
    }
    case FileCall::kRename:
    case FileCall::kExchange: {
      const InodeRef parent = ParentOf(call.path, &name), target = ParentOf(call.other, &other);
      NameChange change = {{name}, {{other, parent->names.at(name)}}};
      if (parent == target) {
        if (call.kind == FileCall::kExchange) change.add[name] = parent->names.at(other);
        return Change(*parent, std::move(change));
      }
      // Between directories: each may be on the disk without the other.
      TUTTI_CHECK(call.kind == FileCall::kRename);
      Change(*target, {{}, change.add});
      Change(*parent, {change.remove, {}});
      return;
    }
    case FileCall::kRemove: {
      const InodeRef parent = ParentOf(call.path, &name);
      Change(*parent, {{name}, {}});
      return;
    }
  }
}

void CrashModel::Write(const Inode& inode, const std::string& target, std::mt19937& random,
                       double keep) {
  if (inode.directory) {
    fs::create_directory(target);
    auto names = inode.synced_names;
    for (const NameChange& change : inode.name_changes) {
      if (!Chance(random, keep)) continue;
      for (const std::string& name : change.remove) names.erase(name);
      for (const auto& [name, child] : change.add) names[name] = child;
    }
    for (const auto& [name, child] : names) Write(*child, target + "/" + name, random, keep);
    return;
  }
  std::string data = inode.synced_data;
  for (const DataChange& change : inode.data_changes) {
    if (!Chance(random, keep)) continue;
    // A third of the writes that are kept are torn.
    const bool torn = keep < 1 && Chance(random, 1.0 / 3);
    const size_t size = torn ? random() % (change.data.size() + 1) : change.data.size();
    Change(data, change, size);
  }
  std::ofstream(target, std::ios::binary) << data;
}

void CrashModel::Crash(const std::string& target, std::mt19937& random, double keep) const {
  Write(*tree_, target, random, keep);
}

size_t CrashModel::CountUnsynced(const Inode& inode) {
  size_t count = inode.name_changes.size() + inode.data_changes.size();
  for (const auto& [name, child] : inode.names) count += CountUnsynced(*child);
  return count;
}

size_t CrashModel::unsynced() const { return CountUnsynced(*tree_); }

}  // namespace tutti::testing
