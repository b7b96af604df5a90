#!/usr/bin/env python3
"""A cluster of `tutti server` under `tutti run`: every role, metrics, and a task that is lost.

    tests/cluster/bare_cluster.py --bin build/bin
"""
import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import unittest
import urllib.request

BIN = "build/bin"
ROLES = ["chief", "worker 0", "worker 1", "ps 0"]


def free_row(count):
    """The first of so many free ports in a row, each held by a socket that does not listen."""
    for first in range(21000, 30000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for i, each in enumerate(sockets):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                each.bind(("127.0.0.1", first + i))
            return first, sockets
        except OSError:
            for each in sockets:
                each.close()
    raise RuntimeError("no free ports")


class BareCluster(unittest.TestCase):
    def setUp(self):
        self.http, self.held = free_row(len(ROLES))
        environment = {name: value for name, value in os.environ.items()
                       if not re.match(r"TF_CONFIG|TUTTI_", name)}
        self.environment = dict(environment, TUTTI_JOB_TOKEN="secret")
        self.job = subprocess.Popen(
            [f"{BIN}/tutti", "run", "--chief", "--workers", "2", "--ps", "1", "--devices", "2",
             "--restarts", "2", "--", f"{BIN}/tutti", "server", "--http", str(self.http)],
            env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said = []
        self.addresses = {}
        while set(self.addresses) != set(ROLES):
            role, address = self.next_listener()
            self.addresses[role] = address

    def tearDown(self):
        if self.job.poll() is None:
            self.job.kill()
        self.job.communicate()
        for each in self.held:
            each.close()

    def next_listener(self):
        for line in self.job.stdout:
            self.said.append(line)
            if found := re.match(r"([\w ]+?) +\| tutti server: \S+ listens at (\S+)", line):
                return found.groups()
        self.fail("".join(self.said))

    def status(self):
        done = subprocess.run([f"{BIN}/tutti", "status", f"tutti://{self.addresses['chief']}"],
                              env=self.environment, text=True, capture_output=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def page(self, role, path):
        port = self.http + ROLES.index(role)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.read().decode()

    def test_every_task_answers_and_is_seen(self):
        code, text = self.status()
        self.assertEqual(code, 0, text)
        for task in ("chief/task:0", "worker/task:0", "worker/task:1", "ps/task:0"):
            self.assertIn(f"/job:{task}", text)
        for role in ROLES:
            page = self.page(role, "/metrics")
            self.assertEqual(len(re.findall(r"tutti_device_variable_bytes{", page)), 2, page)
            checked = subprocess.run(["promtool", "check", "metrics"], input=page, text=True,
                                     capture_output=True)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        self.assertEqual(self.page("ps 0", "/healthz"), "ok: /job:ps/task:0\n")
        self.job.send_signal(signal.SIGTERM)
        self.job.communicate(timeout=60)
        self.assertEqual(self.job.returncode, 0)

    def test_a_lost_task_comes_back_alone_at_its_address(self):
        started = re.search(r"process_start_time_seconds (\S+)", self.page("chief", "/metrics"))[1]
        victim = next(pid for pid in children(self.job.pid) if '"type":"ps"' in environ(pid))
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(self.next_listener(), ("ps 0", self.addresses["ps 0"]))
        code, text = self.status()
        self.assertEqual(code, 0, text)
        self.assertIn("tutti run: ps 0 was ended by SIGKILL; it is started again in 1 s "
                      "(restart 1 of 2)\n", "".join(self.said))
        # The others went on.
        again = re.search(r"process_start_time_seconds (\S+)", self.page("chief", "/metrics"))[1]
        self.assertEqual(started, again)


def children(pid):
    return [int(child) for child in subprocess.run(["pgrep", "-P", str(pid)], text=True,
                                                   capture_output=True).stdout.split()]


def environ(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read().decode(errors="replace")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=BIN)
    arguments, rest = parser.parse_known_args()
    BIN = os.path.abspath(arguments.bin)
    unittest.main(argv=[sys.argv[0], *rest])
