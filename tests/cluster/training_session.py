#!/usr/bin/env python3
"""A training loop of one's own (examples/sync_replicas.cc) as tasks of a cluster, some of which are lost and started again.

    tests/cluster/training_session.py --bin build/bin
"""
import glob
import json
import os
import re
import signal
import subprocess
import tempfile
import unittest

import tasks
from tasks import cluster_of

LEARNT = "w is 3.000 and b -1.000"


class TrainingSession(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-session-")
        self.addCleanup(folder.cleanup)
        self.model = folder.name + "/model"
        self.started = []
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for task in self.started:
            if task.poll() is None:
                task.kill()
            task.communicate()

    def start(self, cluster, job, index, *flags):
        config = {"cluster": cluster, "task": {"type": job, "index": index}}
        task = subprocess.Popen([f"{tasks.BIN}/sync_replicas", *flags], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT,
                                env=dict(os.environ, TF_CONFIG=json.dumps(config), TUTTI_JOB_TOKEN="secret"))
        self.started.append(task)
        return task

    def start_all(self, cluster, *flags):
        return {(job, index): self.start(cluster, job, index, *flags)
                for job, addresses in cluster.items() for index in range(len(addresses))}

    def check_end(self, started):
        texts = {}
        for name, task in started.items():
            try:
                texts[name], _ = task.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                self.fail(f"{name} does not end")
            self.assertEqual(task.returncode, 0, f"{name}: {texts[name]}")
        return texts

    def read_until(self, task, pattern):
        lines = []
        for line in task.stdout:
            lines.append(line)
            if re.search(pattern, line):
                return
        self.fail(f"the task ended without a line like {pattern}:\n{''.join(lines)}")

    def test_all_learn_and_all_end(self):
        for workers, aggregate in ((1, 1), (2, 2), (3, 2)):
            with self.subTest(workers=workers, aggregate=aggregate):
                texts = self.check_end(self.start_all(cluster_of(worker=workers, ps=2), "--aggregate", str(aggregate)))
                self.assertIn(f"after 300 updates {LEARNT}", texts["worker", 0])

    def test_under_tutti_run(self):
        job = subprocess.run([f"{tasks.BIN}/tutti", "run", "--workers", "2", "--ps", "1", "--",
                              f"{tasks.BIN}/sync_replicas"], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        self.assertIn(f"worker 0 | after 300 updates {LEARNT}", job.stdout)

    def lose(self, job, index):
        """Trains on 2 ps; the task is killed once there is a checkpoint, and started again."""
        cluster = cluster_of(worker=2, ps=2)
        flags = ("--max-steps", "12000", "--model-dir", self.model, "--save-every", "500", "--log-every", "100",
                 "--start-timeout", "60")
        started = self.start_all(cluster, *flags)
        # Checkpoints are written while training goes on.
        while not glob.glob(f"{self.model}/checkpoint-*"):
            self.read_until(started["worker", 0], "^step ")
        started[job, index].send_signal(signal.SIGKILL)
        started[job, index].wait()
        started[job, index] = self.start(cluster, job, index, *flags)
        texts = self.check_end(started)
        self.assertIn(f"after 12000 updates {LEARNT}", texts["worker", 0])
        return texts

    def test_a_lost_server(self):
        texts = self.lose("ps", 1)
        self.assertRegex(texts["worker", 0], "making a new session")
        self.assertRegex(texts["worker", 0], "goes on from step [0-9]+00, the newest checkpoint")
        self.assertRegex(texts["worker", 1], "making a new session")

    def test_the_first_server_is_lost(self):
        self.assertRegex(self.lose("ps", 0)["worker", 0], "goes on from step [0-9]+00, the newest checkpoint")

    def test_a_lost_worker(self):
        self.assertNotIn("new session", self.lose("worker", 1)["worker", 0])

    def test_the_chief_is_lost(self):
        """It holds the coordination of the cluster: all others end, and name it. Started again, all go on."""
        cluster = cluster_of(worker=2, ps=2)
        flags = ("--max-steps", "12000", "--model-dir", self.model, "--save-every", "500", "--log-every", "100",
                 "--start-timeout", "60")
        started = self.start_all(cluster, *flags)
        while not glob.glob(f"{self.model}/checkpoint-*"):
            self.read_until(started["worker", 0], "^step ")
        started.pop(("worker", 0)).send_signal(signal.SIGKILL)
        for name, task in started.items():
            text, _ = task.communicate(timeout=60)
            self.assertNotEqual(task.returncode, 0, f"{name}: {text}")
            self.assertIn("the coordinator is lost: /job:worker/task:0", text, name)
        texts = self.check_end(self.start_all(cluster, *flags))
        self.assertRegex(texts["worker", 0], "goes on from step [0-9]+00, the newest checkpoint")
        self.assertIn(f"after 12000 updates {LEARNT}", texts["worker", 0])

    def test_without_a_checkpoint_a_lost_server_ends_the_training(self):
        cluster = cluster_of(worker=1, ps=2)
        flags = ("--max-steps", "100000", "--log-every", "100")
        started = self.start_all(cluster, *flags)
        self.read_until(started["worker", 0], "^step 100 ")
        started["ps", 1].send_signal(signal.SIGKILL)
        started["ps", 1].wait()
        self.start(cluster, "ps", 1, *flags)
        text, _ = started["worker", 0].communicate(timeout=120)
        self.assertEqual(started["worker", 0].returncode, 1, text)
        self.assertIn("lost their values with a task", text)
        self.assertIn("there is no checkpoint to go back to", text)


if __name__ == "__main__":
    tasks.main(__doc__)
