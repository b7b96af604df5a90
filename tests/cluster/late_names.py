#!/usr/bin/env python3
"""Tasks whose own names do not resolve when they start, as in Kubernetes: the name service learns of
a pod after the pod runs.

    tests/cluster/late_names.py --bin build/bin

Every task runs in a mount namespace where /etc/hosts is a file of this test, to which the names are
added later. Needs root, or user namespaces.
"""
import json
import os
import signal
import subprocess
import tempfile
import unittest

import tasks
from tasks import free_ports

HOSTS = "127.0.0.1 localhost\n"
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


class LateNames(unittest.TestCase):
    def setUp(self):
        allowed = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
        if allowed.returncode != 0:
            self.skipTest(f"this machine allows no mount namespaces ({allowed.stderr.strip()})")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.hosts, self.switch = f"{folder.name}/hosts", f"{folder.name}/nsswitch.conf"
        for path, text in ((self.hosts, HOSTS), (self.switch, "hosts: files\n")):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
        self.ports = free_ports(2)
        self.started = []
        self.addCleanup(self.end)

    def end(self):
        for task in self.started:
            if task.poll() is None:
                task.kill()
            task.communicate()

    def start(self, cluster, job, index, *command):
        """A task that has only the names of this test."""
        mount = (f"mount --bind {self.hosts} /etc/hosts && "
                 f"mount --bind {self.switch} /etc/nsswitch.conf && exec \"$@\"")
        config = {"cluster": cluster, "task": {"type": job, "index": index}}
        task = subprocess.Popen(
            [*UNSHARE, "sh", "-c", mount, "sh", *command], text=True,
            env=dict(os.environ, TUTTI_JOB_TOKEN="secret", TF_CONFIG=json.dumps(config)),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.started.append(task)
        return task

    def name(self, host):
        with open(self.hosts, "a", encoding="ascii") as file:  # the same file: it stays mounted
            file.write(f"127.0.0.1 {host}\n")

    def read_until(self, task, text):
        said = []
        for line in task.stdout:
            said.append(line)
            if text in line:
                return
        self.fail(f"it ended without \"{text}\":\n{''.join(said)}")

    def test_training_waits_for_its_own_name(self):
        cluster = {"worker": [f"w{i}.job:{port}" for i, port in enumerate(self.ports)]}
        command = [f"{tasks.BIN}/fashion_mnist", "--model", "mlp", "--strategy", "allreduce",
                   "--max-steps", "20", "--batch-size", "16", "--start-timeout", "60"]
        workers = [self.start(cluster, "worker", i, *command) for i in (0, 1)]
        # The first has tried for a while when its name comes.
        self.read_until(workers[0], f"cannot listen at w0.job:{self.ports[0]}: w0.job: name not "
                        "found; trying on for")
        self.name("w0.job")
        self.name("w1.job")
        for worker in workers:
            text = worker.communicate(timeout=90)[0]
            self.assertEqual(worker.returncode, 0, text)

    def test_a_server_waits_for_its_own_name(self):
        cluster = {"ps": [f"ps0.job:{self.ports[0]}"], "worker": [f"w0.job:{self.ports[1]}"]}
        server = self.start(cluster, "ps", 0, f"{tasks.BIN}/tutti", "server")
        self.read_until(server, "ps0.job: name not found; trying on for")
        self.name("ps0.job")
        self.read_until(server, f"/job:ps/task:0 listens at ps0.job:{self.ports[0]}")
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(60), 0)

    def test_a_name_that_never_resolves_is_told(self):
        cluster = {"ps": [f"ps0.job:{self.ports[0]}"], "worker": [f"w0.job:{self.ports[1]}"]}
        server = self.start(cluster, "ps", 0, f"{tasks.BIN}/tutti", "server", "--start-seconds",
                            "0.5")
        text = server.communicate(timeout=60)[0]
        self.assertNotEqual(server.returncode, 0, text)
        self.assertIn("ps0.job: name not found; tried for 0.", text)
        waits = self.start(cluster, "ps", 0, f"{tasks.BIN}/tutti", "server", "--start-seconds",
                           "600")
        self.read_until(waits, "trying on for")
        waits.send_signal(signal.SIGTERM)
        text = waits.communicate(timeout=60)[0]
        self.assertIn("stopped while its own name was tried", text)


if __name__ == "__main__":
    tasks.main(__doc__)
