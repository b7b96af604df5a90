#!/usr/bin/env python3
"""Trains with parameter servers whose members a real etcd keeps, while parts of the etcd are lost.

    tests/cluster/etcd_training.py --bin build/bin [--seconds 120]

Needs the packages etcd-server and etcd-client. With --seconds a job of 3 workers and 2 servers trains for about so long
with each strategy, and one member of the etcd is killed every 5 s in turn and started again. Without it the tests are
short enough for every day.
"""
import argparse
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import etcd
import tasks
from etcd import until

EVERY = 5  # seconds between two kills of etcd members
CEILING = 180  # seconds for a job to end that has nothing to wait for
SECONDS = 12  # of a training, roughly; main() sets it
BATCH = 32
STEP = re.compile(r"^step (\d+) loss", re.M)


class Task:
    """A task of a training, and what it says."""

    def __init__(self, cluster, job, index, *flags, **variables):
        self.name = f"/job:{job}/task:{index}"
        self.process = tasks.start(cluster, job, index, "--batch-size", str(BATCH), "--start-timeout", "60", *flags,
                                   **variables)
        self.lines = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)
        self.process.stdout.close()

    @property
    def text(self):
        return "".join(self.lines)

    @property
    def step(self):
        steps = STEP.findall(self.text)
        return int(steps[-1]) if steps else 0

    def wait(self, seconds=CEILING):
        """Its exit code, and all it said."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        self.end()
        return code

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.reader.join()


class TrainingOverEtcd(unittest.TestCase):
    def setUp(self):
        if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
            self.skipTest("there is no etcd; scripts/packages-test.txt names the packages")
        folder = tempfile.TemporaryDirectory(prefix="tutti-etcd-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.etcd = etcd.Etcd(folder.name)
        self.addCleanup(self.etcd.end)
        self.cluster = tasks.cluster_of(worker=3, ps=2)

    def start(self, *flags, url=None, only=None, **variables):
        started = {}
        for job, addresses in self.cluster.items():
            for index in range(len(addresses)):
                if only is not None and (job, index) not in only:
                    continue
                task = Task(self.cluster, job, index, "--coordinator", url or self.etcd.url("train"), *flags,
                            **variables)
                self.addCleanup(task.end)
                started[job, index] = task
        return started

    def check_all_zero(self, started):
        for task in started.values():
            code = task.wait()
            self.assertEqual(code, 0, f"{task.name}:\n{task.text}")

    def check_steps(self, chief, strategy, steps):
        """Every step was made, none twice. Of an asynchronous strategy the workers count their gradients."""
        made = chief.step
        if strategy == "ps-async":
            made = sum(map(int, re.findall(r"^worker \d+: gradients applied (\d+)", chief.text, re.M)))
        late = 2 if strategy == "ps-async" else 0  # workers may be in a step when the last one is made
        self.assertGreaterEqual(made, steps, chief.text[-2000:])
        self.assertLessEqual(made, steps + late, chief.text[-2000:])

    def steps_for(self, strategy, seconds):
        """About so many steps take so long: measured on a short training over the etcd as it is."""
        probe = 4000
        started = self.start("--strategy", strategy, "--max-steps", str(probe), "--log-every", "1")
        chief = started["worker", 0]
        until(lambda: chief.step >= probe / 10 or chief.process.poll() is not None, "it trains")
        began, first = time.monotonic(), chief.step
        until(lambda: chief.step >= 0.9 * probe or chief.process.poll() is not None, "it goes on")
        rate = (chief.step - first) / (time.monotonic() - began)
        self.check_all_zero(started)
        return max(probe, int(rate * seconds))

    def train_while_members_die(self, strategy, steps):
        """How many members were lost and came back meanwhile."""
        began = time.monotonic()
        started = self.start("--strategy", strategy, "--max-steps", str(steps), "--log-every", "1")
        chief = started["worker", 0]
        until(lambda: chief.step > 0, "it trains")
        kills = 0
        while chief.process.poll() is None:
            member = kills % etcd.MEMBERS
            self.etcd.kill(member)
            kills += 1
            time.sleep(EVERY / 2)
            self.etcd.start(member)
            self.etcd.wait_for([member])
            time.sleep(EVERY / 2)
        self.check_all_zero(started)
        self.check_steps(chief, strategy, steps)
        self.assertIn("test accuracy", chief.text)
        for task in started.values():
            self.assertNotIn("is lost", task.text)
        accuracy = re.search("test accuracy .*", chief.text).group(0)
        print(f"{strategy}: {steps} steps in {time.monotonic() - began:.0f} s, {kills} members of the etcd "
              f"killed, no step lost, {accuracy}", flush=True)
        return kills

    def test_lost_members_are_not_noticed(self):
        for strategy in ("ps-async", "ps-sync"):
            with self.subTest(strategy=strategy):
                # The steps are guessed from a moment that other work may have slowed down.
                steps = self.steps_for(strategy, SECONDS)
                while self.train_while_members_die(strategy, steps) < 2:
                    steps *= 2

    def lose_majority(self, strategy, seconds, steps, take, give_back):
        """A training during which the etcd has no majority, from take() to give_back(): its tasks, once they say that the
        etcd answers again. None: the training was over before."""
        started = self.start("--strategy", strategy, "--max-steps", str(steps), "--log-every", "1")
        chief = started["worker", 0]
        until(lambda: chief.step > 0, "it trains")
        take()
        try:
            until(lambda: all("what needs it waits" in task.text for task in started.values()),
                  "all tasks say that the etcd does not answer")
            before = chief.step
            until(lambda: chief.step > before + 20 or "test accuracy" in chief.text, "steps are made without the etcd")
            time.sleep(seconds)
            early = "test accuracy" in chief.text
        finally:
            give_back()
        self.etcd.wait_for(range(etcd.MEMBERS))
        until(lambda: all("answers again, after" in task.text for task in started.values()),
              "all tasks say that the etcd answers again")
        if not early:
            return started
        self.check_all_zero(started)
        return None

    def train_without_majority(self, strategy, seconds, take, give_back):
        """All steps are made. They are guessed from a moment that other work may have slowed down."""
        steps = self.steps_for(strategy, 2.5 * seconds)
        while (started := self.lose_majority(strategy, seconds, steps, take, give_back)) is None:
            steps *= 2
        self.check_all_zero(started)
        chief = started["worker", 0]
        self.check_steps(chief, strategy, steps)
        self.assertIn("test accuracy", chief.text)
        for task in started.values():
            self.assertNotIn("is lost", task.text)
        print(f"{strategy}: no majority for over {seconds} s, and all {steps} steps were made", flush=True)

    def test_training_goes_on_while_the_majority_is_lost(self):
        def take():
            for member in (0, 1):
                self.etcd.kill(member)

        def give_back():
            for member in (0, 1):
                self.etcd.start(member)

        for strategy in ("ps-async", "ps-sync"):
            with self.subTest(strategy=strategy):
                self.train_without_majority(strategy, 10, take, give_back)

    def test_a_slow_etcd_is_waited_for(self):
        """Two of its members stand still for longer than a lease lasts; the one that leads does not."""
        slow = []

        def take():
            # Not earlier: while a training takes the cores, another member may come to lead.
            leader = self.etcd.leader()
            slow[:] = [i for i in range(etcd.MEMBERS) if i != leader]
            for member in slow:
                self.etcd.stop(member)

        self.train_without_majority("ps-async", 8, take, lambda: [self.etcd.go_on(i) for i in slow])

    def test_a_leader_that_stood_still_may_end_leases_and_the_job_says_so(self):
        """Nobody was elected meanwhile, since another member stood still, too: it goes by its clock."""
        leader = self.etcd.leader()
        slow = [leader, (leader + 1) % etcd.MEMBERS]
        started = self.lose_majority("ps-async", 8, 10000000, lambda: [self.etcd.stop(i) for i in slow],
                                     lambda: [self.etcd.go_on(i) for i in slow])
        chief = started["worker", 0]
        before = chief.step
        # Where the leases were renewed in time, a second at full speed is a thousand steps.
        until(lambda: chief.process.poll() is not None or chief.step > before + 20000, "it ends or goes on")
        if chief.process.poll() is None:
            return
        for task in started.values():
            self.assertEqual(task.wait(), 128, f"{task.name}:\n{task.text[-3000:]}")
            self.assertRegex(task.text, "has lost its place|is lost")

    def test_a_killed_worker_is_left_out_at_once(self):
        started = self.start("--strategy", "ps-async", "--max-steps", "3000", "--log-every", "1")
        chief = started["worker", 0]
        until(lambda: chief.step > 0, "it trains")
        started["worker", 2].process.kill()
        struck = time.monotonic()
        until(lambda: "(/job:worker/task:2) is lost" in chief.text, "it is named")
        print(f"a killed worker is named after {time.monotonic() - struck:.2f} s", flush=True)
        started.pop(("worker", 2))
        self.check_all_zero(started)

    def test_a_stopped_worker_is_fenced_and_says_why(self):
        started = self.start("--strategy", "ps-async", "--max-steps", "10000000", "--log-every", "1")
        chief, stopped = started["worker", 0], started.pop(("worker", 1))
        until(lambda: chief.step > 0, "it trains")
        stopped.process.send_signal(signal.SIGSTOP)
        until(lambda: "(/job:worker/task:1) is lost" in chief.text, "it is named")
        stopped.process.send_signal(signal.SIGCONT)
        self.assertEqual(stopped.wait(), 128, stopped.text)
        self.assertRegex(stopped.text, r"/job:worker/task:1 \(incarnation \d+\) has lost its place")
        before = chief.step
        until(lambda: chief.step > before + 20, "the others go on")
        self.assertEqual(chief.text.count("is lost"), 1, chief.text)
        for task in started.values():
            self.assertIsNone(task.process.poll(), task.text)

    def test_the_chief_may_die_and_the_job_be_started_again(self):
        flags = ("--strategy", "ps-async", "--log-every", "1", "--model-dir", f"{self.folder}/model", "--save-every",
                 "20")
        started = self.start("--max-steps", "10000000", *flags)
        chief = started["worker", 0]
        until(lambda: chief.step > 100 and glob.glob(f"{self.folder}/model/*/manifest.json"), "a step is saved")
        chief.process.kill()
        chief.end()
        for name, task in started.items():
            if name != ("worker", 0):
                self.assertEqual(task.wait(), 128, f"{task.name}:\n{task.text}")
                self.assertIn("/job:worker/task:0", task.text)
        # Under the same name, while the keys of the earlier life are still there.
        again = self.start("--max-steps", str(chief.step + 1000), *flags)
        self.check_all_zero(again)
        self.assertRegex(again["worker", 0].text, "goes on from step [1-9]")

    def test_the_chief_may_die_and_be_started_again_elsewhere(self):
        flags = ("--strategy", "ps-async", "--log-every", "1", "--model-dir", f"{self.folder}/model", "--save-every",
                 "20")
        started = self.start("--max-steps", "10000000", *flags)
        chief = started["worker", 0]
        until(lambda: chief.step > 100 and glob.glob(f"{self.folder}/model/*/manifest.json"), "a step is saved")
        chief.process.kill()
        chief.end()
        for task in started.values():
            task.wait()
        self.cluster["worker"][0] = f"127.0.0.1:{tasks.free_ports(1)[0]}"
        # While the lease of the dead chief lasts, tasks of another cluster are told so. The other keys last longer.
        until(lambda: not self.etcd.keys("/tutti/train/members"), "the lease of the dead chief is over")
        self.assertTrue(self.etcd.keys("/tutti/train/cluster"))
        again = self.start("--max-steps", str(chief.step + 1000), *flags)
        self.check_all_zero(again)
        self.assertRegex(again["worker", 0].text, "goes on from step [1-9]")

    def test_an_emptied_etcd_is_told(self):
        started = self.start("--strategy", "ps-async", "--max-steps", "10000000", "--log-every", "1")
        until(lambda: started["worker", 0].step > 0, "it trains")
        self.etcd.control("del", "--prefix", "/tutti/")
        for task in started.values():
            self.assertEqual(task.wait(), 128, f"{task.name}:\n{task.text}")
            self.assertRegex(task.text, "emptied|is lost")
        self.assertTrue(any("which was emptied or put back" in task.text for task in started.values()))

    def test_an_etcd_that_is_not_there_is_named(self):
        free, = tasks.free_ports(1)
        started = self.start("--strategy", "ps-async", "--start-timeout", "2", url=f"etcd://127.0.0.1:{free}/x")
        for task in started.values():
            self.assertEqual(task.wait(), 128, f"{task.name}:\n{task.text}")
            self.assertRegex(task.text, rf"etcd \(127.0.0.1:{free}\): .*; tried for 2 s")

    def test_a_wrong_password_is_told(self):
        for arguments in (("user", "add", "root:right"), ("user", "grant-role", "root", "root"), ("auth", "enable")):
            if arguments[0] == "user" and arguments[1] == "grant-role":
                self.etcd.control("role", "add", "root")
            done = self.etcd.control(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
        started = self.start("--strategy", "ps-async", ETCDCTL_USER="root:wrong")
        for task in started.values():
            self.assertIn(task.wait(), (1, 128), f"{task.name}:\n{task.text}")
            self.assertRegex(task.text, 'user "root": .*authentication failed')
        started = self.start("--strategy", "ps-async", "--max-steps", "30", ETCDCTL_USER="root:right")
        self.check_all_zero(started)


def main():
    global SECONDS
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=tasks.BIN)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a training takes, roughly")
    known, rest = parser.parse_known_args()
    tasks.BIN = known.bin
    SECONDS = known.seconds
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
