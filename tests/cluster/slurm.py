#!/usr/bin/env python3
"""Trains under a real Slurm of one node, started here with keys, state and ports of its own.

    tests/cluster/slurm.py --bin build/bin

Needs root and the packages slurm-wlm and munge; `make soak` runs it.
"""
import argparse
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from tasks import free_ports

BIN = "build/bin"
KILLS = int(os.environ.get("TUTTI_KILLS", "1"))

CONFIG = """
ClusterName=tutti
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


def training(*flags, steps=20):
    return [f"{BIN}/fashion_mnist", "--model", "mlp", "--batch-size", "16", "--strategy",
            "allreduce", "--start-timeout", "30", "--max-steps", str(steps), *flags]


def result_of(text):
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

    found = re.search(r"test accuracy .*", text)
    return found.group(0) if found else None


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="tutti-slurm-")
        os.chmod(cls.folder, 0o755)
        cls.processes = []
        for name in ("state", "spool", "home"):
            os.mkdir(f"{cls.folder}/{name}")
        host = socket.gethostname().split(".")[0]
        with open(f"{cls.folder}/munge.key", "wb") as key:
            key.write(os.urandom(128))
        os.chmod(f"{cls.folder}/munge.key", 0o400)
        controller, daemon = free_ports(2)
        with open(f"{cls.folder}/slurm.conf", "w") as config:
            config.write(CONFIG.format(host=host, folder=cls.folder, controller=controller,
                                       daemon=daemon, cores=os.cpu_count()))
        cls.environment = {name: value for name, value in os.environ.items()
                           if not re.match(r"SLURM|TF_CONFIG|TUTTI_|PMI|OMPI|RANK$", name)}
        cls.environment.update(SLURM_CONF=f"{cls.folder}/slurm.conf", HOME=f"{cls.folder}/home")
        cls.start("munged", "--force", "--foreground", f"--key-file={cls.folder}/munge.key",
                  f"--socket={cls.folder}/munge.socket", f"--pid-file={cls.folder}/munged.pid",
                  f"--log-file={cls.folder}/munged.log", f"--seed-file={cls.folder}/munged.seed")
        cls.start("slurmctld", "-D", "-i")
        cls.start("slurmd", "-D", "-N", host)
        deadline = time.monotonic() + 60
        while subprocess.run(["srun", "-n", "1", "-t", "1", "true"], env=cls.environment,
                             capture_output=True, timeout=60).returncode != 0:
            if time.monotonic() > deadline:
                cls.tearDownClass()
                raise RuntimeError("Slurm does not start")
            time.sleep(0.2)

    @classmethod
    def start(cls, *command):
        path = shutil.which(command[0]) or f"/usr/sbin/{command[0]}"
        cls.processes.append(subprocess.Popen([path, *command[1:]], env=cls.environment,
                                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    @classmethod
    def tearDownClass(cls):
        for process in reversed(cls.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def run_all(self, command, seconds=120, **variables):
        done = subprocess.run(command, env={**self.environment, **variables}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
        return done.returncode, done.stdout

    def test_srun_trains_as_tutti_run_does(self):
        code, text = self.run_all([f"{BIN}/tutti", "run", "--workers", "2", "--", *training()])
        self.assertEqual(code, 0, text)
        expected = result_of(text)
        code, text = self.run_all(["srun", "-n", "2", "--overcommit", *training()])
        self.assertEqual(code, 0, text)
        self.assertEqual(result_of(text), expected)
        self.assertRegex(text, r"started by Slurm: process 1 of 2 .*, step \d+\.0 on ")

    def test_an_allocation_without_srun_says_so(self):
        code, text = self.run_all(["salloc", "-n", "2", "--overcommit", *training()])
        self.assertEqual(code, 2, text)
        self.assertIn("use srun", text)

    def test_a_batch_script_without_srun_says_so(self):
        out = f"{self.folder}/batch.log"
        code, _ = self.run_all(["sbatch", "--wait", "-n", "2", "--overcommit", "-o", out, "--wrap",
                                " ".join(training())])
        with open(out) as file:
            text = file.read()
        self.assertEqual(code, 2, text)
        self.assertIn("use srun", text)

    def test_the_batch_script_of_deploy_trains(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                              "../../deploy/slurm/allreduce.sbatch")
        out = f"{self.folder}/deploy.log"
        code, said = self.run_all(
            ["sbatch", "--wait", "--nodes=1", "--ntasks=2", "--ntasks-per-node=2",
             "--cpus-per-task=1", "--overcommit", "-o", out, script, *training()[1:]],
            PROGRAM=training()[0], TUTTI_JOB_DIR=self.folder)
        with open(out) as file:
            text = file.read()
        self.assertEqual(code, 0, text + said)
        self.assertRegex(text, "test accuracy")

    def test_mpirun_inside_srun_shows_both(self):
        code, text = self.run_all(["srun", "-n", "1", "--overcommit", "mpirun.mpich", "-launcher",
                                   "fork", "-n", "2", *training()])
        self.assertNotEqual(code, 0)
        self.assertIn("two launchers contradict each other: MPICH says process", text)

    def test_a_killed_rank_ends_the_step_and_is_named(self):
        for _ in range(KILLS):
            step, rank = random.randint(1, 50), random.randint(0, 1)
            with self.subTest(step=step, rank=rank):
                self.kill(step, rank)

    def kill(self, after, rank):
        step = subprocess.Popen(["srun", "-n", "2", "--overcommit",
                                 *training("--log-every", "1", steps=1000000)],
                                env=self.environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
        lines = []
        for line in step.stdout:
            lines.append(line)
            if f"step {after} " in line:
                break
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as environ, open(f"/proc/{pid}/comm") as name:
                    variables = environ.read().split(b"\0")
                    ours = f"SLURM_CONF={self.folder}/slurm.conf".encode() in variables
                    if (ours and name.read().strip() == "fashion_mnist" and
                            f"SLURM_PROCID={rank}".encode() in variables):
                        os.kill(int(pid), signal.SIGKILL)
            except OSError:
                continue
        rest, _ = step.communicate(timeout=60)
        self.assertNotEqual(step.returncode, 0)
        self.assertRegex("".join(lines) + rest, rf"rank {rank}|task {rank}: Killed")

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=BIN)
    arguments, rest = parser.parse_known_args()
    BIN = os.path.abspath(arguments.bin)
    unittest.main(argv=[sys.argv[0], *rest])
