#!/usr/bin/env python3
"""Kills and stops the tasks of a cluster and its clients, and checks what the others say and do.

    tests/fault/cluster_faults.py --bin build/bin --kills 300 --stops 50 [--seed 1]

A cluster of `tutti server` processes (a chief, which is the coordinator, a worker and three ps) stays up through all
rounds. In every round a client (tests/fault/cluster_client.cc) works on the worker and on two ps in one of four phases:
it creates sessions, registers steps, runs steps, or pauses between them. Beside it another client, connected to the
chief, runs steps on the third ps. Then one process is killed (SIGKILL) or stopped (SIGSTOP) at a random moment:

  ps, worker   the client's call must end with UNAVAILABLE and name the task
  spare        a ps that the client does not use: the client must go on
  client       the tasks must forget its sessions and steps; one that was stopped and goes on must end

No other task may end, the second client must go on with right values unless its own task was struck, and the struck
task, started again, must be usable. A stopped task that goes on (SIGCONT) must end by itself and say why, and the
counters on the tasks that live must be as they were. Prints one line a round, and how long the client took to notice.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))

import rounds
import servers
import tasks

PATIENCE = servers.PATIENCE
SILENCE = 5  # seconds until a stopped task is given up
PHASES = ("create", "register", "step", "between")
VICTIMS = ("ps", "worker", "client", "spare")
# In an order in which a few rounds meet every victim and every phase.
CASES = [f"{VICTIMS[i % 4]}, {PHASES[(i + i // 4) % 4]}" for i in range(16)]
USED = ("/job:ps/task:0", "/job:ps/task:1")
SPARE = "/job:ps/task:2"
WORKER = "/job:worker/task:0"
CHIEF = "/job:chief/task:0"


class Client:
    """A client, its lines read by a thread as they come."""

    def __init__(self, args, target, phase, name, used):
        self.process = subprocess.Popen(
            [f"{args.bin}/cluster_client", f"tutti://{target}", phase, name, *used], text=True,
            env=servers.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        self.running = threading.Event()  # it has begun, or ended
        self.end = None
        self.text = ""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.text += line
            if line.startswith("{"):
                self.end = json.loads(line)
            self.running.set()
        self.running.set()

    def await_running(self):
        if not self.running.wait(PATIENCE) or "running" not in self.text:
            raise rounds.Wrong(f"a client did not start: {self.text}")

    def await_end(self, seconds):
        """What it said at its end."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise rounds.Wrong(f"the client hangs: nothing for {seconds:.0f} s") from None
        self.reader.join()
        if self.process.returncode != 0 or self.end is None:
            raise rounds.Wrong(f"the client ended with {self.process.returncode}: {self.text[-800:]}")
        return self.end

    def finish(self):
        """Asks it to end; it must have succeeded all the time."""
        self.process.stdin.close()
        end = self.await_end(PATIENCE)
        if "code" in end:
            raise rounds.Wrong(f"a client that was not concerned failed: {end}")
        return end

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


class Cluster:
    def __init__(self, args):
        self.args = args
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-cluster-faults-")
        spec = tasks.cluster_of(chief=1, worker=1, ps=3)
        names = [CHIEF, WORKER, *USED, SPARE]
        self.tasks = {name: servers.ServerTask(spec, name, self.folder.name, args.bin, "--coordinator", CHIEF,
                                               "--start-seconds", "20") for name in names}
        for task in self.tasks.values():
            task.start()
        for task in self.tasks.values():
            task.await_listening()

    def close(self):
        for task in self.tasks.values():
            task.kill()
        self.folder.cleanup()

    def check_alive(self, but):
        for task in self.tasks.values():
            if task is not but and task.process.poll() is not None:
                raise rounds.Wrong(f"{task.name} ended with {task.process.returncode}: {task.said()[-800:]}")

    def status(self, name):
        done = subprocess.run([f"{self.args.bin}/tutti", "status", f"tutti://{self.tasks[name].address}", "--json"],
                              env=servers.environment(), capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start_again(self, task):
        task.kill()
        task.start()
        task.await_listening()


def check_named(end, name):
    if "code" not in end:
        raise rounds.Wrong(f"the client ended without an error: {end}")
    if end["code"] != "UNAVAILABLE" or name not in end["message"]:
        raise rounds.Wrong(f"expected UNAVAILABLE that names {name}, got {end['code']}: {end['message']}")


def await_forgotten(cluster, struck, ceiling):
    """Until no task has a session or a step of a client that was struck."""
    while True:
        left = [row["task"] for row in cluster.status(WORKER)
                if row["task"] in (WORKER, *USED) and (row.get("sessions") or row.get("registered_steps"))]
        if not left:
            return time.monotonic() - struck
        if time.monotonic() - struck > ceiling:
            raise rounds.Wrong(f"{left} still have what a client made that does not answer")


def counters(cluster, args, name, used):
    """The client's counters on these tasks."""
    reader = Client(args, cluster.tasks[CHIEF].address, "read", name, used)
    try:
        return reader.await_end(PATIENCE)["values"]
    finally:
        reader.close()


def await_given_up(cluster, victim, struck):
    """Until the others have given the task up, which they do when one that had a link to it reports its loss. A client may
    notice earlier: nobody learns from it, and it does not wait as long for an answer in a handshake."""
    while True:
        linked = [row["task"] for row in cluster.status(CHIEF) if row["task"] != victim.name
                  for link in row.get("links", []) if link["peer"].startswith(victim.name)]
        if not linked:
            return
        if time.monotonic() - struck > SILENCE * rounds.STOP_CEILING_FACTOR:
            raise rounds.Wrong(f"{linked} have not given {victim.name} up")


def check_fenced(cluster, args, victim, name, struck):
    """A task that was given up goes on: it ends by itself, says why, and has changed nothing."""
    await_given_up(cluster, victim, struck)
    alive = [task for task in USED if task != victim.name]
    before = counters(cluster, args, name, alive)
    victim.process.send_signal(signal.SIGCONT)
    try:
        code = victim.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise rounds.Wrong(f"{victim.name} goes on after it was given up: {victim.said()[-800:]}") from None
    if code == 0 or not re.search("lost|given up|no sign of life", victim.said()):
        raise rounds.Wrong(f"{victim.name} ended with {code} and does not say why: {victim.said()[-800:]}")
    if counters(cluster, args, name, alive) != before:
        raise rounds.Wrong(f"{victim.name} has changed a variable after it was given up")


def check_goes_on(client):
    """A client that was stopped goes on: it learns that it was given up, unless it had nothing on any task just then."""
    client.process.send_signal(signal.SIGCONT)
    client.process.stdin.close()
    end = client.await_end(PATIENCE)
    if end.get("code", "UNAVAILABLE") != "UNAVAILABLE":
        raise rounds.Wrong(f"expected UNAVAILABLE or no error, got {end['code']}: {end['message']}")


def strike(cluster, args, what, role, phase, client, generator, name):
    victim = {"ps": cluster.tasks[generator.choice(USED)], "worker": cluster.tasks[WORKER],
              "spare": cluster.tasks[SPARE], "client": None}[role]
    time.sleep(generator.random() * 0.15)
    struck = time.monotonic()
    (victim or client).process.send_signal(rounds.SIGNALS[what])
    ceiling = rounds.KILL_CEILING_SECONDS if what == rounds.KILL else SILENCE * rounds.STOP_CEILING_FACTOR
    if role == "client":
        if what == rounds.KILL:
            client.process.wait()
        seconds = await_forgotten(cluster, struck, ceiling)
        cluster.check_alive(None)
        if what == rounds.STOP:
            check_goes_on(client)
        return seconds
    if role == "spare":
        # The time in which it would have been told of a lost task.
        time.sleep(0.2)
        client.finish()
        cluster.check_alive(victim)
        if what == rounds.STOP:
            check_fenced(cluster, args, victim, name, struck)
        cluster.start_again(victim)
        return 0.0
    end = client.await_end(ceiling)
    # A client that creates a session may not have reached the task of its target: it knows the address alone.
    check_named(end, victim.address if (role, phase) == ("worker", "create") else victim.name)
    cluster.check_alive(victim)
    if what == rounds.STOP:
        check_fenced(cluster, args, victim, name, struck)
        cluster.check_alive(victim)
    cluster.start_again(victim)
    # A call that began after the strike is measured from its own beginning.
    return end["ended"] - max(struck, end["began"])


def run_round(cluster, args, number, what, case, generator):
    role, phase = case.split(", ")
    name = f"client{number}"
    client = Client(args, cluster.tasks[WORKER].address, phase, name, USED)
    bystander = Client(args, cluster.tasks[CHIEF].address, "between", f"bystander{number}",
                       [CHIEF if role == "spare" else SPARE])
    try:
        client.await_running()
        bystander.await_running()
        seconds = strike(cluster, args, what, role, phase, client, generator, name)
        bystander.finish()
        return seconds
    finally:
        client.close()
        bystander.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    rounds.add_arguments(parser)
    args = parser.parse_args()
    cluster = Cluster(args)
    number = 0

    def one(what, case, generator):
        nonlocal number, cluster
        number += 1
        try:
            return run_round(cluster, args, number, what, case, generator)
        except rounds.Wrong:
            # What went wrong may still be going on: the next round has a cluster of its own.
            cluster.close()
            cluster = Cluster(args)
            raise

    try:
        return rounds.run(args, {rounds.KILL: CASES, rounds.STOP: CASES}, one, "noticed")
    finally:
        cluster.close()


if __name__ == "__main__":
    sys.exit(main())
