#!/usr/bin/env python3
"""A cluster of `tutti server` whose members a real etcd of three keeps, while parts of both are lost.

    tests/cluster/etcd.py --bin build/bin

Needs the packages etcd-server and etcd-client.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import tasks
from tasks import free_ports

MEMBERS = 3
CEILING = 120  # seconds for what takes one or a few


class Etcd:
    """Three members on loopback, with their data in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.ports = free_ports(MEMBERS)
        self.peers = free_ports(MEMBERS)
        self.members = [None] * MEMBERS
        for i in range(MEMBERS):
            self.start(i)
        self.wait_for(range(MEMBERS))

    def start(self, i):
        client, peer = f"http://127.0.0.1:{self.ports[i]}", f"http://127.0.0.1:{self.peers[i]}"
        cluster = ",".join(f"m{j}=http://127.0.0.1:{port}" for j, port in enumerate(self.peers))
        with open(f"{self.folder}/etcd{i}.log", "ab") as log:
            self.members[i] = subprocess.Popen(
                ["etcd", "--name", f"m{i}", "--data-dir", f"{self.folder}/m{i}",
                 "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                 "--initial-cluster", cluster, "--heartbeat-interval", "50",
                 "--election-timeout", "500"], stdout=log, stderr=log)

    def control(self, *arguments, member=0):
        return subprocess.run(["etcdctl", f"--endpoints=127.0.0.1:{self.ports[member]}",
                               *arguments], capture_output=True, text=True, check=False)

    def wait_for(self, members):
        until(lambda: all(self.control("endpoint", "health", member=i).returncode == 0
                          for i in members), "the etcd is well")

    def keys(self, prefix):
        return self.control("get", "--prefix", "--keys-only", prefix).stdout.split()

    def kill(self, i):
        self.members[i].kill()
        self.members[i].wait()

    def leader(self):
        """The member that leads; the others follow."""
        for i in range(MEMBERS):
            status = self.control("endpoint", "status", "--write-out=json", member=i)
            if status.returncode == 0:
                status = json.loads(status.stdout)[0]["Status"]
                if status.get("leader") == status["header"]["member_id"]:
                    return i
        raise AssertionError("no member of the etcd leads")

    def stop(self, i):
        self.members[i].send_signal(signal.SIGSTOP)

    def go_on(self, i):
        self.members[i].send_signal(signal.SIGCONT)

    def end(self):
        for member in self.members:
            if member.poll() is None:
                member.kill()
            member.wait()

    def url(self, job):
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in self.ports) + f"/{job}"


def until(condition, what):
    late = time.monotonic() + CEILING
    while not condition():
        if time.monotonic() > late:
            raise AssertionError(f"not within {CEILING} s: {what}")
        time.sleep(0.05)


class Task:
    """A `tutti server`, and what it says."""

    def __init__(self, cluster, job, index, coordinator, *flags):
        config = {"cluster": cluster, "task": {"type": job, "index": index}}
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("ETCDCTL_")}
        self.process = subprocess.Popen(
            [f"{tasks.BIN}/tutti", "server", "--coordinator", coordinator, *flags],
            env=dict(environment, TF_CONFIG=json.dumps(config), TUTTI_JOB_TOKEN="secret"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
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

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()


class EtcdCoordinator(unittest.TestCase):
    def setUp(self):
        if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
            self.skipTest("there is no etcd; scripts/packages-test.txt names the packages")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.etcd = Etcd(folder.name)
        self.addCleanup(self.etcd.end)
        ports = free_ports(3)
        self.cluster = {job: [f"127.0.0.1:{port}"]
                        for job, port in zip(("chief", "ps", "worker"), ports)}
        self.tasks = {}

    def start(self, *jobs):
        for job in jobs:
            task = Task(self.cluster, job, 0, self.etcd.url("train"))
            self.addCleanup(task.end)
            self.tasks[job] = task
        self.wait_for_members("chief", "ps", "worker")

    def members(self):
        return sorted(re.findall(r"/tutti/train/members/job:(\w+)/task:0",
                                 " ".join(self.etcd.keys("/tutti/train/members"))))

    def wait_for_members(self, *jobs):
        until(lambda: self.members() == sorted(jobs), f"the members are {jobs}")

    def run_steps(self):
        """A client that trains over all tasks."""
        client = subprocess.run(
            [f"{tasks.BIN}/cluster_in_graph", f"tutti://{self.cluster['worker'][0]}", "1"],
            env=dict(os.environ, TUTTI_JOB_TOKEN="secret"), capture_output=True, text=True,
            timeout=CEILING, check=False)
        self.assertEqual(client.returncode, 0, client.stdout + client.stderr)
        self.assertIn("w is near 3", client.stdout)

    def end_in_good_order(self):
        self.tasks["chief"].process.send_signal(signal.SIGTERM)
        for job, task in self.tasks.items():
            self.assertEqual(task.process.wait(CEILING), 0, f"{job}:\n{task.text}")

    def test_lost_members_are_not_noticed(self):
        self.start("chief", "ps", "worker")
        for i in range(MEMBERS):
            self.etcd.kill(i)
            self.run_steps()
            self.etcd.start(i)
            self.etcd.wait_for([i])
        self.assertEqual(self.members(), ["chief", "ps", "worker"])
        for task in self.tasks.values():
            self.assertIsNone(task.process.poll(), task.text)
        self.end_in_good_order()
        self.assertEqual(self.members(), [])

    def test_a_lost_majority_pauses(self):
        self.start("chief", "ps", "worker")
        self.etcd.kill(0)
        self.etcd.kill(1)
        for task in self.tasks.values():
            until(lambda task=task: "what needs it waits" in task.text, "a task says that it waits")
        self.run_steps()
        self.etcd.start(0)
        self.etcd.start(1)
        for task in self.tasks.values():
            until(lambda task=task: "answers again, after" in task.text, "a task goes on")
            self.assertIsNone(task.process.poll(), task.text)
        self.assertEqual(self.members(), ["chief", "ps", "worker"])
        self.end_in_good_order()

    def test_tasks_end_while_a_majority_is_lost(self):
        self.start("chief", "ps", "worker")
        self.etcd.kill(0)
        self.etcd.kill(1)
        for task in self.tasks.values():
            until(lambda task=task: "what needs it waits" in task.text, "a task says that it waits")
            task.process.send_signal(signal.SIGTERM)
        for job, task in self.tasks.items():
            # Far below the 60 s for which a task would wait for the etcd.
            self.assertEqual(task.process.wait(40), 0, f"{job}:\n{task.text}")

    def test_the_chief_may_be_lost_and_start_anew(self):
        self.start("chief", "ps", "worker")
        before = self.etcd.control("get", "/tutti/train/members/job:chief/task:0").stdout
        self.tasks["chief"].process.kill()
        self.wait_for_members("ps", "worker")
        self.start("chief")
        self.assertNotEqual(
            self.etcd.control("get", "/tutti/train/members/job:chief/task:0").stdout, before)
        self.run_steps()
        self.end_in_good_order()

    def test_a_task_that_was_stopped_has_lost_its_place(self):
        self.start("chief", "ps", "worker")
        stopped = self.tasks.pop("worker")
        stopped.process.send_signal(signal.SIGSTOP)
        self.wait_for_members("chief", "ps")
        stopped.process.send_signal(signal.SIGCONT)
        self.assertEqual(stopped.process.wait(CEILING), 128)
        stopped.end()
        self.assertIn("/job:worker/task:0 (incarnation ", stopped.text)
        self.assertIn("has lost its place: it gave no sign of life for 5 s", stopped.text)
        self.end_in_good_order()

    def test_an_etcd_that_is_not_there_is_named(self):
        free, = free_ports(1)
        task = Task(self.cluster, "ps", 0, f"etcd://127.0.0.1:{free}", "--start-seconds", "1")
        self.addCleanup(task.end)
        self.assertNotEqual(task.process.wait(CEILING), 0)
        task.end()
        self.assertRegex(task.text, rf"etcd \(127.0.0.1:{free}\): .*; tried for 1 s")

    def test_another_cluster_of_the_same_name_is_told(self):
        self.start("chief", "ps", "worker")
        other = dict(self.cluster, evaluator=[f"127.0.0.1:{free_ports(1)[0]}"])
        task = Task(other, "evaluator", 0, self.etcd.url("train"))
        self.addCleanup(task.end)
        self.assertNotEqual(task.process.wait(CEILING), 0)
        task.end()
        self.assertIn("its members have another cluster: cluster.evaluator[0]=", task.text)
        self.end_in_good_order()


if __name__ == "__main__":
    tasks.main(__doc__)
