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
import time
import unittest

BIN = "build/bin"
MARK = f"ssh-hosts-{os.getpid()}"
NETLAB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/netlab")


def training(*flags, steps=20):
    return [f"{BIN}/fashion_mnist", "--model", "mlp", "--batch-size", "16", "--strategy",
            "allreduce", "--start-timeout", "30", "--max-steps", str(steps), *flags]


def result_of(text):
    found = re.search(r"test accuracy .*", text)
    return found.group(0) if found else None


def serve(folder):
    """On hosts 1 and 2: an sshd until the test, on host 0, is over."""
    host = os.environ["NETLAB_HOST"]
    os.makedirs("/run/sshd", exist_ok=True)
    server = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", f"{folder}/sshd_config",
                               "-o", f"ListenAddress={os.environ['NETLAB_ADDRESS']}:2200",
                               "-o", f"PidFile={folder}/sshd-{host}.pid"],
                              stderr=subprocess.DEVNULL)
    while not os.path.exists(f"{folder}/over"):
        time.sleep(0.05)
    server.terminate()
    server.wait()
    return 0


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

    def start_endless(self, **more):
        job = subprocess.Popen(self.command(*training("--log-every", "1", steps=1000000), **more),
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               stdin=subprocess.DEVNULL)
        for line in job.stdout:
            if "step 5 " in line:
                return job
        self.fail("it does not train")

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
        for line in job.stdout:
            if "step 5 " in line:
                break
        else:
            self.fail("it did not start again")
        job.terminate()
        job.communicate(timeout=60)
        self.assertEqual(job.returncode, 143)
        self.assert_nothing_is_left()

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


def prepare(folder):
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{key}"],
                       check=True)
    shutil.copy(f"{folder}/user_key.pub", f"{folder}/authorized_keys")
    with open(f"{folder}/sshd_config", "w") as config:
        config.write(f"HostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\n"
                     "StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
                     "UsePAM no\nPort 2200\nMaxStartups 100\n")
    with open(f"{folder}/ssh_config", "w") as config:
        config.write(f"Host *\n  Port 2200\n  User root\n  IdentityFile {folder}/user_key\n"
                     f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n"
                     "  StrictHostKeyChecking no\n  LogLevel ERROR\n  ConnectTimeout 5\n")


def main():
    global BIN
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=BIN)
    parser.add_argument("--folder")
    arguments, rest = parser.parse_known_args()
    BIN = os.path.abspath(arguments.bin)
    if arguments.folder and os.environ["NETLAB_HOST"] != "0":
        return serve(arguments.folder)
    if arguments.folder:
        SshHosts.folder = arguments.folder
        os.environ["TUTTI_TEST_MARK"] = MARK
        try:
            ready = [f"{arguments.folder}/sshd-{host}.pid" for host in (1, 2)]
            deadline = time.monotonic() + 30
            while not all(map(os.path.exists, ready)):
                if time.monotonic() > deadline:
                    print("the sshds do not start", file=sys.stderr)
                    return 1
                time.sleep(0.05)
            result = unittest.main(argv=[sys.argv[0], *rest], exit=False).result
            return 0 if result.wasSuccessful() else 1
        finally:
            open(f"{arguments.folder}/over", "w").close()
    if subprocess.run([NETLAB, "--check"], capture_output=True).returncode != 0:
        print("skipped: this machine allows no network namespaces")
        return 0
    folder = tempfile.mkdtemp(prefix="tutti-ssh-")
    try:
        prepare(folder)
        return subprocess.run([NETLAB, "--hosts", "3", "--timeout", "800", "--", sys.executable,
                               os.path.abspath(__file__), "--bin", BIN, "--folder", folder,
                               *rest]).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
