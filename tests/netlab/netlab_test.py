"""What scripts/netlab promises: the environment, the rates, the exit code, and that nothing stays."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

NETLAB = str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "netlab")
SKIPPED = 77


def netlab(*arguments):
    return subprocess.run([NETLAB, *arguments], capture_output=True, text=True, timeout=60, check=False)


def namespaces_of(pid):
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in listed.stdout.splitlines()
            if line.startswith(f"netlab-{pid}-")]


class Started:
    """A netlab that runs until it is ended; entered once its command has printed a line."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([NETLAB, *arguments], stdout=subprocess.PIPE, text=True)
        self.line = self.process.stdout.readline().rstrip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
        self.process.stdout.close()


class NetlabTest(unittest.TestCase):
    def test_every_rank_knows_its_place(self):
        done = netlab("--hosts", "2", "--ranks-per-host", "2", "--", "sh", "-c",
                      "echo $NETLAB_HOST/$NETLAB_HOSTS {rank}/$NETLAB_SIZE {address} {addresses}")
        self.assertEqual(done.returncode, 0, done.stderr)
        addresses = "10.77.0.1,10.77.0.2"
        self.assertEqual(sorted(done.stdout.splitlines()), [
            f"[0] 0/2 0/4 10.77.0.1 {addresses}", f"[1] 0/2 1/4 10.77.0.1 {addresses}",
            f"[2] 1/2 2/4 10.77.0.2 {addresses}", f"[3] 1/2 3/4 10.77.0.2 {addresses}"])

    def test_links_have_the_rate_both_ways(self):
        done = netlab("--hosts", "1", "--rate", "100mbit", "--", "sh", "-c",
                      "tc qdisc show dev eth0; tc -n netlab-$NETLAB_RUN-bridge qdisc show dev host0")
        self.assertEqual(done.stdout.count("tbf"), 2, done.stdout)
        self.assertEqual(done.stdout.count("rate 100Mbit"), 2, done.stdout)

    def test_the_exit_code_is_the_first_failure(self):
        # Rank 1 fails at once; rank 0, with another code, once rank 1 has been waited for.
        with tempfile.TemporaryDirectory() as folder:
            done = netlab("--hosts", "2", "--", "sh", "-c",
                          f"cd {folder}; [ {{rank}} = 1 ] && echo $$ > new && mv new pid && exit 7; "
                          "until [ -e pid ]; do sleep 0.01; done; "
                          "while [ -e /proc/$(cat pid) ]; do sleep 0.01; done; exit 9")
        self.assertEqual(done.returncode, 7, done.stdout + done.stderr)

    def test_a_rank_ended_by_a_signal_counts_as_failed(self):
        self.assertEqual(netlab("--hosts", "1", "--", "sh", "-c", "kill -9 $$").returncode, 128 + 9)

    def test_the_time_is_bounded(self):
        done = netlab("--hosts", "1", "--timeout", "0.3", "--", "sleep", "60")
        self.assertEqual(done.returncode, 124)
        self.assertEqual(done.stderr, "netlab: 0.3 s are over; still running: rank 0\n")

    def test_a_plain_stream_is_measured(self):
        done = netlab("--hosts", "2", "--rate", "100mbit", "--stream", "0.8")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        figure = json.loads(done.stdout.removeprefix("[0] "))
        self.assertEqual(figure["unit"], "GB/s")
        self.assertGreater(figure["value"], 0)

    def test_a_cut_host_is_reached_again_when_mended(self):
        reach = ("python3 -c 'import socket; s = socket.socket(); s.settimeout(0.5);"
                 " print(s.connect_ex((\"10.77.0.2\", 9)))'")
        # 111: refused, so the host is there and nobody listens; anything else: no answer.
        done = netlab("--hosts", "2", "--", "sh", "-c",
                      f"[ {{rank}} = 1 ] && exec sleep 3; {reach}; {NETLAB} cut 1; {reach}; "
                      f"{NETLAB} mend 1; {reach}")
        answers = [line.removeprefix("[0] ") for line in done.stdout.splitlines()]
        self.assertEqual(len(answers), 3, done.stdout)
        self.assertEqual(answers[0], "111")
        self.assertNotEqual(answers[1], "111")
        self.assertEqual(answers[2], "111")

    def test_nothing_stays_when_it_is_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with Started("--hosts", "2", "--", "sh", "-c", "echo up; exec sleep 60") as run:
                self.assertIn("up", run.line)
                self.assertEqual(len(namespaces_of(run.process.pid)), 3)
                run.process.send_signal(number)
                self.assertEqual(run.process.wait(30), 128 + number)
                self.assertEqual(namespaces_of(run.process.pid), [])

    def test_what_a_killed_run_left_can_be_cleaned(self):
        with Started("--hosts", "1", "--", "sh", "-c", "echo $$; exec sleep 60") as run:
            child = int(run.line.removeprefix("[0] "))
            run.process.kill()
            run.process.wait(30)
            deadline = time.monotonic() + 10
            while os.path.exists(f"/proc/{child}") and time.monotonic() < deadline:
                pass
            self.assertFalse(os.path.exists(f"/proc/{child}"), "the command outlived netlab")
            self.assertEqual(len(namespaces_of(run.process.pid)), 2)
            self.assertIn("removed", netlab("--clean").stdout)
            self.assertEqual(namespaces_of(run.process.pid), [])

    def test_clean_leaves_running_ones_alone(self):
        with Started("--hosts", "1", "--", "sh", "-c", "echo up; exec sleep 60") as run:
            netlab("--clean")
            self.assertEqual(len(namespaces_of(run.process.pid)), 2)

    def test_mistakes_are_told(self):
        self.assertIn("nothing to run: give a command behind --", netlab("--hosts", "2").stderr)
        self.assertIn("--rate is 'fast'; expected a rate such as 100mbit or 1gbit",
                      netlab("--rate", "fast", "--", "true").stderr)
        self.assertIn("--hosts and --ranks-per-host are 1 to 64",
                      netlab("--hosts", "65", "--", "true").stderr)


if __name__ == "__main__":
    allowed = netlab("--check")
    if allowed.returncode != 0:
        print(f"skipped: this machine allows no network namespaces ({allowed.stdout.strip()})")
        sys.exit(SKIPPED)
    unittest.main()
