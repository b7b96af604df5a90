#include "tutti/runtime/collectives.h"

namespace tutti {
namespace {

class RegisteredBuffer final : public Buffer {
 public:
  RegisteredBuffer(std::shared_ptr<collective::Communicator> communicator,
                   std::unique_ptr<net::RegisteredMemory> memory)
      : Buffer(memory->bytes().data(), memory->bytes().size()),
        communicator_(std::move(communicator)),
        memory_(std::move(memory)) {}

 private:
  const std::shared_ptr<collective::Communicator> communicator_;  // outlives its memory
  const std::unique_ptr<net::RegisteredMemory> memory_;
};

class RegisteredAllocator final : public Allocator {
 public:
  explicit RegisteredAllocator(std::shared_ptr<collective::Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  std::string_view kind() const override { return kRegisteredMemory; }
  BufferRef Allocate(size_t bytes) override {
    auto memory = communicator_->Allocate(bytes);
    if (!memory.ok()) return BufferRef();
    return BufferRef(new RegisteredBuffer(communicator_, *std::move(memory)));
  }

 private:
  const std::shared_ptr<collective::Communicator> communicator_;
};

}  // namespace

absl::StatusOr<collective::Group*> Collectives::FindGroup(std::string_view name) {
  if (name.empty()) return &communicator_->world();
  std::lock_guard lock(mutex_);
  if (const auto found = groups_.find(name); found != groups_.end()) return found->second.get();
  std::string names = "\"\" (all ranks)";
  for (const auto& [known, group] : groups_) names += ", \"" + known + "\"";
  return NotFound("there is no group \"{}\"; there are {}", name, names);
}

void Collectives::AddGroup(std::unique_ptr<collective::Group> group) {
  std::lock_guard lock(mutex_);
  std::string name(group->name());
  groups_[std::move(name)] = std::move(group);
}

std::unique_ptr<Allocator> Collectives::MakeAllocator() {
  return std::make_unique<RegisteredAllocator>(communicator_);
}

}  // namespace tutti
