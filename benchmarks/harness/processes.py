"""The processes of a comparison: `tutti bench`, and long-lived workers of the peers.

Every process is bound to as many cores as it may use threads, the same ones for all.
"""

import json
import os
import pathlib
import select
import signal
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent.parent
JOB_SECONDS = 300  # after that a job is given up


class BenchError(Exception):
    """What a user can act on; printed without a traceback."""


def peers_folder():
    return pathlib.Path(os.environ.get("TUTTI_PEERS", pathlib.Path.home() / ".cache/tutti/peers"))


def last_cores(count):
    cores = sorted(os.sched_getaffinity(0))
    if count > len(cores):
        raise BenchError(f"{count} threads need as many cores; this process has {len(cores)}")
    return cores[-count:]


def bound_to(cores, command):
    return ["taskset", "-c", ",".join(map(str, cores)), *map(str, command)]


def bound(threads, command):
    return bound_to(last_cores(threads), command)


def run_together(commands, environment=None):
    """Runs the commands at once and returns the first one's output. Each has a session of its own,
    so that a job that fails or hangs is ended with all it started."""
    processes = [subprocess.Popen(list(map(str, command)), env=environment, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, start_new_session=True)
                 for command in commands]
    try:
        output, errors = processes[0].communicate(timeout=JOB_SECONDS)
        for process in processes[1:] if processes[0].returncode == 0 else ():
            process.communicate(timeout=JOB_SECONDS)
    except subprocess.TimeoutExpired:
        raise BenchError(f"`{' '.join(map(str, commands[0]))}` did not end in {JOB_SECONDS} s")
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    if processes[0].returncode:
        last = (errors.strip() or output.strip() or "no message").splitlines()[-1]
        raise BenchError(f"it exits with {processes[0].returncode}: {last}")
    return output


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

    def losses(self, model, batch, threads):
        """Of the first steps, from the first values that the peers have too."""
        found = self.bench("step", threads, "--model", model, "--batch", batch, "--seconds", 0.01, "--losses")
        return [value for case, value in found.items() if ", loss of step " in case]

    def doctor(self):
        return subprocess.run([self.program, "doctor"], capture_output=True, text=True).stdout


def openblas(threads, seconds):
    """(its name, GFLOP/s) of the product of `tutti bench gemm`, through the numpy of a peer."""
    pythons = [peers_folder() / name / "bin/python" for name in ("torch", "jax", "tensorflow")]
    python = next((path for path in pythons if path.exists()), None)
    if python is None:
        raise BenchError(f"no peer is installed in {peers_folder()}, whose numpy would have it; run "
                         "benchmarks/install-peers")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "PYTHONDONTWRITEBYTECODE": "1"}
    line = json.loads(run_together([bound(threads, [python, FOLDER / "peers/openblas_peer.py", seconds])],
                                   environment))
    return line["name"], line["value"]


class PeerProcess:
    """Speaks with peers/worker.py. `log` takes what the framework says; the cores are the last ones
    unless told."""

    def __init__(self, peer, threads, log, cores=None, script=None, environment=()):
        self.peer = peer
        python = peers_folder() / peer.install / "bin/python"
        if not python.exists():
            raise BenchError(f"{peer.label} is not installed ({python} is missing); run "
                             f"benchmarks/install-peers {peer.install}, or leave it out with "
                             "--peers")
        environment = {**os.environ, **dict(peer.environment), **dict(environment),
                       "TORCHINDUCTOR_CACHE_DIR": str(peers_folder() / "inductor"),
                       "PYTHONDONTWRITEBYTECODE": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        script = FOLDER / "peers" / (script or f"{peer.install}_peer.py")
        self._process = subprocess.Popen(
            bound_to(cores or last_cores(threads), [python, script, threads]), env=environment,
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def ask(self, do, **request):
        """The worker's answer; {"error": ...} when it could not do it."""
        self.send(do, **request)
        return self.receive()

    def send(self, do, **request):
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # receive() tells

    def receive(self, timeout=None):
        """The answer to what was sent last. A worker that lets `timeout` seconds pass is ended."""
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            self.kill()
            return {"error": f"no answer in {timeout} s"}
        line = self._process.stdout.readline()
        if not line:
            return {"error": f"its process ended with {self._process.wait()}; see the log"}
        return json.loads(line)

    def kill(self):
        """Every later answer is an error."""
        self._process.kill()

    def end_input(self):
        """Lets the worker end by itself."""
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass

    def close(self):
        self.end_input()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
