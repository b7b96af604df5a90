#!/usr/bin/env python3
"""`tutti run --hosts` over a real sshd on each of three netlab hosts.

    tests/cluster/ssh_hosts.py --bin build/bin

Runs itself on host 0 of a netlab, with the sshds on hosts 1 and 2. Needs root, iproute2 and
openssh-server; does nothing where this machine allows no network namespaces.
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import ssh_lab
import stop_and_resume
from outside_launchers import Ssh

BIN = "build/bin"
MARK = f"ssh-hosts-{os.getpid()}"
TRAINS = r"step ([5-9]|\d\d+) loss"  # where workers are not in step, the chief does not see each number
NETLAB = ssh_lab.NETLAB


def training(*flags, steps=20):
    return [f"{BIN}/fashion_mnist", "--model", "mlp", "--batch-size", "16", "--strategy",
            "allreduce", "--start-timeout", "30", "--max-steps", str(steps), *flags]


def result_of(text):
    found = re.search(r"test accuracy .*", text)
    return found.group(0) if found else None


def tasks():
    """The processes of this test's jobs, by role ("worker 1"): those that have its mark."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/environ", "rb") as environ:
                name, text = comm.read().strip(), environ.read().decode(errors="replace")
        except OSError:
            continue
        role = re.search(r'"type":"(\w+)","index":(\d+)', text)
        role = role and " ".join(role.groups())
        if not role:
            role = re.search(r'"index":(\d+),"type":"(\w+)"', text)
            role = role and " ".join(reversed(role.groups()))
        if name == "fashion_mnist" and f"TUTTI_TEST_MARK={MARK}\0" in text and role:
            found[role] = int(pid)
    return found


class SshHosts(unittest.TestCase):
    folder = None

    def command(self, *training_command, hosts=None, options=()):
        return [f"{BIN}/tutti", "run", "--hosts", hosts or "10.77.0.2:1,10.77.0.3:1", "--ssh",
                f"ssh -F {self.folder}/ssh_config", *options, "--", *training_command]

    def run_all(self, command, seconds=120):
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout

    def assert_nothing_is_left(self, seconds=30):
        deadline = time.monotonic() + seconds
        while tasks():
            self.assertLess(time.monotonic(), deadline, "a task is still there")
            time.sleep(0.05)

    def start_endless(self, strategy="allreduce", **more):
        flags = ("--log-every", "1", "--strategy", strategy)
        job = subprocess.Popen(self.command(*training(*flags, steps=1000000), **more),
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               stdin=subprocess.DEVNULL)
        self.read_until(job, TRAINS)
        return job

    def read_until(self, job, pattern, seconds=90):
        """What the job prints until a line matches; a job that prints no such line is killed."""
        said = ""
        timer = threading.Timer(seconds, job.kill)
        timer.start()
        try:
            for line in job.stdout:
                said += line
                if re.search(pattern, line):
                    return said
        finally:
            timer.cancel()
        self.fail(f"no line with \"{pattern}\" in:\n{said[-3000:]}")

    def test_trains_as_on_one_host(self):
        code, text = self.run_all([f"{BIN}/tutti", "run", "--workers", "2", "--", *training()])
        self.assertEqual(code, 0, text)
        expected = result_of(text)
        code, text = self.run_all(self.command(*training()))
        self.assertEqual(code, 0, text)
        self.assertEqual(result_of(text), expected, text)
        self.assertIn("tutti run: on 10.77.0.3: worker 1\n", text)
        self.assertIn("worker 0 | fashion_mnist: worker    10.77.0.2:", text)
        self.assert_nothing_is_left()

    def test_parameter_servers_stand_on_the_last_host(self):
        code, text = self.run_all(self.command(*training("--strategy", "ps-async"), hosts="10.77.0.2:2,10.77.0.3:1",
                                               options=("--workers", "2", "--ps", "1")))
        self.assertEqual(code, 0, text)
        self.assertIn("tutti run: on 10.77.0.3: ps 0\n", text)
        self.assertEqual(text.count("test accuracy"), 1, text)
        self.assert_nothing_is_left()

    def test_a_stop_leaves_a_checkpoint_from_which_the_next_start_goes_on(self):
        with Ssh(hosts="10.77.0.2:1,10.77.0.3:1", folder=self.folder) as launcher:
            stop_and_resume.check(self, launcher, BIN)
        self.assert_nothing_is_left()

    def test_codes_tell_what_another_start_may_cure(self):
        with Ssh(hosts="10.77.0.2:1,10.77.0.3:1", folder=self.folder) as launcher:
            stop_and_resume.check_codes(self, launcher, BIN)

    def test_mpirun_over_the_same_hosts(self):
        code, text = self.run_all([f"{BIN}/tutti", "run", "--workers", "2", "--", *training()])
        self.assertEqual(code, 0, text)
        expected = result_of(text)
        ssh = f"ssh -F {self.folder}/ssh_config"
        wrapper = f"{self.folder}/ssh"
        with open(wrapper, "w") as script:
            script.write(f"#!/bin/sh\nexec {ssh} \"$@\"\n")
        os.chmod(wrapper, 0o755)
        # No folder is shared: PMIx and PMI bring address and token. MPICH tells the other hosts to
        # call back the name of this machine, which is 127.0.0.1 for them too.
        launchers = {
            "Open MPI": ["mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", wrapper,
                         "--host", "10.77.0.2:1,10.77.0.3:1"],
            "MPICH": ["mpirun.mpich", "-launcher", "ssh", "-launcher-exec", wrapper, "-localhost",
                      "10.77.0.1", "-hosts", "10.77.0.2:1,10.77.0.3:1"]}
        for name, command in launchers.items():
            with self.subTest(name):
                code, text = self.run_all([*command, "-n", "2", *training()], seconds=60)
                self.assertEqual(code, 0, text)
                self.assertEqual(result_of(text), expected, text)
                self.assertRegex(text, r"chief +10\.77\.0\.2:\d+")
                self.assertRegex(text, r"worker +10\.77\.0\.3:\d+")

    def test_ucx_carries_gradients_between_hosts(self):
        code, text = self.run_all([f"{BIN}/tutti", "run", "--workers", "4", "--", *training()])
        self.assertEqual(code, 0, text)
        expected = result_of(text)
        for transport in ("ucx", "shm+ucx"):
            with self.subTest(transport):
                code, text = self.run_all(self.command(*training("--transport", transport),
                                                       hosts="10.77.0.2:2,10.77.0.3:2"))
                if "this build has no UCX" in text:
                    self.skipTest("this build has no UCX")
                self.assertEqual(code, 0, text)
                self.assertEqual(result_of(text), expected, text)

    def test_a_killed_task_is_the_cause_and_its_code_comes_back(self):
        job = self.start_endless()
        os.kill(tasks()["worker 1"], signal.SIGKILL)
        text, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 128 + signal.SIGKILL, text)
        self.assertIn("tutti run: worker 1 was ended by SIGKILL on 10.77.0.3; its last lines:", text)
        self.assert_nothing_is_left()

    def test_a_lost_task_is_started_again(self):
        job = self.start_endless(options=("--restarts", "1", "--grace", "1"))
        os.kill(tasks()["worker 1"], signal.SIGKILL)
        self.read_until(job, r"is started again")
        self.read_until(job, TRAINS)
        job.terminate()
        job.communicate(timeout=60)
        self.assertEqual(job.returncode, 143)
        self.assert_nothing_is_left()

    def test_the_others_go_on_without_a_lost_worker_where_the_strategy_allows_it(self):
        job = self.start_endless(hosts="10.77.0.2:2,10.77.0.3:1", options=("--workers", "2", "--ps", "1"),
                                 strategy="ps-async")
        before = tasks()
        os.kill(before["worker 1"], signal.SIGKILL)
        self.read_until(job, "worker 1 was ended by SIGKILL on 10.77.0.2; the others go on without it")
        self.assertEqual(tasks(), {role: pid for role, pid in before.items() if role != "worker 1"})
        job.terminate()
        text, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 143, text)
        self.assert_nothing_is_left()

    def test_a_worker_that_ends_before_it_meets_the_others_is_told(self):
        first = r"""case "$TF_CONFIG" in *'"index":0'*) exec "$@";; esac"""
        code, text = self.run_all(self.command("sh", "-c", first, "sh", *training("--start-timeout", "60")),
                                  seconds=45)
        self.assertNotEqual(code, 0, text)
        self.assertIn("worker 1", text)

    def test_a_signal_reaches_every_host(self):
        job = self.start_endless()
        job.send_signal(signal.SIGTERM)
        text, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 143, text)
        self.assertIn("stopped after step", text)
        self.assertIn("tutti run: interrupted by SIGTERM", text)
        self.assert_nothing_is_left()

    def test_a_killed_launcher_leaves_nothing_behind(self):
        job = self.start_endless()
        job.kill()
        job.communicate(timeout=60)
        self.assert_nothing_is_left()

    def test_a_cut_connection_ends_the_job_on_both_sides(self):
        job = self.start_endless()
        subprocess.run([NETLAB, "cut", "2", "--run", os.environ["NETLAB_RUN"]], check=True)
        try:
            text, _ = job.communicate(timeout=90)
            self.assertGreaterEqual(job.returncode, 128, text)
            self.assertIn("worker 1", text)
            self.assert_nothing_is_left(seconds=60)
        finally:
            subprocess.run([NETLAB, "mend", "2", "--run", os.environ["NETLAB_RUN"]], check=True)

    def test_a_host_that_cannot_be_reached_is_named(self):
        code, text = self.run_all(self.command("true", hosts="10.77.0.2:1,10.77.0.9:1"))
        self.assertEqual(code, 2, text)
        self.assertRegex(text, r"tutti run: worker 1 cannot be started on 10.77.0.9: ssh exited "
                               r"with code 255")
        self.assert_nothing_is_left()

    def test_a_program_that_is_not_there_is_told(self):
        code, text = self.run_all(self.command("/nowhere/at/all"))
        self.assertEqual(code, 2, text)
        self.assertIn("cannot run /nowhere/at/all: No such file or directory", text)

    def test_the_token_stands_on_no_command_line(self):
        job = self.start_endless()
        tokens = set()
        for pid in tasks().values():
            with open(f"/proc/{pid}/environ", "rb") as environ:
                tokens |= {entry.split(b"=", 1)[1] for entry in environ.read().split(b"\0")
                           if entry.startswith(b"TUTTI_JOB_TOKEN=")}
        self.assertEqual(len(tokens), 1)
        token = tokens.pop()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as line:
                    self.assertNotIn(token, line.read())
            except OSError:
                continue
        job.terminate()
        job.communicate(timeout=60)


def main():
    global BIN
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=BIN)
    parser.add_argument("--folder")
    arguments, rest = parser.parse_known_args()
    BIN = os.path.abspath(arguments.bin)
    if arguments.folder and os.environ["NETLAB_HOST"] != "0":
        return ssh_lab.serve(arguments.folder)
    if arguments.folder:
        SshHosts.folder = arguments.folder
        os.environ["TUTTI_TEST_MARK"] = MARK
        try:
            ssh_lab.wait_until_served(arguments.folder)
            result = unittest.main(argv=[sys.argv[0], *rest], exit=False).result
            return 0 if result.wasSuccessful() else 1
        finally:
            ssh_lab.end(arguments.folder)
    if reason := ssh_lab.why_not():
        print(f"skipped: {reason}")
        return 0
    folder = tempfile.mkdtemp(prefix="tutti-ssh-")
    try:
        ssh_lab.prepare(folder)
        return subprocess.run([NETLAB, "--hosts", "3", "--timeout", "800", "--", sys.executable,
                               os.path.abspath(__file__), "--bin", BIN, "--folder", folder,
                               *rest]).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
