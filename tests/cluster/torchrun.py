#!/usr/bin/env python3
"""Trains under a real torchrun: that of benchmarks/install-peers, from PyPI, or that of Debian's python3-torch.

    tests/cluster/torchrun.py --bin build/bin

Exits with 77 where there is no PyTorch: CTest shows the test as skipped. tests/cluster/launchers.py has what needs none.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import stop_and_resume
from outside_launchers import Torchrun as RealTorchrun
from outside_launchers import torchrun_words

BIN = "build/bin"
SKIPPED = 77


def training(*flags, steps=20):
    return [f"{BIN}/fashion_mnist", "--model", "mlp", "--batch-size", "16", "--strategy",
            "allreduce", "--start-timeout", "30", "--max-steps", str(steps), *flags]


class Torchrun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.torchrun = [*torchrun_words(), "--no_python", "--standalone", "--nproc_per_node", "2"]
        cls.environment = {name: value for name, value in os.environ.items()
                           if not re.match(r"TF_CONFIG|TUTTI_|PMI|OMPI|SLURM|RANK$", name)}

    def run_all(self, command, seconds=180):
        done = subprocess.run(command, env=self.environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=seconds)
        return done.returncode, done.stdout

    def test_trains_as_tutti_run_does(self):
        with tempfile.TemporaryDirectory(prefix="tutti-models-") as models:
            expected, made = f"{models}/tutti-run", f"{models}/torchrun"
            code, text = self.run_all([f"{BIN}/tutti", "run", "--workers", "2", "--",
                                       *training("--model-dir", expected)])
            self.assertEqual(code, 0, text)
            code, text = self.run_all([*self.torchrun, *training("--model-dir", made)])
            self.assertEqual(code, 0, text)
            stop_and_resume.check_same(self, made, expected, text)
        self.assertIn("started by torchrun: process 1 of 2", text)

    def test_parameter_servers_take_the_last_processes(self):
        command = [*self.torchrun[:-1], "3"]
        code, text = self.run_all([*command, *training("--strategy", "ps-async", "--ps", "1")])
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("test accuracy"), 1, text)

    def test_a_killed_rank_is_named_and_the_job_can_start_again(self):
        job = subprocess.Popen([*self.torchrun, "--max_restarts", "1",
                                *training("--log-every", "1", steps=1000000)],
                               env=self.environment, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
        said = self.until_step(job)
        os.kill(self.rank_of(job.pid, 1), signal.SIGKILL)
        said += self.until_step(job)
        self.assertIn("rank 1", said)
        job.terminate()
        job.communicate(timeout=60)

    def test_a_stop_leaves_a_checkpoint_from_which_the_next_start_goes_on(self):
        with RealTorchrun() as launcher:
            stop_and_resume.check(self, launcher, BIN)

    def until_step(self, job):
        lines = []
        for line in job.stdout:
            lines.append(line)
            if "step 5 " in line:
                return "".join(lines)
        self.fail("".join(lines))

    @staticmethod
    def rank_of(launcher, rank):
        for pid in subprocess.run(["pgrep", "-P", str(launcher)], text=True,
                                  capture_output=True).stdout.split():
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if f"RANK={rank}".encode() in environ.read().split(b"\0"):
                    return int(pid)
        raise LookupError(f"torchrun has no rank {rank}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=BIN)
    arguments, rest = parser.parse_known_args()
    BIN = os.path.abspath(arguments.bin)
    if not torchrun_words():
        print("skipped: there is no PyTorch")
        sys.exit(SKIPPED)
    print(f"torchrun is {torchrun_words()[0]}", flush=True)
    unittest.main(argv=[sys.argv[0], *rest])
