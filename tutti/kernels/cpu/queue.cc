// The nodes of queues. What is put into a queue is copied: the tensors of a step lie in planned
// memory that the next step uses again. What is taken is handed on without a copy.
#include <cstring>

#include "tutti/device/device.h"
#include "tutti/graph/ops/queue_type.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/waiting/queue_resource.h"
#include "tutti/kernels/waiting/resource_access.h"

namespace tutti {
namespace {

absl::StatusOr<std::shared_ptr<QueueResource>> QueueOf(const Node& queue, Device& device) {
  QueueResource::Config config{.name = queue.name(), .kind = queue.op()};
  TUTTI_ASSIGN_OR_RETURN(config.components, QueueComponentsOf(queue));
  config.capacity = queue.attr<int64_t>("capacity");
  if (queue.op() == "RandomShuffleQueue") {
    config.min_after_dequeue = queue.attr<int64_t>("min_after_dequeue");
    config.seed = queue.attr<int64_t>("seed");
  }
  return FindResource<QueueResource>(queue, device, config);
}

absl::StatusOr<Tensor> CopyOf(const Tensor& value, Device& device) {
  TUTTI_ASSIGN_OR_RETURN(Tensor copy, device.pool().Allocate(value.dtype(), value.shape()));
  if (value.bytes() > 0) std::memcpy(copy.raw(), value.raw(), value.bytes());
  return copy;
}

class QueueNodeKernel : public AsyncKernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(queue_, QueueOf(*c.node().input(0).node, c.device()));
    return absl::OkStatus();
  }
  std::string Awaited(const KernelContext&) const override { return queue_->Describe(); }

 protected:
  // INVALID_ARGUMENT unless `shape` is what the queue declares of component i.
  absl::Status CheckComponent(int i, const Shape& shape) const {
    const Shape& declared = queue_->config().components[i].shape;
    if (shape.CompatibleWith(declared)) return absl::OkStatus();
    return InvalidArgument("component {} of an element is {}; queue \"{}\" declares {}", i,
                           shape.ToString(), queue_->config().name, declared.ToString());
  }

  std::shared_ptr<QueueResource> queue_;
};

class PutKernel : public QueueNodeKernel {
 public:
  void Start(KernelContext& c) override {
    auto put = std::make_shared<QueuePut>(c);
    if (absl::Status status = Collect(c, put->elements); !status.ok()) {
      return FinishNode(c, std::move(status));
    }
    queue_->Put(put);
  }

 private:
  // The elements that the inputs hold.
  virtual absl::Status Collect(KernelContext& c, std::vector<QueueElement>& elements) const = 0;
};

class EnqueueKernel final : public PutKernel {
  absl::Status Collect(KernelContext& c, std::vector<QueueElement>& elements) const override {
    QueueElement element;
    for (int i = 1; i < c.num_inputs(); ++i) {
      TUTTI_RETURN_IF_ERROR(CheckComponent(i - 1, c.input(i).shape()));
      TUTTI_ASSIGN_OR_RETURN(Tensor copy, CopyOf(c.input(i), c.device()));
      element.push_back(std::move(copy));
    }
    elements.push_back(std::move(element));
    return absl::OkStatus();
  }
};

class EnqueueManyKernel final : public PutKernel {
  absl::Status Collect(KernelContext& c, std::vector<QueueElement>& elements) const override {
    for (int i = 1; i < c.num_inputs(); ++i) {
      const Shape& shape = c.input(i).shape();
      if (shape.rank() < 1) {
        return InvalidArgument("component {} is a scalar; expected rows of elements", i - 1);
      }
      if (shape.dim(0) != c.input(1).shape().dim(0)) {
        return InvalidArgument("component {} holds {} elements, component 0 holds {}", i - 1,
                               shape.dim(0), c.input(1).shape().dim(0));
      }
      TUTTI_RETURN_IF_ERROR(CheckComponent(i - 1, shape.WithoutDim(0)));
    }
    const int64_t rows = c.input(1).shape().dim(0);
    elements.resize(size_t(rows));
    for (int64_t row = 0; row < rows; ++row) {
      for (int i = 1; i < c.num_inputs(); ++i) {
        const Tensor slice = c.input(i).Rows(row, row + 1);
        TUTTI_ASSIGN_OR_RETURN(Tensor copy,
                               CopyOf(slice.Reshape(slice.shape().WithoutDim(0)), c.device()));
        elements[row].push_back(std::move(copy));
      }
    }
    return absl::OkStatus();
  }
};

class DequeueKernel final : public QueueNodeKernel {
 public:
  void Start(KernelContext& c) override { queue_->Take(std::make_shared<QueueTake>(c, 1, false)); }
};

class DequeueManyKernel final : public QueueNodeKernel {
 public:
  void Start(KernelContext& c) override {
    const auto count = IntegerScalar(c.input(1), "count");
    if (!count.ok()) return FinishNode(c, count.status());
    if (*count < 0) {
      return FinishNode(c, InvalidArgument("count is {}; expected 0 or more", *count));
    }
    queue_->Take(std::make_shared<QueueTake>(c, *count, true));
  }
};

class QueueSizeKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(queue_, QueueOf(*c.node().input(0).node, c.device()));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    *c.output(0).data<int64_t>() = queue_->size();
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<QueueResource> queue_;
};

class QueueCloseKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(queue_, QueueOf(*c.node().input(0).node, c.device()));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    queue_->Close(c.node->attr<bool>("cancel_pending"));
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<QueueResource> queue_;
};

}  // namespace

void RegisterQueueCpuKernels(KernelRegistry& registry) {
  AddResourceNodeKernel(registry, "FIFOQueue");
  AddResourceNodeKernel(registry, "RandomShuffleQueue");
  AddKernel<EnqueueKernel>(registry, "Enqueue", "cpu");
  AddKernel<EnqueueManyKernel>(registry, "EnqueueMany", "cpu");
  AddKernel<DequeueKernel>(registry, "Dequeue", "cpu");
  AddKernel<DequeueManyKernel>(registry, "DequeueMany", "cpu");
  AddKernel<QueueSizeKernel>(registry, "QueueSize", "cpu");
  AddKernel<QueueCloseKernel>(registry, "QueueClose", "cpu");
}

}  // namespace tutti
