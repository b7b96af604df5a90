#!/usr/bin/env python3
"""Starts training tasks by hand, with TF_CONFIG, as any launcher would, and checks how they end.

    tests/cluster/hand_started.py --bin build/bin
"""
import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import tasks
from tasks import cluster_of


def start(cluster, job, index, *flags, **others):
    return tasks.start(cluster, job, index, "--max-steps", "20", "--batch-size", "16",
                       "--start-timeout", "20", *flags, **others)


def listens(address, seconds=60):
    """Is somebody there within the time?"""
    host, port = address.split(":")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False


def finish(*started, seconds=90):
    """Exit codes and outputs."""
    deadline = time.monotonic() + seconds
    ended = []
    for task in started:
        try:
            text, _ = task.communicate(timeout=max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            task.kill()
            text, _ = task.communicate()
            text += "\n(killed by the test: it did not end)"
        ended.append((task.returncode, text))
    return ended


def first_to_end(*started):
    """Waits until one of the tasks, the only children of this process, has ended."""
    pid = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid
    return next(task for task in started if task.pid == pid)


class HandStarted(unittest.TestCase):
    def check_all_zero(self, ended):
        for code, text in ended:
            self.assertEqual(code, 0, text)

    def test_chief_and_two_workers(self):
        cluster = cluster_of(chief=1, worker=2)
        ended = finish(start(cluster, "worker", 1), start(cluster, "chief", 0),
                       start(cluster, "worker", 0))
        self.check_all_zero(ended)
        self.assertIn("test accuracy", ended[1][1])
        self.assertIn("3 workers", ended[1][1])
        for (_, text), role in zip(ended, ("worker/task:1, rank 2", "chief/task:0, rank 0",
                                           "worker/task:0, rank 1")):
            self.assertIn(f"fashion_mnist: /job:{role} of 3, strategy allreduce\n", text)
        self.assertIn(f"fashion_mnist: chief     {cluster['chief'][0]}\n", ended[1][1])
        self.assertIn(f"fashion_mnist: worker    {', '.join(cluster['worker'])}\n", ended[1][1])
        self.assertNotIn(cluster["chief"][0], ended[0][1])
        self.assertNotIn("test accuracy", ended[0][1])

    def test_workers_only(self):
        cluster = cluster_of(worker=2)
        self.check_all_zero(finish(start(cluster, "worker", 0), start(cluster, "worker", 1)))

    def test_one_task_cluster(self):
        self.check_all_zero(finish(start(cluster_of(worker=1), "worker", 0)))

    # A firewall that opens the ports of the cluster spec is enough.
    def test_tasks_listen_at_the_ports_of_their_spec_only(self):
        places = (("chief", 0), ("worker", 0), ("worker", 1))
        for transport in ("tcp", "auto"):
            cluster = cluster_of(chief=1, worker=2)
            started = [start(cluster, *place, "--transport", transport, "--max-steps", "100000000",
                             "--log-every", "1") for place in places]
            while line := started[0].stdout.readline():
                if line.startswith("step "):  # all links stand
                    break
            self.assertTrue(line, "the chief has ended")
            for task, (job, index) in zip(started, places):
                port = int(cluster[job][index].split(":")[1])
                # Where memory joins all tasks, they only need the chief's.
                expected = {port} if transport == "tcp" or job == "chief" else set()
                self.assertEqual(tasks.listening_ports(task.pid), expected, (transport, job, index))
            started[0].send_signal(signal.SIGTERM)
            for code, text in finish(*started):
                self.assertEqual(code, 128 + signal.SIGTERM, text)

    def test_missing_worker_is_named(self):
        cluster = cluster_of(worker=3)
        ended = finish(*[start(cluster, "worker", i, "--start-timeout", "3") for i in (0, 1)])
        for code, text in ended:
            self.assertGreaterEqual(code, 128, text)
            self.assertRegex(text, r"rank 2")

    def test_signal_ends_the_waiting_for_others(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            cluster = cluster_of(worker=2)
            task = start(cluster, "worker", 0, "--start-timeout", "600")
            self.assertTrue(listens(cluster["worker"][0]))
            task.send_signal(number)
            [(code, text)] = finish(task)
            self.assertEqual(code, 128 + number, text)
            self.assertIn("while workers were waited for", text)

    def test_output_that_nobody_reads_ends_no_training(self):
        environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
        command = [f"{tasks.BIN}/fashion_mnist", "--model", "mlp", "--max-steps", "20",
                   "--log-every", "1"]
        for closed in (">/dev/null 2>/dev/full", ">/dev/null 2>&-", "2>&1 >/dev/null | true"):
            ended = subprocess.run(["bash", "-o", "pipefail", "-c", f"{' '.join(command)} {closed}"],
                                   env=environment, timeout=90)
            self.assertEqual(ended.returncode, 0, closed)
        with open("/dev/full", "w") as full:
            lost = subprocess.run(command, env=environment, timeout=90, stdout=full,
                                  stderr=subprocess.PIPE, text=True)
        self.assertEqual(lost.returncode, 1, lost.stderr)
        self.assertIn("results could not be written to stdout", lost.stderr)

    def test_wrong_token_is_refused_and_named(self):
        cluster = cluster_of(worker=2)
        ended = finish(start(cluster, "worker", 0, "--start-timeout", "5"),
                       start(cluster, "worker", 1, "--start-timeout", "5", token="other"))
        self.assertNotEqual(ended[0][0], 0, ended[0][1])
        self.assertNotEqual(ended[1][0], 0, ended[1][1])
        self.assertIn("token", ended[0][1])
        self.assertIn("token", ended[1][1])

    def test_no_task_listens_beyond_its_host_without_a_token(self):
        # An address of this host that others reach.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
            except OSError as error:
                self.skipTest(f"this host has no way to others ({error})")
            host = probe.getsockname()[0]
        ports = tasks.free_ports(2)
        cluster = {"worker": [f"{host}:{ports[0]}", f"127.0.0.1:{ports[1]}"]}
        for index in (0, 1):
            (code, text), = finish(start(cluster, "worker", index, token=""))
            self.assertEqual(code, 2, text)
            self.assertIn("TUTTI_JOB_TOKEN is not set, and whoever reaches /job:worker/task:0 "
                          f"({cluster['worker'][0]}) could take a place in this job", text)
            self.assertIn("--insecure", text)
        self.check_all_zero(finish(*[start(cluster, "worker", i, "--insecure", token="")
                                     for i in (0, 1)]))

    def test_no_parameter_server_listens_beyond_its_host_without_a_token(self):
        cluster = {"worker": ["127.0.0.1:1"], "ps": ["192.0.2.1:1"]}
        for job in ("worker", "ps"):
            (code, text), = finish(start(cluster, job, 0, "--strategy", "ps-async", token=""))
            self.assertEqual(code, 2, text)
            self.assertIn("whoever reaches /job:ps/task:0 (192.0.2.1:1)", text)

    def test_tasks_of_loopback_need_no_token(self):
        cluster = cluster_of(worker=2)
        self.check_all_zero(finish(*[start(cluster, "worker", i, token="") for i in (0, 1)]))

    def test_a_task_of_another_cluster_is_told_so(self):
        cluster = cluster_of(worker=2)
        other = {"worker": [cluster["worker"][0], *cluster_of(worker=1)["worker"]]}
        ended = finish(start(cluster, "worker", 0, "--start-timeout", "5"),
                       start(other, "worker", 1, "--start-timeout", "5"))
        for code, text in ended:
            self.assertNotEqual(code, 0, text)
            self.assertIn(f"it has cluster.worker[1]={other['worker'][1]}, "
                          f"rank 0 has cluster.worker[1]={cluster['worker'][1]}", text)

    def test_second_process_of_a_task_is_refused(self):
        cluster = cluster_of(worker=3)
        chief = start(cluster, "worker", 0)
        twins = [start(cluster, "worker", 1) for _ in range(2)]
        # Whichever comes second is refused; the others wait for worker 2.
        refused = first_to_end(chief, *twins)
        self.assertIn(refused, twins, "the chief ended first")
        [(code, text)] = finish(refused)
        self.assertNotEqual(code, 0, text)
        self.assertIn("taken", text)
        [first] = [twin for twin in twins if twin is not refused]
        self.check_all_zero(finish(start(cluster, "worker", 2), first, chief))

    def check_disagreement(self, flag, one, other, message):
        cluster = cluster_of(worker=2)
        ended = finish(start(cluster, "worker", 0, flag, one), start(cluster, "worker", 1, flag, other))
        # Whoever is late learns of it from the other.
        self.assertIn(1, [code for code, _ in ended])
        for code, text in ended:
            self.assertIn(code, (1, 128), text)
            self.assertIn(message, text)

    def test_batch_sizes_differ(self):
        self.check_disagreement("--batch-size", "16", "17",
                                "worker 1 does not fit worker 0: batch-size is 17, expected 16")

    def test_seeds_differ(self):
        self.check_disagreement("--seed", "1", "2", "seed is 2, expected 1")

    def test_models_differ(self):
        self.check_disagreement("--model", "mlp", "cnn", "worker 1 does not fit worker 0: ")

    def test_only_the_worker_at_fault_exits_as_such(self):
        cluster = cluster_of(worker=2)
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/train-images-idx3-ubyte", "w", encoding="ascii") as broken:
                broken.write("no images")
            ended = finish(start(cluster, "worker", 0),
                           start(cluster, "worker", 1, TUTTI_DATA=folder))
        self.assertEqual(ended[1][0], 1, ended[1][1])
        self.assertEqual(ended[0][0], 128, ended[0][1])
        self.assertIn("/job:worker/task:1 failed: ", ended[0][1])

    def test_signal_to_one_worker_stops_all(self):
        for signalled in (0, 1):
            cluster = cluster_of(worker=2)
            workers = [start(cluster, "worker", i, "--max-steps", "100000000", "--log-every", "1")
                       for i in (0, 1)]
            while line := workers[0].stdout.readline():
                if line.startswith("step "):
                    break
            workers[signalled].send_signal(signal.SIGTERM)
            ended = finish(*workers)
            # None of them has finished its training, and the first says why.
            for code, text in ended:
                self.assertEqual(code, 128 + signal.SIGTERM, text)
                self.assertNotIn("test accuracy", text)
            self.assertRegex(ended[0][1], r"stopped after step \d+ of 100000000 by signal 15 "
                             rf"\(Terminated\) to worker {signalled}\n")

    # Where descriptors run out differs: before the meeting, in it, or while links are opened. Both
    # workers learn which limit it was.
    def test_too_few_descriptors_are_named_by_all(self):
        if tasks.sanitized():
            self.skipTest("a sanitizer opens files of its own")
        for limit in range(6, 40):
            cluster = cluster_of(worker=2)
            ended = finish(start(cluster, "worker", 0, "--start-timeout", "3"),
                           start(cluster, "worker", 1, "--start-timeout", "3",
                                 limit=f"-n {limit}"))
            if ended[1][0] == 0:
                self.assertEqual(ended[0][0], 0, ended[0][1])
                break
            self.assertIn(f"may open {limit}: raise its limit (ulimit -n)", ended[1][1])
            self.assertNotEqual(ended[0][0], 0, ended[0][1])
            if "after 3 s" not in ended[0][1]:  # a worker that never came could tell nothing
                self.assertIn("(ulimit -n)", ended[0][1], limit)
        self.assertGreater(limit, 9, "so few suffice that nothing was tried")

    def test_too_little_memory_is_named(self):
        if tasks.sanitized():
            self.skipTest("a sanitizer takes more addresses than the limit")
        cluster = cluster_of(worker=2)
        # As much as loading the program takes, and nothing for threads.
        limit = next(kilobytes for kilobytes in range(40000, 1000000, 2000)
                     if tasks.loads(f"-v {kilobytes}"))
        ended = finish(start(cluster, "worker", 0, "--start-timeout", "3"),
                       start(cluster, "worker", 1, "--start-timeout", "3", limit=f"-v {limit}"))
        self.assertEqual(ended[1][0], 1, ended[1][1])
        self.assertIn("raise the limit of memory (ulimit -v)", ended[1][1])
        self.assertNotEqual(ended[0][0], 0, ended[0][1])

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            (code, text), = finish(
                start({"worker": [address, "127.0.0.1:1"]}, "worker", 0, "--start-timeout", "3"))
        self.assertNotEqual(code, 0, text)
        self.assertIn(address, text)

    def test_port_of_another_than_the_first_in_use(self):
        cluster = cluster_of(worker=2)
        host, port = cluster["worker"][1].split(":")
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind((host, int(port)))
            taken.listen()
            ended = finish(*[start(cluster, "worker", i, "--transport", "tcp") for i in (0, 1)])
        for code, text in ended:
            self.assertNotEqual(code, 0, text)
            self.assertIn(f"cannot listen at {cluster['worker'][1]}: address already in use", text)

    def test_local_strategy_in_a_cluster(self):
        cluster = cluster_of(worker=2)
        (code, text), = finish(start(cluster, "worker", 0, "--strategy", "local"))
        self.assertEqual(code, 2, text)
        self.assertIn("--strategy is local", text)

    def test_malformed_tf_config(self):
        for config in ("", "{", "[]", '{"cluster": {}}', '{"cluster": {"worker": ["a:1"]}}'):
            (code, text), = finish(start({}, "worker", 0, config=config))
            self.assertEqual(code, 2, text)
            self.assertIn("TF_CONFIG", text)


if __name__ == "__main__":
    tasks.main(__doc__)
