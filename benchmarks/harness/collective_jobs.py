"""Starts one job of one library and reads its figures: {bytes: {"us", "back_to_back_us"}}.

The peers' programs are built from peers/*.cc on first use, into the folder of the peers.
"""

import contextlib
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from harness.processes import FOLDER, BenchError, peers_folder, run_together

SOURCES = FOLDER / "peers"


def oneapi():
    return peers_folder() / "oneapi"


def _oneapi_flags(*libraries):
    folder = oneapi()
    return [f"-I{folder}/include", f"-L{folder}/lib", f"-Wl,-rpath,{folder}/lib",
            f"-Wl,-rpath-link,{folder}/lib", *(f"-l{name}" for name in libraries)]


def _compilers():
    """Of each program: its source, the compiler, and the flags after the source."""
    return {
        "openmpi": ("mpi_peer.cc", "mpicxx.openmpi", []),
        "mpich": ("mpi_peer.cc", "mpicxx.mpich", []),
        "intelmpi": ("mpi_peer.cc", "g++", _oneapi_flags("mpi")),
        "oneccl": ("oneccl_peer.cc", "g++", _oneapi_flags("ccl", "mpi")),
        "gloo": ("gloo_peer.cc", "g++", ["-lgloo", "-pthread"]),
        "memory_bound": ("memory_bound.cc", "g++", ["-pthread"]),
    }


def build(key):
    """The program of a peer, built if it is older than its sources."""
    name, compiler, flags = _compilers()[key]
    program = peers_folder() / "bin" / key
    sources = [SOURCES / name, SOURCES / "collective_peer.h"]
    if program.exists() and all(program.stat().st_mtime > s.stat().st_mtime for s in sources):
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-std=c++17", "-O3", f"-I{FOLDER.parent}", str(sources[0]), "-o",
               str(program), *flags]
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        result = None
    if result is None or result.returncode:
        why = result.stderr.strip().splitlines()[-1] if result else f"there is no {compiler}"
        raise BenchError(f"{key} cannot be built ({why}); run benchmarks/install-peers "
                         "collectives, or leave it out with --peers")
    return program


def version(key):
    package = {"openmpi": "openmpi-bin", "mpich": "mpich", "gloo": "libgloo-dev"}.get(key)
    if package:
        asked = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package],
                               capture_output=True, text=True)
        return asked.stdout.split("-")[0] or "unknown"
    package = {"intelmpi": "impi_devel", "oneccl": "oneccl_devel"}[key]
    found = glob.glob(f"{oneapi()}/lib/python*/site-packages/{package}-*.dist-info")
    return found[0].removesuffix(".dist-info").rsplit("-", 1)[1] if found else "unknown"


def _launcher(key, ranks, crowded):
    if key == "openmpi":
        binding = ["--oversubscribe", "--bind-to", "none"] if crowded else ["--bind-to", "core"]
        return ["mpirun.openmpi", "-n", str(ranks), *binding]
    if key == "mpich":
        return ["mpirun.mpich", "-n", str(ranks), "-bind-to", "none" if crowded else "core"]
    return [str(oneapi() / "bin/mpiexec.hydra"), "-n", str(ranks)]


def _environment(peer, mode, crowded):
    environment = {**os.environ, **dict(peer.always), **dict(peer.crowded if crowded else ()),
                   **dict(mode.environment)}
    if peer.key in ("intelmpi", "oneccl"):
        folder = str(oneapi())
        environment |= {"I_MPI_ROOT": folder, "CCL_ROOT": folder,
                        "PATH": f"{folder}/bin:{environment['PATH']}",
                        "LD_LIBRARY_PATH": f"{folder}/lib"}
    return environment


def _figures(output):
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {line["bytes"]: line for line in lines}


def run_peer(peer, mode, ranks, sizes, seconds):
    crowded = ranks > len(os.sched_getaffinity(0))
    environment = _environment(peer, mode, crowded)
    command = [build(peer.key), "--bytes", ",".join(map(str, sizes)), "--seconds", seconds,
               "--in-place", int(mode.in_place)]
    if peer.key != "gloo":
        output = run_together([[*_launcher(peer.key, ranks, crowded), *command]], environment)
        return _figures(output)
    store = tempfile.mkdtemp(prefix="tutti-gloo-")
    try:
        place = ["--size", ranks, "--store", store]
        output = run_together([[*command, "--rank", rank, *place] for rank in range(ranks)],
                              environment)
    finally:
        shutil.rmtree(store)
    return _figures(output)


@contextlib.contextmanager
def busy_process():
    """One process that computes all the time, on the cores of this one."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run_memory_bound(sizes, seconds):
    """{bytes: GB/s} that two threads reach at best with a = b = a + b on arrays of this size."""
    command = [build("memory_bound"), "--bytes", ",".join(map(str, sizes)), "--seconds", seconds]
    lines = _figures(run_together([command]))
    return {size: line["gb_per_second"] for size, line in lines.items()}


def run_tutti(program, ranks, sizes, seconds, transport, memory, busy=0):
    command = [pathlib.Path(program), "bench", "allreduce", "--ranks", ranks, "--bytes",
               ",".join(map(str, sizes)), "--transport", transport, "--algorithm", "auto",
               "--memory", memory, "--seconds", seconds, "--busy", busy, "--json"]
    return _figures(run_together([command]))
