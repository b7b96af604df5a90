#!/usr/bin/env python3
"""Evaluates the checkpoints of trainings in a process of its own: in the cluster and outside it, late, killed, absent.

    tests/cluster/evaluator.py --bin build/bin
"""
import filecmp
import glob
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

STEPS = 40
# What a job of each strategy consists of.
JOBS = {"local": {"chief": 1}, "mirrored:2": {"chief": 1}, "allreduce": {"worker": 2}, "ps-sync": {"worker": 2, "ps": 2},
        "ps-async": {"chief": 1, "worker": 1, "ps": 1}, "ps-ssp:1": {"worker": 2, "ps": 1}}


def without_evaluator(cluster):
    return {job: addresses for job, addresses in cluster.items() if job != "evaluator"}


def finish(task, seconds=180):
    try:
        text, _ = task.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        task.kill()
        text, _ = task.communicate()
        text += "\n(killed by the test: it did not end)"
    return task.returncode, text


def read_until(task, pattern):
    lines = []
    for line in task.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return
    raise AssertionError(f"the task ended without a line like {pattern}:\n{''.join(lines)}")


class Evaluator(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-evaluator-")
        self.addCleanup(folder.cleanup)
        self.model = folder.name + "/model"
        self.started = []
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for task in self.started:
            if task.poll() is None:
                task.kill()
            task.communicate()

    def start(self, cluster, job, index=0, *flags, strategy="allreduce"):
        task = tasks.start(cluster, job, index, "--strategy", strategy, "--max-steps", str(STEPS), "--batch-size", "16",
                           "--start-timeout", "60", "--model-dir", self.model, "--save-every", "10", "--keep", "0", *flags)
        self.started.append(task)
        return task

    def start_training(self, cluster, *flags, **others):
        return [self.start(cluster, job, index, *flags, **others)
                for job, addresses in without_evaluator(cluster).items() for index in range(len(addresses))]

    def check_end(self, task, code=0):
        ended, text = finish(task)
        self.assertEqual(ended, code, text)
        return text

    def evaluated(self):
        """The steps in MODEL_DIR/eval/metrics.jsonl, in their order."""
        with open(f"{self.model}/eval/metrics.jsonl", encoding="utf-8") as file:
            return [json.loads(line)["step"] for line in file]

    def checkpoints(self):
        return sorted(int(path.rsplit("-", 1)[1]) for path in glob.glob(f"{self.model}/checkpoint-*"))

    def check_all_evaluated(self):
        steps = self.evaluated()
        self.assertEqual(steps, self.checkpoints())
        self.assertGreaterEqual(steps[-1], STEPS)

    def accuracy(self, text):
        return re.search(r"^test accuracy .*", text, re.MULTILINE).group(0)

    def test_in_the_cluster_with_every_strategy(self):
        for strategy, jobs in JOBS.items():
            with self.subTest(strategy=strategy):
                self.model += "." + strategy.replace(":", "-")
                cluster = cluster_of(evaluator=1, **jobs)
                evaluator = self.start(cluster, "evaluator", strategy=strategy)
                training = self.start_training(cluster, "--eval-every", "10", strategy=strategy)
                for task in training:
                    text = self.check_end(task)
                    self.assertNotIn("test accuracy", text)
                    self.assertNotIn("evaluation:", text)
                text = self.check_end(evaluator)
                self.assertIn("/job:evaluator/task:0, evaluates checkpoints", text)
                self.accuracy(text)
                self.check_all_evaluated()
                self.assertEqual(len(glob.glob(f"{self.model}/eval/events.out.tfevents.*")), 1)

    def test_a_worker_is_out_of_data_early(self):
        """An epoch of 3 batches for 4 that train: one of them makes no step. All end by themselves, servers 2 s after the
        chief; the ceiling is ten times as high."""
        cluster = cluster_of(chief=1, ps=2, worker=3, evaluator=1)
        flags = ("--epochs", "1", "--batch-size", "20000", "--save-every", "1")
        evaluator = self.start(cluster, "evaluator", 0, *flags, strategy="ps-async")
        training = {(job, index): self.start(cluster, job, index, *flags, "--report", f"{self.model}.json", strategy="ps-async")
                    for job, addresses in without_evaluator(cluster).items() for index in range(len(addresses))}
        chief = self.check_end(training.pop(("chief", 0)))
        ended = time.monotonic()
        for name in (("ps", 0), ("ps", 1)):
            self.check_end(training.pop(name))
        self.assertLess(time.monotonic() - ended, 20)
        for task in training.values():
            self.check_end(task)
        self.accuracy(self.check_end(evaluator))
        with open(f"{self.model}.json", encoding="utf-8") as file:
            steps = sorted(worker.get("steps", 0) for worker in json.load(file)["by_worker"])
        self.assertEqual((steps[0], sum(steps)), (0, 3), chief)
        self.assertEqual(self.evaluated()[-1], 3)

    def test_outside_of_the_cluster(self):
        cluster = cluster_of(worker=2)
        evaluator = self.start(cluster, "evaluator")
        texts = [self.check_end(task) for task in self.start_training(cluster)]
        self.assertEqual(self.accuracy(self.check_end(evaluator)), self.accuracy(texts[0]))
        self.check_all_evaluated()

    def test_late_and_then_once_more(self):
        cluster = cluster_of(worker=1, evaluator=1)
        for task in self.start_training(cluster):
            self.check_end(task)
        self.assertFalse(os.path.exists(f"{self.model}/eval"))
        self.accuracy(self.check_end(self.start(cluster, "evaluator")))
        self.check_all_evaluated()
        text = self.check_end(self.start(cluster, "evaluator"))
        self.assertIn(f"behind that of step {STEPS}", text)
        self.check_all_evaluated()

    def test_killed_and_started_again(self):
        cluster = cluster_of(worker=2, evaluator=1)
        evaluator = self.start(cluster, "evaluator")
        training = self.start_training(cluster, "--max-steps", "300")
        read_until(evaluator, "checkpoint-000010: accuracy")
        evaluator.send_signal(signal.SIGKILL)
        evaluator.wait()
        evaluator = self.start(cluster, "evaluator", 0, "--max-steps", "300")
        for task in training:
            self.check_end(task)
        text = self.check_end(evaluator)
        self.assertIn("goes on to evaluate the checkpoints", text)
        self.check_all_evaluated()

    def test_absent(self):
        for task in self.start_training(cluster_of(worker=2, evaluator=1)):
            self.check_end(task)
        self.assertEqual(self.checkpoints()[-1], STEPS)

    def test_first_to_start_when_a_finished_training_goes_on(self):
        cluster = cluster_of(worker=1, evaluator=1)
        for task in self.start_training(cluster):
            self.check_end(task)
        evaluator = self.start(cluster, "evaluator", 0, "--max-steps", "80")
        read_until(evaluator, f"checkpoint-{STEPS:06}: accuracy")
        for task in self.start_training(cluster, "--max-steps", "80"):
            self.check_end(task)
        self.check_end(evaluator)
        self.assertEqual(self.evaluated()[-1], 80)
        self.check_all_evaluated()

    def test_a_training_anew_is_evaluated_anew(self):
        cluster = cluster_of(worker=1, evaluator=1)
        for seed in ("1", "2"):
            for task in self.start_training(cluster, "--seed", seed):
                self.check_end(task)
            first = self.accuracy(self.check_end(self.start(cluster, "evaluator", 0, "--seed", seed)))
            self.check_all_evaluated()
            if seed == "1":
                other = first
                subprocess.run(["rm", "-r", *glob.glob(f"{self.model}/checkpoint-*")], check=True)
        self.assertNotEqual(first, other)

    def test_what_it_reads_is_not_removed(self):
        cluster = cluster_of(worker=1, evaluator=1)
        flags = ("--save-every", "1", "--keep", "1", "--max-steps", "200")
        evaluator = self.start(cluster, "evaluator", 0, *flags)
        for task in self.start_training(cluster, *flags):
            self.check_end(task)
        text = self.check_end(evaluator)
        self.assertNotIn("cannot be", text)
        self.assertEqual(self.evaluated()[-1], 200)

    def test_the_best_checkpoint_stays(self):
        cluster = cluster_of(worker=1, evaluator=1)
        flags = ("--keep", "1", "--keep-best", "accuracy")
        evaluator = self.start(cluster, "evaluator", 0, *flags)
        for task in self.start_training(cluster, *flags):
            self.check_end(task)
        self.check_end(evaluator)
        with open(f"{self.model}/best", encoding="utf-8") as file:
            best = file.read().split()
        with open(f"{self.model}/eval/metrics.jsonl", encoding="utf-8") as file:
            accuracies = {entry["step"]: entry["accuracy"] for entry in map(json.loads, file)}
        self.assertEqual(float(best[2]), max(accuracies.values()))
        self.assertIn(int(best[0].rsplit("-", 1)[1]), self.checkpoints())

    def test_ends_when_nobody_trains(self):
        text = self.check_end(self.start(cluster_of(worker=1), "evaluator", 0, "--start-timeout", "0.5"), 128)
        self.assertIn(f"no job has trained in {self.model} for 1 s, and none has finished there", text)

    def test_a_signal_ends_it(self):
        evaluator = self.start(cluster_of(worker=1), "evaluator")
        read_until(evaluator, "evaluates the checkpoints")
        evaluator.send_signal(signal.SIGTERM)
        self.check_end(evaluator, 143)

    def test_a_second_evaluator_is_refused(self):
        cluster = cluster_of(worker=1)
        read_until(self.start(cluster, "evaluator"), "evaluates the checkpoints")
        text = self.check_end(self.start(cluster, "evaluator"), 1)
        self.assertIn("eval is in use by another evaluator", text)

    def test_needs_a_model_directory(self):
        cluster = cluster_of(worker=1, evaluator=1)
        for job in cluster:
            text = self.check_end(self.start(cluster, job, 0, "--model-dir", ""), 2)
            self.assertIn("there is no --model-dir for them", text)

    def start_apart(self, cluster, *flags, **others):
        """An evaluator that sees another disk than the training: a directory of its own."""
        return self.start(cluster, "evaluator", 0, *flags, "--model-dir", self.model + ".own", **others)

    def check_copied(self, steps):
        """The evaluator has evaluated these, from files with the bytes of the chief's."""
        with open(f"{self.model}.own/eval/metrics.jsonl", encoding="utf-8") as file:
            self.assertEqual([json.loads(line)["step"] for line in file], steps)
        self.assertFalse(os.path.exists(f"{self.model}/eval"))
        last = f"checkpoint-{steps[-1]:06}"
        names = sorted(os.listdir(f"{self.model}/{last}"))
        same, _, _ = filecmp.cmpfiles(f"{self.model}/{last}", f"{self.model}.own/{last}", names, shallow=False)
        self.assertEqual(sorted(same), names)

    def test_on_another_disk_with_every_strategy(self):
        for strategy, jobs in JOBS.items():
            with self.subTest(strategy=strategy):
                self.model += "." + strategy.replace(":", "-")
                cluster = cluster_of(evaluator=1, **jobs)
                evaluator = self.start_apart(cluster, strategy=strategy)
                read_until(evaluator, "evaluates the checkpoints")
                for task in self.start_training(cluster, strategy=strategy):
                    self.assertNotIn("evaluator", self.check_end(task).replace("evaluator 127", ""))
                text = self.check_end(evaluator)
                self.assertIn("which writes to another disk", text)
                self.accuracy(text)
                self.check_copied(self.checkpoints())

    def test_on_another_disk_the_same_figures(self):
        texts = []
        for apart in (False, True):
            self.model += ".apart" if apart else ""
            cluster = cluster_of(worker=1, evaluator=1)
            evaluator = self.start_apart(cluster) if apart else self.start(cluster, "evaluator")
            read_until(evaluator, "evaluates the checkpoints")
            for task in self.start_training(cluster):
                self.check_end(task)
            texts.append(self.accuracy(self.check_end(evaluator)))
        self.assertEqual(texts[0], texts[1])

    def test_on_another_disk_killed_and_started_again(self):
        cluster = cluster_of(worker=2, evaluator=1)
        evaluator = self.start_apart(cluster)
        read_until(evaluator, "evaluates the checkpoints")
        # The training is slower than the second start of an evaluator.
        training = self.start_training(cluster, "--max-steps", "4000", "--save-every", "500")
        read_until(evaluator, "checkpoint-000500: accuracy")
        evaluator.send_signal(signal.SIGKILL)
        evaluator.wait()
        evaluator = self.start_apart(cluster, "--max-steps", "4000")
        for task in training:
            self.check_end(task)
        text = self.check_end(evaluator)
        self.assertIn("goes on to evaluate the checkpoints", text)
        self.check_copied(self.checkpoints())

    def test_on_another_disk_a_stopped_evaluator_does_not_hold_the_training_up_for_ever(self):
        cluster = cluster_of(worker=1, evaluator=1)
        evaluator = self.start_apart(cluster)
        read_until(evaluator, "evaluates the checkpoints")
        training = self.start_training(cluster, "--max-steps", "400")
        read_until(evaluator, "which writes to another disk")
        evaluator.send_signal(signal.SIGSTOP)
        for task in training:
            self.check_end(task)
        evaluator.send_signal(signal.SIGCONT)
        evaluator.send_signal(signal.SIGKILL)
        self.assertEqual(self.checkpoints()[-1], 400)

    def test_under_tutti_run(self):
        command = [f"{tasks.BIN}/tutti", "run", "--workers", "2", "--ps", "1", "--evaluator", "--",
                   f"{tasks.BIN}/fashion_mnist", "--model", "mlp", "--strategy", "ps-async", "--batch-size", "16",
                   "--save-every", "10", "--keep", "0", "--max-steps", str(STEPS), "--model-dir", self.model]
        job = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        self.assertIn("evaluator | test accuracy", job.stdout)
        self.check_all_evaluated()


if __name__ == "__main__":
    tasks.main(__doc__)
