"""The processes of a comparison: `tutti bench`, and one long-lived worker per peer.

Every process is bound to as many cores as it may use threads, the same ones for all.
"""

import json
import os
import pathlib
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent.parent


class BenchError(Exception):
    """What a user can act on; printed without a traceback."""


def peers_folder():
    return pathlib.Path(os.environ.get("TUTTI_PEERS", pathlib.Path.home() / ".cache/tutti/peers"))


def bound(threads, command):
    cores = sorted(os.sched_getaffinity(0))
    if threads > len(cores):
        raise BenchError(f"{threads} threads need as many cores; this process has {len(cores)}")
    return ["taskset", "-c", ",".join(map(str, cores[-threads:])), *map(str, command)]


class Tutti:
    def __init__(self, program):
        self.program = pathlib.Path(program)
        if not os.access(self.program, os.X_OK):
            raise BenchError(f"there is no program {program}; build it with `make build`, or name "
                             "another one with --tutti")

    def bench(self, what, threads, *flags):
        """The figures of `tutti bench WHAT`: {case: value}."""
        command = [self.program, "bench", what, "--threads", threads, "--json", *flags]
        result = subprocess.run(bound(threads, command), capture_output=True, text=True)
        if result.returncode:
            raise BenchError(f"`{' '.join(map(str, command))}` exits with {result.returncode}: "
                             f"{result.stderr.strip()}")
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        return {line["case"]: line["value"] for line in lines}

    def doctor(self):
        return subprocess.run([self.program, "doctor"], capture_output=True, text=True).stdout


class PeerProcess:
    """Speaks with peers/worker.py. `log` takes what the framework says."""

    def __init__(self, peer, threads, log):
        self.peer = peer
        python = peers_folder() / peer.install / "bin/python"
        if not python.exists():
            raise BenchError(f"{peer.label} is not installed ({python} is missing); run "
                             f"benchmarks/install-peers {peer.install}, or leave it out with "
                             "--peers")
        environment = {**os.environ, **dict(peer.environment),
                       "TORCHINDUCTOR_CACHE_DIR": str(peers_folder() / "inductor"),
                       "PYTHONDONTWRITEBYTECODE": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        script = FOLDER / "peers" / f"{peer.install}_peer.py"
        self._process = subprocess.Popen(
            bound(threads, [python, script, threads]), env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def ask(self, do, **request):
        """The worker's answer; {"error": ...} when it could not do it."""
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"error": f"its process ended with {self._process.wait()}; see the log"}
        return json.loads(line)

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
