#!/usr/bin/env python3
"""Trains with parameter servers in processes of their own, and checks how all of them end.

    tests/cluster/parameter_servers.py --bin build/bin
"""
import re
import signal
import subprocess
import time
import unittest

import tasks
from tasks import cluster_of


def start(cluster, job, index, strategy, *flags, **others):
    return tasks.start(cluster, job, index, "--strategy", strategy, "--max-steps", "60",
                       "--batch-size", "32", "--start-timeout", "60", *flags, **others)


def start_all(cluster, strategy, *flags):
    return {(job, i): start(cluster, job, i, strategy, *flags)
            for job, addresses in cluster.items() for i in range(len(addresses))}


def finish(started, seconds=240):
    deadline = time.monotonic() + seconds
    ended = {}
    for name, task in started.items():
        try:
            text, _ = task.communicate(timeout=max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            task.kill()
            text, _ = task.communicate()
            text += "\n(killed by the test: it did not end)"
        ended[name] = (task.returncode, text)
    return ended


def read_until(task, pattern):
    """Reads the task's output to the first line with the pattern."""
    for line in task.stdout:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"the task ended without a line like {pattern}")


class ParameterServers(unittest.TestCase):
    def check_all_zero(self, ended):
        for name, (code, text) in ended.items():
            self.assertEqual(code, 0, f"{name}: {text}")

    def accuracy(self, text):
        return float(re.search(r"test accuracy ([0-9.]+)%", text).group(1))

    def test_every_strategy_trains_and_every_task_ends(self):
        for strategy in ("ps-sync", "ps-sync:backup=1", "ps-async", "ps-ssp:2"):
            with self.subTest(strategy=strategy):
                ended = finish(start_all(cluster_of(ps=2, worker=2), strategy))
                self.check_all_zero(ended)
                chief = ended["worker", 0][1]
                self.assertGreater(self.accuracy(chief), 50, chief)
                self.assertIn("worker 1: gradients ", chief)

    def test_synchronous_is_the_same_twice_and_on_any_number_of_servers(self):
        texts = []
        for servers in (1, 1, 2):
            ended = finish(start_all(cluster_of(ps=servers, worker=2), "ps-sync"))
            self.check_all_zero(ended)
            texts.append(re.search("test accuracy .*", ended["worker", 0][1]).group(0))
        self.assertEqual(len(set(texts)), 1, texts)

    def test_a_cluster_without_servers_is_refused(self):
        for strategy in ("ps-sync", "ps-async", "ps-ssp:1"):
            ended = finish(start_all(cluster_of(worker=1), strategy))
            code, text = ended["worker", 0]
            self.assertEqual(code, 1, text)
            self.assertIn("keeps its variables on tasks of job ps, and the cluster has none", text)

    def test_too_many_backups_are_refused(self):
        ended = finish(start_all(cluster_of(worker=2), "ps-sync:backup=2"))
        for code, text in ended.values():
            self.assertEqual(code, 1, text)
            self.assertIn("there are 2 workers; expected 0 to 1", text)

    def test_a_killed_worker_is_named_by_all(self):
        started = start_all(cluster_of(ps=1, worker=2), "ps-sync", "--max-steps", "1000000",
                            "--log-every", "1")
        read_until(started["worker", 0], "^step 3 ")
        started["worker", 1].send_signal(signal.SIGKILL)
        ended = finish(started)
        self.assertEqual(ended["worker", 0][0], 128, ended["worker", 0][1])
        self.assertIn("worker 1 (/job:worker/task:1) is lost", ended["worker", 0][1])
        self.assertEqual(ended["ps", 0][0], 128, ended["ps", 0][1])

    def test_a_killed_server_is_named_by_all(self):
        started = start_all(cluster_of(ps=2, worker=2), "ps-async", "--max-steps", "1000000",
                            "--log-every", "1")
        read_until(started["worker", 0], "^step [0-9]+ ")
        started["ps", 1].send_signal(signal.SIGKILL)
        ended = finish(started)
        for worker in (0, 1):
            code, text = ended["worker", worker]
            self.assertEqual(code, 128, text)
            self.assertIn("/job:ps/task:1", text)


if __name__ == "__main__":
    tasks.main(__doc__)
