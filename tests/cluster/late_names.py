#!/usr/bin/env python3
"""Tasks with the names of pods, as in Kubernetes: TF_CONFIG as Kubeflow's operator for TFJob writes it,
and names that do not resolve when the tasks start, since the name service learns of a pod after the pod
runs.

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


class NamedTasks(unittest.TestCase):
    """Tasks that have only the names of this test."""

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

    def start(self, config, *command):
        """A task with this TF_CONFIG; None: without one."""
        mount = (f"mount --bind {self.hosts} /etc/hosts && "
                 f"mount --bind {self.switch} /etc/nsswitch.conf && exec \"$@\"")
        environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
        environment["TUTTI_JOB_TOKEN"] = "secret"
        if config is not None:
            environment["TF_CONFIG"] = json.dumps(config)
        task = subprocess.Popen([*UNSHARE, "sh", "-c", mount, "sh", *command], text=True, env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.started.append(task)
        return task

    def name(self, host, address="127.0.0.1"):
        with open(self.hosts, "a", encoding="ascii") as file:  # the same file: it stays mounted
            file.write(f"{address} {host}\n")

    def read_until(self, task, text):
        said = []
        for line in task.stdout:
            said.append(line)
            if text in line:
                return
        self.fail(f"it ended without \"{text}\":\n{''.join(said)}")


class Operator(NamedTasks):
    """What the operator sets for `deploy/kubernetes/tfjob.yaml`: every pod has an address of its own, and one port."""

    def train(self, replicas, *flags):
        """Exit codes and outputs, by task, of a TFJob of so many replicas a type."""
        cluster = {job: [f"tutti-{job}-{i}.default.svc:2222" for i in range(count)] for job, count in replicas.items()}
        for number, address in enumerate(address for job in cluster.values() for address in job):
            self.name(address.split(":")[0], f"127.22.22.{number + 1}")
        # The evaluator is told of the cluster, which does not tell of it.
        told = {job: addresses for job, addresses in cluster.items() if job != "evaluator"}
        command = [f"{tasks.BIN}/fashion_mnist", "--model", "mlp", "--max-steps", "20", "--batch-size", "16",
                   "--start-timeout", "60", *flags]
        started = {(job, index): self.start({"cluster": told, "task": {"type": job, "index": index},
                                             "environment": "cloud"}, *command)
                   for job, count in replicas.items() for index in range(count)}
        texts = {key: task.communicate(timeout=120)[0] for key, task in started.items()}
        for key, task in started.items():
            self.assertEqual(task.returncode, 0, f"{key}: {texts[key]}")
        self.assertIn("test accuracy", texts["chief", 0] if "chief" in replicas else texts["worker", 0])
        return texts

    def test_all_roles_with_parameter_servers(self):
        with tempfile.TemporaryDirectory(prefix="tutti-models-") as models:
            texts = self.train({"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}, "--strategy", "ps-async",
                               "--model-dir", models)
            self.assertTrue(os.listdir(f"{models}/eval"))
        self.assertIn("worker    tutti-worker-0.default.svc:2222, tutti-worker-1.default.svc:2222\n", texts["chief", 0])
        self.assertIn("/job:evaluator/task:0, evaluates checkpoints", texts["evaluator", 0])

    def test_allreduce(self):
        texts = self.train({"chief": 1, "worker": 1}, "--strategy", "allreduce")
        self.assertIn("2 workers", texts["chief", 0])

    def test_one_replica_has_no_tf_config(self):
        task = self.start(None, f"{tasks.BIN}/fashion_mnist", "--model", "mlp", "--max-steps", "20", "--batch-size",
                          "16", "--strategy", "allreduce")
        text = task.communicate(timeout=90)[0]
        self.assertEqual(task.returncode, 0, text)
        self.assertIn("test accuracy", text)


class LateNames(NamedTasks):
    def start_late(self, cluster, job, index, *command):
        return self.start({"cluster": cluster, "task": {"type": job, "index": index}}, *command)

    def test_training_waits_for_its_own_name(self):
        cluster = {"worker": [f"w{i}.job:{port}" for i, port in enumerate(self.ports)]}
        command = [f"{tasks.BIN}/fashion_mnist", "--model", "mlp", "--strategy", "allreduce",
                   "--max-steps", "20", "--batch-size", "16", "--start-timeout", "60"]
        workers = [self.start_late(cluster, "worker", i, *command) for i in (0, 1)]
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
        server = self.start_late(cluster, "ps", 0, f"{tasks.BIN}/tutti", "server")
        self.read_until(server, "ps0.job: name not found; trying on for")
        self.name("ps0.job")
        self.read_until(server, f"/job:ps/task:0 listens at ps0.job:{self.ports[0]}")
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(60), 0)

    def test_a_name_that_never_resolves_is_told(self):
        cluster = {"ps": [f"ps0.job:{self.ports[0]}"], "worker": [f"w0.job:{self.ports[1]}"]}
        server = self.start_late(cluster, "ps", 0, f"{tasks.BIN}/tutti", "server", "--start-seconds",
                            "0.5")
        text = server.communicate(timeout=60)[0]
        self.assertNotEqual(server.returncode, 0, text)
        self.assertIn("ps0.job: name not found; tried for 0.", text)
        waits = self.start_late(cluster, "ps", 0, f"{tasks.BIN}/tutti", "server", "--start-seconds",
                           "600")
        self.read_until(waits, "trying on for")
        waits.send_signal(signal.SIGTERM)
        text = waits.communicate(timeout=60)[0]
        self.assertIn("stopped while its own name was tried", text)


if __name__ == "__main__":
    tasks.main(__doc__)
