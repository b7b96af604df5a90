"""Training tasks that tests start by hand, with TF_CONFIG, as any launcher would."""
import argparse
import atexit
import json
import os
import socket
import subprocess
import sys
import unittest

BIN = "build/bin"


def sanitized():
    """Do the programs have a sanitizer, which wants memory and descriptors of its own?"""
    with open(f"{BIN}/fashion_mnist", "rb") as program:
        text = program.read()
    return b"__asan_init" in text or b"__tsan_init" in text


HELD = []


def free_ports(count):
    """Ports of loopback for tasks of this test. A socket stays bound to each, without listening, for
    as long as this process lives: the system gives the port to nobody else, and a task that sets
    SO_REUSEADDR can still listen at it."""
    ports = []
    for _ in range(count):
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        HELD.append(held)
        ports.append(held.getsockname()[1])
    return ports


def cluster_of(**jobs):
    ports = iter(free_ports(sum(jobs.values())))
    return {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}


def start(cluster, job, index, *flags, token="secret", config=None, cores=None, limit=None,
          **variables):
    """A task that may use these cores (None: all), under a limit such as "-n 12" of ulimit."""
    environment = dict(os.environ, TUTTI_JOB_TOKEN=token, **variables)
    environment["TF_CONFIG"] = config if config is not None else json.dumps(
        {"cluster": cluster, "task": {"type": job, "index": index}})
    command = [f"{BIN}/fashion_mnist", "--model", "mlp", "--strategy", "allreduce", *flags]
    if limit is not None:
        command = ["bash", "-c", f'ulimit {limit}; exec "$@"', "-", *command]
    pin = None if cores is None else lambda: os.sched_setaffinity(0, cores)
    STARTED.append(subprocess.Popen(command, env=environment, preexec_fn=pin, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True))
    return STARTED[-1]


STARTED = []


@atexit.register
def end_what_still_runs():
    """A test that fails leaves its tasks running, some of them for a million steps."""
    for task in STARTED:
        if task.poll() is None:
            task.kill()
            task.wait()


def run(*arguments):
    """`tutti run` with its flags, then "--" and those of the program."""
    split = arguments.index("--")
    command = [f"{BIN}/tutti", "run", *arguments[:split], "--", f"{BIN}/fashion_mnist", "--model", "mlp",
               "--batch-size", "32", *arguments[split + 1:]]
    STARTED.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return STARTED[-1]


def descendants(pid):
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as children:
            for child in map(int, children.read().split()):
                found += [child, *descendants(child)]
    except FileNotFoundError:
        pass  # it has just ended
    return found


def listening_ports(*pids):
    """The TCP ports at which these processes listen."""
    inodes = set()
    for pid in pids:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                name = os.readlink(f"/proc/{pid}/fd/{fd}")
            except FileNotFoundError:
                continue  # closed meanwhile
            if name.startswith("socket:["):
                inodes.add(name[len("socket:["):-1])
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pids[0]}/net/{table}", encoding="ascii") as lines:
            for fields in map(str.split, list(lines)[1:]):
                if fields[3] == "0A" and fields[9] in inodes:
                    ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


def pid_of_task(launcher, job, index):
    """The process of a task of `tutti run`."""
    for pid in descendants(launcher.pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environment:
                variables = dict(line.split(b"=", 1) for line in environment.read().split(b"\0") if b"=" in line)
        except (FileNotFoundError, ProcessLookupError):
            continue
        task = json.loads(variables.get(b"TF_CONFIG", b"{}")).get("task", {})
        if (task.get("type"), task.get("index")) == (job, index):
            return pid
    raise AssertionError(f"no process of {job} {index}")


def loads(limit):
    """Does the program start under this limit of ulimit?"""
    command = ["bash", "-c", f'ulimit {limit}; exec "$@"', "-", f"{BIN}/fashion_mnist", "--help"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def main(description):
    """Runs the tests of the calling script on the programs of --bin."""
    global BIN
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--bin", default=BIN)
    known, rest = parser.parse_known_args()
    BIN = known.bin
    unittest.main(argv=[sys.argv[0], *rest])
