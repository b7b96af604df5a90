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
import urllib.request

import bare_cluster
import tasks
from tasks import cluster_of

# A worker of ps-sync:backup=K need not make every step.
AFTER_SOME_STEPS = "^step ([3-9]|[0-9]{2,}) "


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

    def test_a_variable_that_does_not_fit_a_server_is_refused(self):
        ended = finish(start_all(cluster_of(ps=2, worker=2), "ps-async", "--ps-memory", "100KB"))
        code, text = ended["worker", 0]
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r'of variable "dense/weights" \[784, [0-9]+\] \(whole\) needs [0-9.]+ KB on ps 1 '
                               r"\(/job:ps/task:1/cpu:0\), which holds 0 B already; --ps-memory is 100 KB")
        self.assertNotIn("step 1", text)
        for name, (code, text) in ended.items():
            self.assertNotEqual(code, 0, f"{name}: {text}")
        code, text = finish({"": start({"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}, "worker", 0, "ps-async",
                                       "--ps-memory", "much")})[""]
        self.assertEqual(code, 1, text)
        self.assertIn('--ps-memory is "much"; expected a number of bytes, as 512MiB', text)

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

    def report_of(self, strategy, *flags):
        """The report of a training with 2 workers and 2 servers."""
        with tempfile.TemporaryDirectory(prefix="tutti-ps-") as folder:
            path = f"{folder}/report.json"
            ended = finish(start_all(cluster_of(ps=2, worker=2), strategy, "--report", path, *flags))
            self.check_all_zero(ended)
            with open(path, encoding="utf-8") as file:
                return json.load(file), ended["worker", 0][1]

    def test_the_report_tells_what_travelled_and_what_servers_did(self):
        for strategy, steps in (("ps-async", 60), ("ps-sync", 120)):
            with self.subTest(strategy=strategy):
                report, text = self.report_of(strategy)
                self.assertRegex(text, r"server +busy +requests +received +sent +lock waits +cloned")
                workers, servers = report["by_worker"], report["by_server"]
                self.assertEqual([server["task"] for server in servers], ["/job:ps/task:0", "/job:ps/task:1"])
                # Of both workers together; in step each makes every one.
                self.assertEqual(sum(worker["steps"] for worker in workers), steps)
                self.assertEqual(report["steps"], 60)
                for server in servers:
                    self.assertGreater(server["busy"], 0)
                    self.assertGreaterEqual(server["requests"], 60)
                    self.assertGreaterEqual(server["lock_seconds"], 0)
                # What workers read is what servers send, but for signs of life and the like.
                for worker_side, server_side in (("bytes_read", "bytes_sent"), ("bytes_written", "bytes_received")):
                    travelled = sum(worker[worker_side] for worker in workers)
                    self.assertGreater(travelled, 0)
                    self.assertAlmostEqual(sum(server[server_side] for server in servers) / travelled, 1, delta=0.2)
                for worker in workers:
                    self.assertGreater(worker["compute"], 0)
                    self.assertGreater(worker["comm_exposed"], 0)
                    self.check_staleness(worker, strategy)

    def check_staleness(self, worker, strategy):
        """As an object it says what the text beside it says."""
        self.assertEqual("staleness" in worker, strategy == "ps-async")
        if strategy == "ps-async":
            staleness = {int(updates): gradients for updates, gradients in worker["staleness"].items()}
            self.assertEqual(sum(staleness.values()), int(worker["gradients applied"]))
            histogram = " ".join(f"{updates}: {gradients}" for updates, gradients in staleness.items())
            self.assertTrue(worker["mean staleness"].endswith(f"({histogram})"), worker)

    def test_the_report_counts_what_each_worker_dropped(self):
        report, text = self.report_of("ps-sync:backup=1")
        workers = report["by_worker"]
        # Of two workers an update is made from one.
        self.assertEqual(sum(int(worker["gradients pushed"]) for worker in workers), 60)
        for number, worker in enumerate(workers):
            self.assertEqual(int(worker["gradients pushed"]) + int(worker["dropped"]), worker["steps"])
            self.assertIn(f"worker {number}: gradients pushed {worker['gradients pushed']}, "
                          f"dropped {worker['dropped']}", text)

    def test_metrics_tell_where_the_time_of_each_worker_goes(self):
        first, held = bare_cluster.free_row(3)
        started = start_all(cluster_of(ps=1, worker=2), "ps-async", "--max-steps", "1000000", "--log-every", "20",
                            "--http", str(first))
        missing = {}
        ceiling = time.monotonic() + 60
        for name in ("worker", 0), ("worker", 1), ("ps", 0):
            line = read_until(started[name], "metrics at http")
            address = re.search("metrics at (.*)$", line).group(1)
            missing[name] = self.without_work("", name[0])
            # Times are told once a second.
            while missing[name] and time.monotonic() < ceiling:
                read_until(started["worker", 0], "^step [0-9]+ ")
                with urllib.request.urlopen(address, timeout=30) as answer:
                    missing[name] = self.without_work(answer.read().decode(), name[0])
        for worker in (0, 1):
            started["worker", worker].send_signal(signal.SIGTERM)
        finish(started)
        for each in held:
            each.close()
        self.assertFalse([found for found in missing.items() if found[1]])

    def without_work(self, page, job):
        """The metrics of such a task that are not there, or are not above 0."""
        names = {"worker": ["tutti_steps_total", "tutti_compute_seconds_total", "tutti_waiting_seconds_total",
                            "tutti_input_seconds_total", "tutti_gradient_staleness_count", "tutti_received_bytes_total",
                            "tutti_sent_bytes_total"],
                 "ps": ["tutti_requests_total", "tutti_received_bytes_total", "tutti_sent_bytes_total",
                        "tutti_device_busy_seconds_total", "tutti_device_variable_bytes"]}[job]
        found = {name: re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE) for name in names}
        return [name for name, value in found.items() if value is None or float(value.group(1)) <= 0]

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
                                "--strategy", "ps-async", "--max-steps", "12000", "--log-every", "1")
                read_until(job, "step [0-9]+ ")
                os.kill(tasks.pid_of_task(job, "worker", 1), signal.SIGKILL)
                read_until(job, line)
                (code, text), = finish({"job": job}).values()
                self.assertEqual(code, 0, text)
                self.assertIn("test accuracy", text)

    def test_a_backup_worker_that_was_not_admitted_is_left_out(self):
        started = start_all(cluster_of(ps=1, worker=3), "ps-sync:backup=1", "--max-steps", "300",
                            "--log-every", "1")
        read_until(started["worker", 0], AFTER_SOME_STEPS)
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
        read_until(started["worker", 0], AFTER_SOME_STEPS)
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

    def test_a_worker_that_was_taken_for_lost_can_write_nothing(self):
        """It is stopped until the others go on without it, and then goes on itself."""
        started = start_all(cluster_of(ps=2, worker=3), "ps-async", "--max-steps", "1000000",
                            "--log-every", "1")
        read_until(started["worker", 0], "^step [0-9]+ ")
        stopped = started.pop(("worker", 1))
        stopped.send_signal(signal.SIGSTOP)
        line = read_until(started["worker", 0], "is lost")
        self.assertIn("worker 1 (/job:worker/task:1) is lost", line)
        stopped.send_signal(signal.SIGCONT)
        (code, text), = finish({"stopped": stopped}).values()
        self.assertEqual(code, 128, text)
        self.assertRegex(text, r"/job:worker/task:1 \(incarnation \d+\) has lost its place")
        for _ in range(20):
            read_until(started["worker", 0], "^step [0-9]+ ")
        for worker in (0, 2):
            started["worker", worker].send_signal(signal.SIGTERM)
        ended = finish(started)
        for name, (code, text) in ended.items():
            self.assertEqual(code, 143 if name[0] == "worker" else 0, f"{name}: {text}")

    def test_a_second_signal_ends_a_server_at_once(self):
        """Its chief is stopped and cannot end, so that it would be waited for after the first signal."""
        started = start_all(cluster_of(ps=1, worker=1), "ps-async", "--max-steps", "1000000", "--log-every", "1")
        read_until(started["worker", 0], "^step [0-9]+ ")
        worker, server = started["worker", 0], started["ps", 0]
        worker.send_signal(signal.SIGSTOP)
        server.send_signal(signal.SIGTERM)
        read_until(server, "signal 15: /job:worker/task:0 has not ended after [0-9]+ s; this server serves it until")
        server.send_signal(signal.SIGTERM)
        (code, text), = finish({"server": server}, seconds=60).values()
        worker.kill()
        worker.communicate()
        self.assertEqual(code, 143, text)
        self.assertNotIn("is lost", text)

    def test_a_job_that_lost_a_server_goes_on_from_a_checkpoint(self):
        for strategy in ("ps-async", "ps-sync"):
            with self.subTest(strategy=strategy), tempfile.TemporaryDirectory(prefix="tutti-ps-") as folder:
                job = tasks.run("--workers", "2", "--ps", "2", "--restarts", "1", "--", "--strategy", strategy,
                                "--max-steps", "20000", "--log-every", "10", "--model-dir", folder,
                                "--save-every", "200", "--keep", "0")
                saved = []
                while not saved:
                    read_until(job, "step [0-9]+ ")
                    saved = [name for name in os.listdir(folder) if name.startswith("checkpoint-")]
                os.kill(tasks.pid_of_task(job, "ps", 1), signal.SIGKILL)
                read_until(job, "the whole job is started again")
                line = read_until(job, "goes on from step [0-9]+ of 20000")
                begin = int(re.search("from step ([0-9]+)", line).group(1))
                # Others may make updates while the snapshot is taken: it may be ahead of its name.
                names = [name for name in os.listdir(folder) if name.startswith("checkpoint-")]
                self.assertLessEqual(min(int(name.split("-")[1]) for name in names), begin)
                (code, text), = finish({"job": job}).values()
                self.assertEqual(code, 0, text)
                self.assertIn("test accuracy", text)
                self.assertIn("checkpoint-020000", os.listdir(folder))

    def test_a_server_with_a_full_disk_costs_no_training(self):
        """Files of one server may have 64 KiB, and it has most of the variables."""
        with tempfile.TemporaryDirectory(prefix="tutti-ps-") as folder:
            cluster = cluster_of(ps=2, worker=2)
            flags = ("--model-dir", f"{folder}/model", "--save-every", "20", "--split-bytes", "100000000")
            started = {(job, i): start(cluster, job, i, "ps-sync", *flags,
                                       limit='-f 64; trap "" XFSZ' if (job, i) == ("ps", 1) else None)
                       for job, addresses in cluster.items() for i in range(len(addresses))}
            ended = finish(started)
            code, text = ended["worker", 0]
            self.assertEqual(code, 1, text)
            for step in (20, 40, 60):
                self.assertRegex(text, f"the checkpoint of step {step} failed: .*/job:ps/task:1.*File too large|"
                                       f"no checkpoint of step {step}: that of step [24]0 is still being written")
            self.assertIn("the checkpoint of step 60 failed: ", text)
            self.assertIn("test accuracy", text)
            self.assertIn("the training is done, but its last checkpoint could not be written", text)
            self.assertFalse([name for name in os.listdir(f"{folder}/model") if "checkpoint" in name])
            # The other worker has done its part; the servers end with the first one, which told the cause.
            for name, code in ((("worker", 1), 0), (("ps", 0), 128), (("ps", 1), 128)):
                self.assertEqual(ended[name][0], code, f"{name}: {ended[name][1]}")

    def test_the_members_may_be_kept_by_a_server(self):
        cluster = cluster_of(ps=2, worker=2)
        ended = finish(start_all(cluster, "ps-async", "--coordinator", "/job:ps/task:1"))
        self.check_all_zero(ended)
        started = start_all(cluster, "ps-async", "--coordinator", "/job:ps/task:1", "--max-steps",
                            "1000000", "--log-every", "1")
        read_until(started["worker", 0], "^step [0-9]+ ")
        started.pop(("ps", 1)).kill()
        for name, (code, text) in finish(started).items():
            self.assertEqual(code, 128, f"{name}: {text}")
            self.assertIn("/job:ps/task:1", text)

    def test_a_coordinator_that_is_none_is_refused(self):
        ended = finish(start_all(cluster_of(ps=1, worker=1), "ps-async", "--coordinator", "nobody"))
        code, text = ended["worker", 0]
        self.assertEqual(code, 1, text)
        self.assertIn('coordinator "nobody": the cluster has no such task', text)

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
