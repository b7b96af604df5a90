#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/graph/input.h"

// Queues of tensors between steps. A queue lives on its device, under its name, and is shared by
// all sessions that use the device; its nodes find it by their first input, which must be what
// FIFOQueue or RandomShuffleQueue returned. An element of a queue is a fixed list of components,
// each a tensor.
//
// Enqueue waits while the queue is full, Dequeue while there is nothing to take; neither occupies a
// core meanwhile, waiters are served in the order in which they came, and a step that is cancelled
// or runs into its timeout leaves the queue as if its node had never waited.
namespace tutti {

// What an element consists of: the type of each component. The dimensions of one component may be
// partly unknown; then its elements may differ, and DequeueMany needs equal ones.
using QueueComponents = std::vector<ValueType>;

struct QueueOptions {
  int64_t capacity = 32;       // in elements
  std::string container = {};  // empty: that of the ContainerScope
};

// First in, first out.
Output FIFOQueue(Graph& graph, const QueueComponents& components, const QueueOptions& options = {},
                 std::string_view name = "",
                 std::source_location where = std::source_location::current());

struct ShuffleQueueOptions {
  int64_t capacity = 1024;
  // Until the queue is closed, taking leaves at least this many elements to choose from.
  int64_t min_after_dequeue = 512;
  int64_t seed = 0;  // the same seed and the same order of operations give the same elements
  std::string container = {};  // empty: that of the ContainerScope
};

// Takes a random element.
Output RandomShuffleQueue(Graph& graph, const QueueComponents& components,
                          const ShuffleQueueOptions& options = {}, std::string_view name = "",
                          std::source_location where = std::source_location::current());

// Puts one element in, one tensor for each component. A closed queue gives CANCELLED.
Node* Enqueue(Input queue, const std::vector<Output>& components, std::string_view name = "");

// Enqueues the rows of each component as elements, in order. If the step is cancelled while some
// rows wait for room, those already enqueued stay in the queue.
Node* EnqueueMany(Input queue, const std::vector<Output>& components, std::string_view name = "");

// Takes one element: one output for each component. A queue that is closed and empty gives
// OUT_OF_RANGE.
std::vector<Output> Dequeue(Input queue, std::string_view name = "");

// Takes `count` elements (an integer scalar), packed along a new first dimension. When the queue is
// closed and fewer are left it gives OUT_OF_RANGE and takes none.
std::vector<Output> DequeueMany(Input queue, Input count, std::string_view name = "");

// How many elements are in the queue: an int64 scalar.
Output QueueSize(Input queue, std::string_view name = "");

struct QueueCloseOptions {
  bool cancel_pending = false;  // also end the Enqueues that wait for room, with CANCELLED
};
// Closes the queue: no further element can be enqueued. Elements in the queue, and those of an
// Enqueue that already waits for room, can still be dequeued. Closing a closed queue does nothing.
Node* QueueClose(Input queue, const QueueCloseOptions& options = {}, std::string_view name = "");

}  // namespace tutti
