#!/usr/bin/env python3
"""Trains with parameter servers in processes of their own, and checks how all of them end.

    tests/cluster/parameter_servers.py --bin build/bin
"""
import json
import os
import re
import signal
import subprocess
import tempfile
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

    def check_others_went_on(self, ended, lost):
        """All but the lost worker ended well, and only worker 0 tells of it, once."""
        for name, (code, text) in ended.items():
            if name == lost:
                continue
            self.assertEqual(code, 0, f"{name}: {text}")
            told = text.count(f"worker {lost[1]} (/job:worker/task:{lost[1]}) is lost")
            self.assertEqual(told, 1 if name == ("worker", 0) else 0, f"{name}: {text}")
        self.assertIn("test accuracy", ended["worker", 0][1])

    def test_a_death_touches_nobody_else(self):
        for strategy in ("ps-async", "ps-ssp:2"):
            with self.subTest(strategy=strategy):
                folder = tempfile.TemporaryDirectory(prefix="tutti-ps-")
                self.addCleanup(folder.cleanup)
                path = f"{folder.name}/report.json"
                started = start_all(cluster_of(ps=2, worker=3), strategy, "--max-steps", "1500",
                                    "--log-every", "1", "--report", path)
                early = read_until(started["worker", 0], "^step [0-9]+ ")
                started["worker", 2].send_signal(signal.SIGKILL)
                early += read_until(started["worker", 0], "is lost")
                ended = finish(started)
                ended["worker", 0] = (ended["worker", 0][0], early + ended["worker", 0][1])
                self.check_others_went_on(ended, ("worker", 2))
                self.assertIn("workers lost 1, batches given out again", ended["worker", 0][1])
                with open(path, encoding="utf-8") as file:
                    workers = json.load(file)["by_worker"]
                self.assertEqual([worker["present"] for worker in workers], [True, True, False])
                self.assertEqual(workers[0]["workers lost"], "1")
                self.assertGreater(int(workers[1]["gradients applied"]), 0)

    def test_a_worker_comes_back_by_hand(self):
        for strategy in ("ps-async", "ps-ssp:2"):
            with self.subTest(strategy=strategy):
                cluster = cluster_of(ps=1, worker=3)
                started = start_all(cluster, strategy, "--max-steps", "4000", "--log-every", "1")
                read_until(started["worker", 0], "^step [0-9]+ ")
                dead = started["worker", 1]
                dead.send_signal(signal.SIGKILL)
                read_until(started["worker", 0], "is lost")
                started["worker", 1] = start(cluster, "worker", 1, strategy, "--max-steps", "4000")
                read_until(started["worker", 0], "worker 1 is back")
                ended = finish(started)
                dead.communicate()
                self.check_all_zero(ended)
                again = ended["worker", 1][1]
                step = re.search("worker 1 was started again, and goes on from step ([0-9]+)", again)
                self.assertGreater(int(step.group(1)), 0, again)
                self.assertIn("worker 1: gradients applied", ended["worker", 0][1])

    def test_the_launcher_starts_a_lost_worker_again(self):
        for restarts, line in ((1, "worker 1 is back"), (0, "the others go on without it")):
            with self.subTest(restarts=restarts):
                job = tasks.run("--workers", "3", "--ps", "1", "--restarts", str(restarts), "--",
                                "--strategy", "ps-async", "--max-steps", "4000", "--log-every", "1")
                read_until(job, "step [0-9]+ ")
                os.kill(tasks.pid_of_task(job, "worker", 1), signal.SIGKILL)
                read_until(job, line)
                (code, text), = finish({"job": job}).values()
                self.assertEqual(code, 0, text)
                self.assertIn("test accuracy", text)

    def test_a_backup_worker_that_was_not_admitted_is_left_out(self):
        started = start_all(cluster_of(ps=1, worker=3), "ps-sync:backup=1", "--max-steps", "300",
                            "--log-every", "1")
        read_until(started["worker", 0], "^step 3 ")
        started["worker", 2].send_signal(signal.SIGSTOP)
        try:
            # The first line may have been on its way; the step after it is made without the worker,
            # unless it was stopped between its admission and its push.
            for _ in range(3):
                read_until(started["worker", 0], "^step [0-9]+ ")
        finally:
            started["worker", 2].send_signal(signal.SIGKILL)
        ended = finish(started)
        self.check_others_went_on(ended, ("worker", 2))

    def test_more_losses_than_backups_end_the_job(self):
        started = start_all(cluster_of(ps=1, worker=3), "ps-sync:backup=1", "--max-steps", "1000000",
                            "--log-every", "1")
        read_until(started["worker", 0], "^step 3 ")
        for worker in (1, 2):
            started["worker", worker].send_signal(signal.SIGKILL)
        ended = finish(started)
        code, text = ended["worker", 0]
        self.assertEqual(code, 128, text)
        self.assertRegex(text, r"worker [12] \(/job:worker/task:[12]\) is lost")
        self.assertEqual(ended["ps", 0][0], 128, ended["ps", 0][1])

    def test_a_worker_that_waits_for_its_servers_can_be_stopped(self):
        task = start(cluster_of(ps=1, worker=1), "worker", 0, "ps-async")
        read_until(task, "rank 0 of 1")
        task.send_signal(signal.SIGTERM)
        (code, text), = finish({"task": task}, seconds=30).values()
        self.assertEqual(code, 128 + signal.SIGTERM, text)

    def test_the_start_timeout_counts_once(self):
        began = time.monotonic()
        task = start(cluster_of(ps=1, worker=2), "worker", 0, "ps-async", "--start-timeout", "3")
        (code, text), = finish({"task": task}, seconds=60).values()
        self.assertEqual(code, 128, text)
        self.assertIn("/job:ps/task:0 did not appear within 3 s", text)
        self.assertLess(time.monotonic() - began, 30)

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
