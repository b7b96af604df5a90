#!/usr/bin/env python3
"""Bad days of a training other than a worker's death: a killed launcher, a full disk, a cut link, no IPv4.

    tests/fault/bad_days.py --bin build/bin
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import rounds
from training_job import TrainingJob

BIN = "build/bin"
NETLAB = str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "netlab")
FULL = "/dev/full"  # takes nothing: every write fails as on a full disk


def has_ended(pid):
    """True for what nobody has waited for yet as well."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def train(*flags, command=(), environment=None):
    done = subprocess.run([*command, f"{BIN}/fashion_mnist", "--model", "mlp", "--max-steps", "30", *flags],
                          env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


class KilledLauncher(unittest.TestCase):
    def check_all_end(self, pids):
        deadline = time.monotonic() + rounds.KILL_CEILING_SECONDS
        while not all(has_ended(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.01)
        left = [pid for pid in pids if not has_ended(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, [])

    def test_its_workers_end(self):
        job = TrainingJob(BIN, 3)
        try:
            job.wait_for_steps()
            pids = job.workers().values()
            self.assertEqual(len(pids), 3)
            job.process.kill()
            self.check_all_end(pids)
        finally:
            job.close()

    def test_so_does_what_workers_started(self):
        run = subprocess.Popen([f"{BIN}/tutti", "run", "--workers", "2", "--", "sh", "-c",
                                "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
        try:
            pids = [int(run.stdout.readline().split("|")[1]) for _ in range(2)]
        finally:
            run.kill()
            run.wait()
            run.stdout.close()
        self.check_all_end(pids)


class StoppedWorker(unittest.TestCase):
    def test_the_launcher_ends_it(self):
        """Nobody else kills it: it cannot act on a request to end, and must be ended by force."""
        job = TrainingJob(BIN, 2, grace=1)
        try:
            job.wait_for_steps()
            pids = job.workers()
            os.kill(pids[1], signal.SIGSTOP)
            self.assertGreaterEqual(job.finish(), 128, job.text())
            self.assertEqual([pid for pid in pids.values() if not has_ended(pid)], [])
            self.assertRegex(job.text(), r"worker 0 \| .*\brank 1 \(.*\) has given no sign of life for")
        finally:
            job.close()


class FullDisk(unittest.TestCase):
    def check_trained(self, ended):
        code, text = ended
        self.assertEqual(code, 0, text)
        self.assertIn("test accuracy", text)
        return text

    def test_report_and_trace(self):
        text = self.check_trained(train("--report", FULL, "--trace", FULL))
        self.assertIn(f"--report: cannot write {FULL}: No space left on device; the training itself is done", text)
        self.assertIn(f"--trace: cannot write {FULL}: No space left on device; the training goes on without it", text)

    def test_a_folder_that_is_missing_is_told_before_the_training(self):
        for flag in ("--report", "--trace"):
            code, text = train(flag, "/no/such/folder/file")
            self.assertEqual(code, 2, text)
            self.assertIn(f"{flag}: cannot write /no/such/folder/file: No such file or directory", text)
            self.assertNotIn("step", text)

    def test_logs_of_tasks(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(FULL, os.path.join(folder, "worker-0.log"))
            text = self.check_trained(train("--strategy", "allreduce", command=[
                f"{BIN}/tutti", "run", "--workers", "2", "--log-dir", folder, "--"]))
            self.assertEqual(text.count(f"cannot write {folder}/worker-0.log: No space left on device"), 1, text)

    def test_output_of_the_launcher(self):
        with open(FULL, "w", encoding="utf-8") as full, tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.json")
            done = subprocess.run([f"{BIN}/tutti", "run", "--workers", "2", "--", f"{BIN}/fashion_mnist",
                                   "--model", "mlp", "--strategy", "allreduce", "--max-steps", "30",
                                   "--report", report], stdout=full, stderr=full, timeout=120, check=False)
            self.assertEqual(done.returncode, 1)  # what was said is lost, and the exit code says so
            with open(report, encoding="utf-8") as file:
                self.assertEqual(json.load(file)["steps"], 30)


class CutLink(unittest.TestCase):
    def setUp(self):
        allowed = subprocess.run([NETLAB, "--check"], capture_output=True, text=True, check=False)
        if allowed.returncode != 0:
            self.skipTest(f"this machine allows no network namespaces ({allowed.stdout.strip()})")

    def test_the_host_that_is_cut_off_is_named(self):
        hosts = [f"10.77.0.{i + 1}:4711" for i in range(3)]
        script = ("export TUTTI_JOB_TOKEN=secret TF_CONFIG='{\"cluster\": {\"worker\": " + json.dumps(hosts) + "}, "
                  "\"task\": {\"type\": \"worker\", \"index\": '$NETLAB_RANK'}}'; "
                  f"exec {os.path.abspath(BIN)}/fashion_mnist --model mlp --strategy allreduce "
                  "--max-steps 100000000 --log-every 20")
        # In its arguments netlab replaces words in braces, of which there are none of its own here.
        run = subprocess.Popen([NETLAB, "--hosts", "3", "--timeout", "120", "--", "sh", "-c", script],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = []
        try:
            for line in run.stdout:
                lines.append(line)
                if "step 20 " in line:
                    cut = time.monotonic()
                    subprocess.run([NETLAB, "--run", str(run.pid), "cut", "2"], check=True)
                    break
            lines += run.stdout
            seconds = time.monotonic() - cut
        finally:
            run.terminate()
            run.wait(30)
            run.stdout.close()
        text = "".join(lines)
        for rank in (0, 1):
            self.assertRegex(text, rf"\[{rank}\] fashion_mnist: .*\brank 2 \(.*\) has given no sign of life for")
        # The one that is cut off cannot know that the others are well.
        self.assertRegex(text, r"\[2\] fashion_mnist: .*\brank 0 \(.*\) has given no sign of life for")
        self.assertLess(seconds, 5 * rounds.STOP_CEILING_FACTOR)


class OnlyIPv6(unittest.TestCase):
    def setUp(self):
        self.ports = []
        for _ in range(2):
            try:
                held = socket.socket(socket.AF_INET6)  # bound, and not listening: the port is ours
                self.addCleanup(held.close)
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind(("::1", 0))
            except OSError as error:
                self.skipTest(f"this machine has no IPv6 ({error})")
            self.ports.append(held.getsockname()[1])

    def test_a_cluster_of_two(self):
        addresses = [f"[::1]:{port}" for port in self.ports]
        tasks = []
        for index in range(2):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            tasks.append(subprocess.Popen(
                [f"{BIN}/fashion_mnist", "--model", "mlp", "--strategy", "allreduce", "--max-steps", "20"],
                env=dict(os.environ, TF_CONFIG=json.dumps(config)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True))
        texts = [task.communicate(timeout=90)[0] for task in tasks]
        for task, text in zip(tasks, texts):
            self.assertEqual(task.returncode, 0, text)
        self.assertIn("2 workers", texts[0])

    def test_sockets(self):
        tasks = [subprocess.Popen([f"{BIN}/tutti", "bench", "allreduce", "--rank", str(rank), "--size", "2",
                                   "--address", f"[::1]:{self.ports[0]}", "--transport", "tcp",
                                   "--bytes", "1M", "--seconds", "0.05"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for rank in range(2)]
        texts = [task.communicate(timeout=90)[0] for task in tasks]
        for task, text in zip(tasks, texts):
            self.assertEqual(task.returncode, 0, text)
        self.assertIn("1000000 bytes, 2 ranks, tcp", texts[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=BIN)
    known, rest = parser.parse_known_args()
    BIN = known.bin
    unittest.main(argv=[sys.argv[0], *rest])
