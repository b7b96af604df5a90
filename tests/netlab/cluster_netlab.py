#!/usr/bin/env python3
"""A cluster on three hosts of scripts/netlab: the results of one process, and what is said when a host is cut off.

    tests/netlab/cluster_netlab.py --bin build/bin

Needs root; exits with 77 where the machine allows no network namespaces.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cluster"))

import servers  # noqa: E402

NETLAB = str(HERE.parents[1] / "scripts" / "netlab")
SKIPPED = 77
HOSTS = 3
PORT = 2222
BIN = "build/bin"
CEILING_SECONDS = 50  # ten times the promise
NAMES = [f"/job:worker/task:{i}" for i in range(HOSTS)]


# On the hosts -----------------------------------------------------------------------------------

def await_file(path):
    deadline = time.monotonic() + 5 * servers.PATIENCE
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{path} did not come")
        time.sleep(0.01)


def write_file(path, text=""):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path + ".new", path)


def run_client(args, host, *used):
    """A client of the task on this host, whose steps need those tasks, until it fails."""
    return subprocess.Popen([f"{args.bin}/cluster_client", f"tutti://{args.addresses[host]}:{PORT}", "between",
                             f"client{host}", *used], env=servers.environment(), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def be_client(args, host, *used):
    """Leaves what the client said in the folder, and a file when it is running."""
    client = run_client(args, host, *used)
    if client.stdout.readline().strip() == "running":
        write_file(f"{args.folder}/running{host}")
    # It ends by itself when its input is closed, so that stays open. netlab ends one that hangs.
    text = client.stdout.read()
    client.communicate()
    write_file(f"{args.folder}/said{host}", text)


def cut_last_host(args, host):
    """Hosts 0 and 2 each run a client that needs the other; host 1 cuts host 2 off."""
    if host == 0:
        be_client(args, 0, NAMES[1], NAMES[2])
    elif host == 2:
        be_client(args, 2, NAMES[0])
    else:
        await_file(f"{args.folder}/running0")
        await_file(f"{args.folder}/running2")
        write_file(f"{args.folder}/struck", str(time.monotonic()))
        subprocess.run([NETLAB, "cut", "2"], check=True)
        await_file(f"{args.folder}/said0")
        await_file(f"{args.folder}/said2")
        subprocess.run([NETLAB, "mend", "2"], check=True)


def run_graphs(args, host):
    if host == 0:
        done = subprocess.run([f"{args.bin}/graph_set", f"tutti://{args.addresses[0]}:{PORT}", *NAMES],
                              env=servers.environment(), capture_output=True, text=True,
                              timeout=5 * servers.PATIENCE, check=False)
        write_file(f"{args.folder}/graphs", done.stdout + done.stderr)
    await_file(f"{args.folder}/graphs")


def be_host(args):
    host = int(os.environ["NETLAB_HOST"])
    args.addresses = os.environ["NETLAB_ADDRESSES"].split(",")
    spec = {"worker": [f"{address}:{PORT}" for address in args.addresses]}
    task = servers.ServerTask(spec, NAMES[host], args.folder, args.bin, "--cores", "1")
    task.start()
    try:
        task.await_listening()
        {"graphs": run_graphs, "cut": cut_last_host}[args.be](args, host)
        write_file(f"{args.folder}/done{host}")
        for other in range(HOSTS):
            await_file(f"{args.folder}/done{other}")
    finally:
        task.kill()


# The tests --------------------------------------------------------------------------------------

class ClusterOnHosts(unittest.TestCase):
    def on_hosts(self, what, folder):
        done = subprocess.run([NETLAB, "--hosts", str(HOSTS), "--timeout", "250", "--", sys.executable, __file__,
                               "--bin", BIN, "--be", what, "--folder", folder], capture_output=True, text=True,
                              timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_results_are_those_of_one_process(self):
        alone = subprocess.run([f"{BIN}/graph_set"], capture_output=True, text=True, check=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            self.on_hosts("graphs", folder)
            with open(f"{folder}/graphs", encoding="utf-8") as file:
                self.assertEqual(file.read(), alone)

    def test_both_sides_name_the_peer_that_is_cut_off(self):
        with tempfile.TemporaryDirectory() as folder:
            self.on_hosts("cut", folder)
            with open(f"{folder}/struck", encoding="utf-8") as file:
                struck = float(file.read())
            for host, lost in ((0, NAMES[2]), (2, NAMES[0])):
                with open(f"{folder}/said{host}", encoding="utf-8") as file:
                    end = json.loads(file.read())
                self.assertEqual(end.get("code"), "UNAVAILABLE", end)
                self.assertIn(lost, end["message"])
                seconds = end["ended"] - struck
                print(f"host {host} named {lost} after {seconds:.2f} s", flush=True)
                self.assertLess(seconds, CEILING_SECONDS)


def main():
    global BIN
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default=BIN)
    parser.add_argument("--be", choices=("graphs", "cut"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args, rest = parser.parse_known_args()
    if args.be:
        be_host(args)
        return 0
    allowed = subprocess.run([NETLAB, "--check"], capture_output=True, text=True, check=False)
    if allowed.returncode != 0:
        print(f"skipped: this machine allows no network namespaces ({allowed.stdout.strip()})")
        return SKIPPED
    BIN = os.path.abspath(args.bin)
    unittest.main(argv=[sys.argv[0], *rest])
    return 0


if __name__ == "__main__":
    sys.exit(main())
