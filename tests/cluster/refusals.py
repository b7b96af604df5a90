#!/usr/bin/env python3
"""Processes that have no place in a cluster: each is told what is wrong, by a live task.

    tests/cluster/refusals.py --bin build/bin

A cluster of a ps task, which is the coordinator, and a worker runs all the time, and must be as it was afterwards. What
is refused is refused within about a second; the ceiling is ten times as high.
"""
import json
import os
import socket
import struct
import subprocess
import tempfile
import unittest

import servers
import tasks

CEILING = 10  # seconds
PS = "/job:ps/task:0"
WORKER = "/job:worker/task:0"
# The head of every handshake (tutti/net/handshake.cc).
MAGIC = b"TUTTI\0\r\n"
VERSION = 3
REFUSAL = 4
OTHER_VERSION = 1  # the reason


class Refusals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.spec = tasks.cluster_of(ps=1, worker=2)
        cls.tasks = [servers.ServerTask(cls.spec, name, cls.folder.name, tasks.BIN, "--coordinator", PS)
                     for name in (PS, WORKER)]
        for task in cls.tasks:
            task.start()
        for task in cls.tasks:
            task.await_listening()
        cls.ps = cls.tasks[0].address

    @classmethod
    def tearDownClass(cls):
        for task in cls.tasks:
            task.kill()
        cls.folder.cleanup()

    def tearDown(self):
        for task in self.tasks:
            self.assertIsNone(task.process.poll(), task.said())
        status = self.tutti("status", f"tutti://{self.ps}", "--json")
        self.assertNotIn("error", json.loads(status.stdout.splitlines()[0]), status.stdout + status.stderr)

    def tutti(self, *words, **variables):
        return subprocess.run([f"{tasks.BIN}/tutti", *words], env=dict(servers.environment(), **variables),
                              text=True, capture_output=True, timeout=CEILING, check=False)

    def serve(self, job, index, *flags, spec=None, coordinator=PS, **variables):
        """A server that must end by itself: its code and what it says."""
        config = json.dumps({"cluster": spec or self.spec, "task": {"type": job, "index": index}})
        done = self.tutti("server", "--coordinator", coordinator, *flags, TF_CONFIG=config, **variables)
        return done.returncode, done.stdout + done.stderr

    def refused(self, answer, *words):
        code, text = answer
        self.assertNotEqual(code, 0, text)
        for word in words:
            self.assertIn(word, text)

    def test_a_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.refused(self.serve("worker", 1, "--bind", address), address, "in use")

    def test_another_cluster(self):
        other = {"ps": self.spec["ps"], "worker": [self.spec["worker"][0], "127.0.0.1:9"]}
        self.refused(self.serve("worker", 1, "--bind", self.spec["worker"][1], spec=other), "has another cluster than",
                     f"cluster.worker[1]={self.spec['worker'][1]} here, cluster.worker[1]=127.0.0.1:9 there")

    def test_a_wrong_token(self):
        self.refused(self.serve("worker", 1, TUTTI_JOB_TOKEN="wrong"), "token", PS)
        done = self.tutti("status", f"tutti://{self.ps}", TUTTI_JOB_TOKEN="wrong")
        self.refused((done.returncode, done.stdout + done.stderr), "token")

    def test_an_index_that_is_taken(self):
        self.refused(self.serve("worker", 0, "--bind", "127.0.0.1:0"), f"{WORKER} is taken by another process",
                     self.spec["worker"][0])

    def test_another_version(self):
        hello = self.first_words()
        self.assertEqual(hello[:10], MAGIC + struct.pack("<H", VERSION))
        host, port = self.ps.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=CEILING) as connection:
            # No more than the version: what the task does not read would reset the connection.
            connection.sendall(MAGIC + struct.pack("<H", VERSION + 1) + hello[10:12])
            said = b"".join(iter(lambda: connection.recv(4096), b""))
        self.assertEqual(said[:10], MAGIC + struct.pack("<H", VERSION))
        kind, reason, length = said[12], said[16], struct.unpack("<H", said[17:19])[0]
        self.assertEqual((kind, reason), (REFUSAL, OTHER_VERSION))
        self.assertEqual(said[19:19 + length].decode(),
                         f"protocol version is {VERSION + 1}, expected {VERSION}: all processes must run the same release")

    def first_words(self):
        """What a client says first, recorded at a listener that answers nothing."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            listener.settimeout(CEILING)
            client = subprocess.Popen(
                [f"{tasks.BIN}/tutti", "status", f"tutti://127.0.0.1:{listener.getsockname()[1]}"],
                env=servers.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(CEILING)
                    return connection.recv(4096)
            finally:
                client.kill()
                client.wait()


if __name__ == "__main__":
    tasks.main(__doc__)
