#!/usr/bin/env python3
"""One set of graphs gives the same results in one process and over 2 and 4 of them.

    tests/cluster/same_results.py --bin build/bin
"""
import subprocess
import tempfile
import unittest

import servers
import tasks


def results(*arguments):
    """By graph: what tests/cluster/graph_set.cc printed of it."""
    done = subprocess.run([f"{tasks.BIN}/graph_set", *arguments], env=servers.environment(), capture_output=True,
                          text=True, timeout=5 * servers.PATIENCE, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


class SameResults(unittest.TestCase):
    def over(self, count):
        spec = tasks.cluster_of(worker=count)
        names = [f"/job:worker/task:{i}" for i in range(count)]
        with tempfile.TemporaryDirectory() as folder:
            started = [servers.ServerTask(spec, name, folder, tasks.BIN, "--cores", "1") for name in names]
            try:
                for task in started:
                    task.start()
                for task in started:
                    task.await_listening()
                return results(f"tutti://{started[0].address}", *names)
            finally:
                for task in started:
                    task.kill()

    def test_one_two_and_four_processes(self):
        expected = results()
        self.assertEqual(list(expected), ["mlp", "cnn", "while", "queue", "mutex", "paper"])
        # Everybody who entered was alone, and has left.
        self.assertEqual([float.fromhex(value) for value in expected["mutex"].split()], [1] * 20 + [0])
        for count in (2, 4):
            found = self.over(count)
            for graph, values in expected.items():
                self.assertEqual(found[graph], values, f"{graph} over {count} processes")


if __name__ == "__main__":
    tasks.main(__doc__)
