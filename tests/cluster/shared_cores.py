#!/usr/bin/env python3
"""Starts two workers on this host as any launcher would, and looks at the cores they run on.

    tests/cluster/shared_cores.py --bin build/bin
"""
import contextlib
import os
import time
import unittest

import tasks

CORES = sorted(os.sched_getaffinity(0))
TOLD = "2 workers share the "


def start_two(cores_of_first, cores_of_second, *flags):
    cluster = tasks.cluster_of(worker=2)
    return [tasks.start(cluster, "worker", i, *flags, cores=cores)
            for i, cores in enumerate([cores_of_first, cores_of_second])]


def cores_of(pid):
    """All cores that any thread of the process may use."""
    cores = set()
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            cores |= os.sched_getaffinity(int(thread))
    return cores


def wait_for_cores(workers, accepted, seconds=60):
    """Looks at the workers' cores until they are accepted, and returns what was seen last."""
    deadline = time.monotonic() + seconds
    seen = []
    while time.monotonic() < deadline and all(worker.poll() is None for worker in workers):
        seen = [cores_of(worker.pid) for worker in workers]
        if accepted(*seen):
            break
        time.sleep(0.01)
    return seen


class SharedCores(unittest.TestCase):
    def end(self, workers):
        for worker in workers:
            worker.kill()
        return [worker.communicate()[0] for worker in workers]

    @unittest.skipIf(len(CORES) < 2, "one core cannot be divided")
    def test_workers_that_nobody_pinned_divide_the_cores(self):
        workers = start_two(CORES, CORES, "--max-steps", "100000000")
        seen = wait_for_cores(workers, lambda a, b: a.isdisjoint(b))
        texts = self.end(workers)
        self.assertTrue(seen and seen[0].isdisjoint(seen[1]), f"{seen}\n{texts}")
        self.assertEqual(set(CORES), seen[0] | seen[1])
        self.assertIn(TOLD + f"{len(CORES)} cores of this host: ", texts[0])
        self.assertNotIn(TOLD, texts[1])

    @unittest.skipIf(len(CORES) < 2, "needs two cores")
    def test_cores_that_a_launcher_chose_are_kept(self):
        workers = start_two(CORES[:1], CORES[1:2], "--max-steps", "20")
        texts = [worker.communicate(timeout=120)[0] for worker in workers]
        for worker, text in zip(workers, texts):
            self.assertEqual(worker.returncode, 0, text)
            self.assertNotIn(TOLD, text)

    def test_on_one_core_they_take_turns(self):
        workers = start_two(CORES[:1], CORES[:1], "--max-steps", "20")
        texts = [worker.communicate(timeout=120)[0] for worker in workers]
        for worker, text in zip(workers, texts):
            self.assertEqual(worker.returncode, 0, text)


if __name__ == "__main__":
    tasks.main(__doc__)
