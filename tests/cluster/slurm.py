#!/usr/bin/env python3
"""Trains under a real Slurm of one node, started here with keys, state and ports of its own.

    tests/cluster/slurm.py --bin build/bin

Needs root and the packages slurm-wlm and munge (scripts/packages-soak.txt); exits with 77 without them: CTest shows the
test as skipped.
"""
import argparse
import contextlib
import os
import re
import subprocess
import sys
import time
import unittest

import stop_and_resume
from outside_launchers import Slurm as SlurmOfOneNode
from outside_launchers import why_not

BIN = "build/bin"
SKIPPED = 77


def training(*flags, steps=20):
    return [f"{BIN}/fashion_mnist", "--model", "mlp", "--batch-size", "16", "--strategy",
            "allreduce", "--start-timeout", "30", "--max-steps", str(steps), *flags]


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.launcher = SlurmOfOneNode()
        cls.folder = cls.launcher.home
        cls.environment = cls.launcher.environment

    @classmethod
    def tearDownClass(cls):
        cls.launcher.close()

    def run_all(self, command, seconds=120, **variables):
        done = subprocess.run(command, env={**self.environment, **variables}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
        return done.returncode, done.stdout

    def test_srun_trains_as_tutti_run_does(self):
        expected, made = f"{self.folder}/tutti-run", f"{self.folder}/srun"
        code, text = self.run_all([f"{BIN}/tutti", "run", "--workers", "2", "--", *training("--model-dir", expected)])
        self.assertEqual(code, 0, text)
        code, text = self.run_all(["srun", "-n", "2", "--overcommit", *training("--model-dir", made)])
        self.assertEqual(code, 0, text)
        stop_and_resume.check_same(self, made, expected, text)
        self.assertRegex(text, r"started by Slurm: process 1 of 2 .*, step \d+\.0 on ")

    def test_processes_of_srun_meet_through_pmix(self):
        code, text = self.run_all(["srun", "--mpi=pmix", "-n", "2", "--overcommit", *training()])
        self.assertEqual(code, 0, text)
        self.assertRegex(text, "test accuracy")
        code, text = self.run_all(["srun", "--mpi=pmix", "-n", "2", "--overcommit", f"{BIN}/tutti",
                                   "doctor"])
        self.assertEqual(code, 0, text)
        self.assertIn("process 0 tells the others through PMIx", text)
        code, text = self.run_all(["srun", "-n", "2", "--overcommit", f"{BIN}/tutti", "doctor"])
        self.assertEqual(code, 0, text)
        self.assertIn("not through PMIx: srun was not given --mpi=pmix", text)

    def test_steps_that_share_their_cores_do_not_meet(self):
        step = " ".join(["srun", "--overlap", "--overcommit", "-n", "2", *training()])
        code, text = self.run_all(["salloc", "-n", "2", "--overcommit", "bash", "-c",
                                   f"{step} & first=$!; {step} && wait $first"])
        self.assertEqual(code, 0, text)
        results = re.findall(r"test accuracy .*", text)
        self.assertEqual(len(results), 2, text)
        self.assertEqual(len(set(results)), 1, text)
        self.assertEqual(len(set(re.findall(r"started by Slurm: process \d of 2 .*, step (\d+\.\d+) on", text))), 2,
                         text)

    def test_an_allocation_without_srun_says_so(self):
        code, text = self.run_all(["salloc", "-n", "2", "--overcommit", *training()])
        self.assertEqual(code, 2, text)
        self.assertIn("use srun", text)

    def test_the_shell_of_an_allocation_is_no_step(self):
        # So salloc starts its shell with LaunchParameters=use_interactive_step.
        shell = ["salloc", "-n", "2", "--overcommit", "srun", "--interactive", "--preserve-env"]
        code, text = self.run_all([*shell, "sh", "-c", 'echo "step $SLURM_STEP_ID"; exec "$@"', "sh", *training()])
        self.assertIn("step 4294967290\n", text)
        self.assertEqual(code, 2, text)
        self.assertIn("use srun", text)
        code, text = self.run_all([*shell, "mpirun.mpich", "-launcher", "fork", "-n", "2", *training()])
        self.assertEqual(code, 0, text)
        self.assertIn("started by MPICH: process 1 of 2", text)

    def run_batch(self, *command):
        """A batch script of two tasks, and what it said."""
        out = f"{self.folder}/batch.log"
        code, _ = self.run_all(["sbatch", "--wait", "-n", "2", "--overcommit", "-o", out, "--wrap", " ".join(command)])
        with open(out) as file:
            return code, file.read()

    def test_a_batch_script_without_srun_says_so(self):
        code, text = self.run_batch(*training())
        self.assertEqual(code, 2, text)
        self.assertIn("use srun", text)

    def test_other_launchers_work_in_a_batch_script(self):
        for name, mpirun in (("MPICH", ["mpirun.mpich", "-launcher", "fork"]),
                             ("Open MPI", ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"])):
            with self.subTest(name):
                code, text = self.run_batch(*mpirun, "-n", "2", *training())
                self.assertEqual(code, 0, text)
                self.assertIn(f"started by {name}: process 1 of 2", text)
                self.assertEqual(text.count("test accuracy"), 1, text)

    def test_a_job_that_is_back_in_the_queue_has_another_name(self):
        out = f"{self.folder}/requeued.log"
        script = (f"srun -n 2 --overcommit {BIN}/tutti doctor; echo restarts=$SLURM_RESTART_COUNT.; "
                  'test -n "$SLURM_RESTART_COUNT" || sleep 600')
        _, job = self.run_all(["sbatch", "--parsable", "--requeue", "-n", "2", "--overcommit", "--open-mode=append",
                               "-o", out, "--wrap", script])
        job = job.strip()
        self.wait_for_text(out, "restarts=.")
        code, text = self.run_all(["scontrol", "requeue", job])
        self.assertEqual(code, 0, text)
        # It would be held back for two minutes.
        text = self.wait_for_text(out, "restarts=1.", ["scontrol", "update", f"JobId={job}", "StartTime=now"])
        self.assertEqual(set(re.findall(r"made from the job, ([\w.-]+)\)", text)), {f"slurm-{job}.0", f"slurm-{job}.0-1"}, text)

    def wait_for_text(self, path, expected, meanwhile=("true",), seconds=120):
        """What is in the file when that has come; a command is run again and again while it has not."""
        text, deadline = "", time.monotonic() + seconds
        while expected not in text and time.monotonic() < deadline:
            self.run_all(list(meanwhile))
            time.sleep(0.2)
            with contextlib.suppress(FileNotFoundError), open(path) as file:
                text = file.read()
        self.assertIn(expected, text)
        return text

    def train_with_script(self, name, strategy, processes, *flags):
        """What a script of deploy/slurm says, made smaller for this machine."""
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/slurm", name)
        out, models = f"{self.folder}/{name}.log", f"{self.folder}/{name}.models"
        code, said = self.run_all(
            ["sbatch", "--wait", "--nodes=1", f"--ntasks={processes}", *flags, "--cpus-per-task=1", "--overcommit",
             "-o", out, script, *training("--strategy", strategy)[1:]],
            PROGRAM=training()[0], TUTTI_JOB_DIR=self.folder, MODEL_DIR=models)
        self.assertTrue(os.path.exists(out), said)
        with open(out) as file:
            text = file.read()
        self.assertEqual(code, 0, text + said)
        self.assertEqual(text.count("test accuracy"), 1, text)
        self.assertTrue(any(name.startswith("checkpoint") for name in os.listdir(models)), os.listdir(models))

    def test_the_batch_scripts_of_deploy_train_and_save(self):
        self.train_with_script("allreduce.sbatch", "allreduce", 2, "--ntasks-per-node=2")
        self.train_with_script("parameter_servers.sbatch", "ps-async", 4)

    def test_mpirun_inside_srun_shows_both(self):
        code, text = self.run_all(["srun", "-n", "1", "--overcommit", "mpirun.mpich", "-launcher",
                                   "fork", "-n", "2", *training()])
        self.assertNotEqual(code, 0)
        self.assertIn("two launchers contradict each other: MPICH says process", text)

    def test_parameter_servers_take_the_last_processes(self):
        code, text = self.run_all(["srun", "-n", "3", "--overcommit",
                                   *training("--strategy", "ps-async", "--ps", "1")])
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"ps +127\.0\.0\.1:\d+\n")
        self.assertEqual(text.count("test accuracy"), 1, text)

    def test_the_signal_before_the_time_limit_ends_with_143(self):
        step = subprocess.Popen(["srun", "-n", "2", "--overcommit",
                                 *training("--log-every", "1", steps=1000000)],
                                env=self.environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
        for line in step.stdout:
            if "step 5 " in line:
                break
        jobs = subprocess.run(["squeue", "-h", "-o", "%i"], env=self.environment, text=True,
                              capture_output=True).stdout.split()
        # What Slurm sends at its limit, and with --signal.
        subprocess.run(["scancel", "--signal=TERM", jobs[-1]], env=self.environment, check=True)
        rest, _ = step.communicate(timeout=60)
        self.assertEqual(step.returncode, 143, rest)
        self.assertIn("stopped after step", rest)

    def test_a_stop_leaves_a_checkpoint_from_which_the_next_start_goes_on(self):
        stop_and_resume.check(self, self.launcher, BIN)

    def test_codes_tell_what_another_start_may_cure(self):
        stop_and_resume.check_codes(self, self.launcher, BIN)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=BIN)
    arguments, rest = parser.parse_known_args()
    BIN = os.path.abspath(arguments.bin)
    if reason := why_not("slurm") or ("" if os.geteuid() == 0 else "needs root"):
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *rest])
