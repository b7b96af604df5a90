#pragma once

#include <cstdint>
#include <type_traits>

namespace tutti {

// The cores of one lane: the thread that runs a step and its helpers. A Team of one core runs
// everything on the calling thread and never touches OpenMP. A larger one uses an OpenMP team, the
// same that oneDNN runs on, so that two pools never fight for the cores. A Team holds no threads:
// it is a number and is copied.
class Team {
 public:
  explicit Team(int cores = 1) : cores_(cores < 1 ? 1 : cores) {}
  int cores() const { return cores_; }

  // Calls body(begin, end) over disjoint ranges that cover [0, count). Ranges have at least `grain`
  // elements (but the last), so small work stays on one core. Which range runs on which core is
  // fixed by count, grain and cores() alone. The body must not throw.
  template <typename Body>
  void ParallelFor(int64_t count, int64_t grain, const Body& body) const {
    if (count <= 0) return;
    if (cores_ == 1 || count <= grain) {
      body(int64_t{0}, count);
      return;
    }
    Split(
        count, grain,
        [](const void* opaque, int64_t begin, int64_t end) {
          (*static_cast<const Body*>(opaque))(begin, end);
        },
        &body);
  }

 private:
  using RangeFunction = void (*)(const void* body, int64_t begin, int64_t end);
  void Split(int64_t count, int64_t grain, RangeFunction function, const void* body) const;

  int cores_;
};

// While it lives, oneDNN calls of this thread use the cores of `team`. Made at the start of a step.
class TeamScope {
 public:
  explicit TeamScope(const Team& team);
  ~TeamScope();
  TeamScope(const TeamScope&) = delete;
  TeamScope& operator=(const TeamScope&) = delete;

 private:
  int previous_;
};

}  // namespace tutti
