"""`tutti bench allreduce` whose ranks are stopped or killed: it ends, and says why."""

import argparse
import os
import pathlib
import signal
import subprocess
import time
import unittest

BIN = "build/bin"


def children(process):
    text = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(word) for word in text.split()]


def command_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def wait_for_children(process, count):
    """Its children, as soon as so many are ranks.

    Until a child has executed its program, it still shows its parent's command line, and the call
    that spawns it does not return: stopping the child then would stop its parent.
    """
    until = time.monotonic() + 30
    while time.monotonic() < until:
        found = children(process)
        if len(found) >= count and all(b"\0--rank\0" in command_of(child) for child in found):
            return found
        os.sched_yield()
    raise AssertionError(f"process {process} has started {len(children(process))} of {count} ranks")


class BenchFaults(unittest.TestCase):
    def start(self, ranks):
        bench = subprocess.Popen([f"{BIN}/tutti", "bench", "allreduce", "--ranks", str(ranks),
                                  "--bytes", "64M", "--seconds", "600"],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(bench.kill)
        return bench

    def expect_end(self, bench, text):
        output = bench.communicate(timeout=60)[0]
        self.assertNotEqual(bench.returncode, 0, output)
        self.assertRegex(output, text)

    def test_a_stopped_rank_ends_it(self):
        bench = self.start(2)
        os.kill(wait_for_children(bench.pid, 2)[1], signal.SIGSTOP)
        self.expect_end(bench, r"rank 1 of 2 over shm \(process \d+\) has been stopped for 5 s")

    def test_a_rank_killed_before_it_joined_ends_it(self):
        bench = self.start(3)
        os.kill(wait_for_children(bench.pid, 3)[2], signal.SIGKILL)
        self.expect_end(bench, "rank 2 of 3 over shm was killed by signal 9")

    def test_a_rank_that_was_continued_goes_on(self):
        bench = self.start(2)
        rank = wait_for_children(bench.pid, 2)[1]
        os.kill(rank, signal.SIGSTOP)
        os.kill(rank, signal.SIGCONT)
        with self.assertRaises(subprocess.TimeoutExpired):
            bench.wait(timeout=8)
        bench.send_signal(signal.SIGTERM)
        self.expect_end(bench, "ended by signal 15")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=BIN)
    options, rest = parser.parse_known_args()
    BIN = options.bin
    unittest.main(argv=["bench_faults", *rest])
