#!/usr/bin/env python3
"""Trains under launchers that are not Tutti's: the real mpirun of Open MPI and of MPICH, and an
environment as torchrun sets it. Every one gives the last checkpoint of `tutti run`, to the bit.

    tests/cluster/launchers.py --bin build/bin
"""
import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import shared_cores
import stop_and_resume
from outside_launchers import Mpich, OpenMpi
from tasks import free_ports

BIN = "build/bin"
MPIRUN = {"Open MPI": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
          "MPICH": ["mpirun.mpich"]}
CORES = len(os.sched_getaffinity(0))
LAUNCHER_VARIABLES = re.compile(
    r"^(TF_CONFIG|RANK|WORLD_SIZE|MASTER_|LOCAL_|PMI|OMPI|MPI_|SLURM_|TUTTI_)")


def training(*flags, steps=20):
    return [f"{BIN}/fashion_mnist", "--model", "mlp", "--batch-size", "16", "--strategy",
            "allreduce", "--start-timeout", "30", "--max-steps", str(steps), *flags]


class Launchers(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="tutti-launchers-")
        self.addCleanup(shutil.rmtree, self.home)
        self.environment = {name: value for name, value in os.environ.items()
                            if not LAUNCHER_VARIABLES.match(name)}
        self.environment["HOME"] = self.home

    def run_all(self, command, seconds=120, **variables):
        done = subprocess.run(command, env={**self.environment, **variables}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
        return done.returncode, done.stdout

    def folder(self, name):
        """For the checkpoints of a training."""
        return f"{self.home}/models/{name}"

    def train_by_tutti_run(self, workers=2):
        """The folder of its checkpoint, with which those of others are compared."""
        expected = self.folder(f"tutti-run-{workers}")
        code, text = self.run_all([f"{BIN}/tutti", "run", "--workers", str(workers), "--",
                                   *training("--model-dir", expected)])
        self.assertEqual(code, 0, text)
        return expected

    def test_mpirun_trains_as_tutti_run_does(self):
        expected = self.train_by_tutti_run()
        for name, mpirun in MPIRUN.items():
            with self.subTest(name):
                made = self.folder(name)
                code, text = self.run_all([*mpirun, "-n", "2", *training("--model-dir", made)])
                self.assertEqual(code, 0, text)
                stop_and_resume.check_same(self, made, expected, text)
                for rank in (0, 1):
                    self.assertIn(f"fashion_mnist: started by {name}: process {rank} of 2 ", text)
                self.assertEqual(text.count("test accuracy"), 1, text)
        # PMIx and PMI brought the token, no file.
        self.assertFalse(os.path.exists(f"{self.home}/.tutti"))

    def test_without_pmix_processes_meet_by_a_file(self):
        made = self.folder("file")
        code, text = self.run_all([*MPIRUN["Open MPI"], "-n", "2", *training("--model-dir", made)], TUTTI_PMIX="off")
        self.assertEqual(code, 0, text)
        stop_and_resume.check_same(self, made, self.train_by_tutti_run(), text)
        # What brought the token is gone.
        self.assertEqual(os.listdir(f"{self.home}/.tutti"), [])

    def test_a_token_of_the_environment_beats_that_of_pmix(self):
        code, text = self.run_all([*MPIRUN["Open MPI"], "-n", "2", *training()],
                                  TUTTI_JOB_TOKEN="known to all")
        self.assertEqual(code, 0, text)
        wrong = [*MPIRUN["Open MPI"]]
        for token in ("one", "another"):
            wrong += [*(":" if token != "one" else ""), "-x", f"TUTTI_JOB_TOKEN={token}", "-n", "1",
                      *training("--start-timeout", "3")]
        code, text = self.run_all(wrong)
        self.assertNotEqual(code, 0)
        self.assertIn("token", text)

    def test_a_process_that_does_not_come_to_pmix_is_not_waited_for_for_ever(self):
        code, text = self.run_all([*MPIRUN["Open MPI"], "-n", "1", *training("--start-timeout", "2"),
                                   ":", "-n", "1", "sleep", "60"], seconds=30)
        self.assertNotEqual(code, 0)
        self.assertIn("PMIx: not all processes of the job have come", text)

    def start_by_torchrun(self, rank, *flags, **variables):
        """A process of two with the environment that torchrun would give it."""
        environment = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1",
                       "RANK": str(rank), "LOCAL_RANK": str(rank), **variables}
        return subprocess.Popen(training(*flags), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env={**self.environment, **environment})

    def test_torchruns_environment_trains_as_well(self):
        made = self.folder("torchrun")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # as torchrun's agent, which has MASTER_PORT
            taken.listen()
            port = str(taken.getsockname()[1])
            tasks = [self.start_by_torchrun(rank, "--model-dir", made, MASTER_PORT=port) for rank in (0, 1)]
            texts = [task.communicate(timeout=120)[0] for task in tasks]
        for rank, task in enumerate(tasks):
            self.assertEqual(task.returncode, 0, texts[rank])
            self.assertIn(f"started by torchrun: process {rank} of 2 (RANK, WORLD_SIZE)",
                          texts[rank])
        stop_and_resume.check_same(self, made, self.train_by_tutti_run(), texts[0])

    def finish_two(self, first, second):
        """What both said, after they have ended by themselves with codes that another start may cure."""
        texts = [task.communicate(timeout=60)[0] for task in (first, second)]
        for task, text in zip((first, second), texts):
            self.assertEqual(task.returncode, 128, text)
        return texts

    def test_a_port_that_is_wrong_in_one_process_is_told_by_both(self):
        port, wrong = free_ports(2)
        flags = ["--start-timeout", "3"]
        first, second = self.finish_two(self.start_by_torchrun(0, *flags, TUTTI_JOB_PORT=str(port)),
                                        self.start_by_torchrun(1, *flags, TUTTI_JOB_PORT=str(wrong)))
        self.assertIn("rank 1", first)
        self.assertIn(f"127.0.0.1:{wrong}", second)

    def test_a_name_that_is_wrong_in_one_process_is_told_by_both(self):
        flags = ["--start-timeout", "3"]
        hosts = {"LOCAL_WORLD_SIZE": "1", "TUTTI_JOB_TOKEN": "known to both"}
        first, second = self.finish_two(self.start_by_torchrun(0, *flags, **hosts),
                                        self.start_by_torchrun(1, *flags, **hosts, MASTER_ADDR="nowhere.invalid"))
        self.assertIn("rank 1", first)
        self.assertIn("nowhere.invalid", second)

    def test_processes_of_several_hosts_meet(self):
        netlab = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/netlab")
        if subprocess.run([netlab, "--check"], capture_output=True).returncode != 0:
            self.skipTest("this machine allows no network namespaces")
        for per_host in (1, 2):
            processes = 2 * per_host
            made = self.folder(f"netlab-{processes}")
            code, text = self.run_all(
                [netlab, "--hosts", "2", "--ranks-per-host", str(per_host), "--", "env", "RANK={rank}",
                 "WORLD_SIZE={size}", f"LOCAL_WORLD_SIZE={per_host}", "MASTER_ADDR=10.77.0.1", "MASTER_PORT=2222",
                 *training("--model-dir", made)])
            self.assertEqual(code, 0, text)
            self.assertIn(f"started by torchrun: process {processes - 1} of {processes}", text)
            # Four workers may add in an order that suits the hosts, two have only one.
            if processes == 2:
                stop_and_resume.check_same(self, made, self.train_by_tutti_run(processes), text)
        self.assertRegex(text, r"chief +10\.77\.0\.1:\d+\n")
        self.assertRegex(text, r"worker +10\.77\.0\.1:\d+, 10\.77\.0\.2:\d+, 10\.77\.0\.2:\d+\n")

    def test_parameter_servers_take_the_last_processes(self):
        for name, mpirun in MPIRUN.items():
            with self.subTest(name):
                code, text = self.run_all([*mpirun, "-n", "3",
                                           *training("--strategy", "ps-async", "--ps", "1")])
                self.assertEqual(code, 0, text)
                self.assertRegex(text, r"chief +127\.0\.0\.1:\d+\n")
                self.assertRegex(text, r"ps +127\.0\.0\.1:\d+\n")
                self.assertEqual(text.count("test accuracy"), 1, text)

    def test_the_evaluator_takes_the_last_process(self):
        with tempfile.TemporaryDirectory(prefix="tutti-models-") as models:
            code, text = self.run_all([*MPIRUN["MPICH"], "-n", "4", *training(
                "--strategy", "ps-async", "--ps", "1", "--evaluator", "--model-dir", models)])
            self.assertEqual(code, 0, text)
            self.assertIn("fashion_mnist: /job:evaluator/task:0, evaluates checkpoints", text)
            self.assertRegex(text, r"fashion_mnist: worker +127\.0\.0\.1:\d+\n")  # one, beside the chief
            self.assertEqual(text.count("test accuracy"), 1, text)
            self.assertTrue(os.listdir(f"{models}/eval"))

    @unittest.skipIf(CORES < 2, "needs two cores")
    def test_cores_that_mpirun_chose_are_kept(self):
        for launcher, words in ((OpenMpi(), ["--bind-to", "core"]), (Mpich(), ["-bind-to", "core"])):
            with self.subTest(type(launcher).__name__), launcher:
                launcher.words += words
                code, text = launcher.run(2, ["grep", "Cpus_allowed_list", "/proc/self/status"])
                self.assertEqual(code, 0, text)
                chosen = sorted(re.findall(r"Cpus_allowed_list:\s*(\S+)", text))
                self.assertEqual(len(set(chosen)), 2, text)
                job = launcher.start(2, training("--log-every", "1", steps=1000000))
                reached = job.wait_for_step(5)
                kept = sorted(",".join(map(str, sorted(shared_cores.cores_of(pid)))) for pid in job.ranks().values())
                launcher.terminate(job)
                _, text = job.finish()
                self.assertTrue(reached, text)
                self.assertEqual(kept, chosen, text)
                self.assertNotIn("share the", text)

    def test_dynamic_workers_of_kubernetes_are_refused_in_every_role(self):
        # As the operator writes it with enableDynamicWorker, for each kind of task.
        clusters = {("worker", 1): {"worker": {"1": "127.0.0.1:3"}, "ps": ["127.0.0.1:1", "127.0.0.1:2"]},
                    ("ps", 0): {"worker": {}, "ps": ["127.0.0.1:1"]},
                    ("ps", 1): {"worker": {}, "ps": ["127.0.0.1:2"]},
                    ("chief", 0): {"worker": {}, "ps": []}}
        for (job, index), cluster in clusters.items():
            for strategy in ("allreduce", "ps-async"):
                with self.subTest(f"{job} {index}, {strategy}"):
                    config = json.dumps({"sparseCluster": cluster, "task": {"type": job, "index": index}})
                    code, text = self.run_all(training("--strategy", strategy), TF_CONFIG=config)
                    self.assertEqual(code, 2, text)
                    self.assertIn("set enableDynamicWorker to false in the TFJob", text)

    def test_a_pmix_launcher_without_a_number_of_processes_is_told(self):
        # What prun and prterun set is what mpirun sets beside its own.
        without = [f"-u{name}" for name in ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")]
        code, text = self.run_all([*MPIRUN["Open MPI"], "-n", "2", "env", *without, *training()])
        self.assertEqual(code, 2, text)
        self.assertRegex(text, r"a PMIx launcher \(prun, prterun\) started this process, as PMIX_RANK=\d")

    def test_a_stop_leaves_a_checkpoint_from_which_the_next_start_goes_on(self):
        with Mpich() as launcher:
            stop_and_resume.check(self, launcher, BIN)
        # It kills its processes a second after SIGTERM: on a busy machine that is no time for a checkpoint.
        with OpenMpi() as launcher:
            stop_and_resume.check_hasty(self, launcher, BIN)

    def test_codes_tell_what_another_start_may_cure(self):
        for kind in (OpenMpi, Mpich):
            with self.subTest(kind.__name__), kind() as launcher:
                stop_and_resume.check_codes(self, launcher, BIN)

    def test_a_taken_port_is_told(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            code, text = self.run_all([*MPIRUN["Open MPI"], "-n", "2",
                                       *training("--start-timeout", "3")], TUTTI_JOB_PORT=port)
        self.assertNotEqual(code, 0)
        self.assertIn(f"cannot listen at 127.0.0.1:{port}", text)
        self.assertIn("TUTTI_JOB_PORT chooses another one", text)

    def test_half_an_environment_is_a_usage_error(self):
        code, text = self.run_all(training(), RANK="1")
        self.assertEqual(code, 2, text)
        self.assertIn("RANK=1, but no WORLD_SIZE", text)
        code, text = self.run_all(training(), SLURM_JOB_ID="7", SLURM_NTASKS="2")
        self.assertEqual(code, 2, text)
        self.assertIn("use srun", text)

    def test_roles_need_processes_and_a_strategy_with_work_for_them(self):
        code, text = self.run_all([*MPIRUN["MPICH"], "-n", "2", *training("--ps", "2")])
        self.assertNotEqual(code, 0)
        self.assertIn("--ps is given, but --strategy allreduce has no work for that role", text)
        code, text = self.run_all(training("--evaluator"))
        self.assertEqual(code, 2, text)
        self.assertIn("this one was started by nobody; leave them out, or use tutti run", text)

    def test_a_process_without_the_others_says_where_it_waits(self):
        code, text = self.run_all(training("--start-timeout", "1"), RANK="1", WORLD_SIZE="2",
                                  MASTER_ADDR="localhost", MASTER_PORT="1")
        self.assertEqual(code, 128, text)
        self.assertIn("which process 0 writes; is the folder shared by all hosts?", text)

    def test_doctor_explains_the_decision(self):
        code, text = self.run_all([*MPIRUN["Open MPI"], "-n", "2", f"{BIN}/tutti", "doctor"])
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"launch +Open MPI: process 1 of 2")
        self.assertIn("process 0 tells the others through PMIx where it is, and the job's token",
                      text)
        code, text = self.run_all([*MPIRUN["Open MPI"], "-n", "2", f"{BIN}/tutti", "doctor"],
                                  TUTTI_PMIX="off")
        self.assertEqual(code, 0, text)
        self.assertIn("not through PMIx: TUTTI_PMIX is off", text)
        self.assertRegex(text, r"all meet at 127.0.0.1:2\d{4} \(made from the job, openmpi-\d+\)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=BIN)
    arguments, rest = parser.parse_known_args()
    BIN = os.path.abspath(arguments.bin)
    unittest.main(argv=[sys.argv[0], *rest])
