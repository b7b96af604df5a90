"""What the harnesses of faults share: rounds of kills and stops, their statistics, and what must not stay behind.

A harness gives run_round(what, case, generator), which strikes one process and returns after how many seconds
everybody else had noticed, or raises Wrong. Everything random comes from one seed, which is printed.
"""
import json
import math
import os
import random
import signal
import tempfile

# The promise is a second for a death and the time of silence for a stop. Rounds fail at ten times
# as much: a loaded machine is no failure, and the statistics tell the rest.
KILL_CEILING_SECONDS = 10
STOP_CEILING_FACTOR = 10

KILL, STOP = "kill", "stop"
SIGNALS = {KILL: signal.SIGKILL, STOP: signal.SIGSTOP}


class Wrong(Exception):
    """A round that did not go as promised; says how."""


def add_arguments(parser):
    parser.add_argument("--bin", default="build/bin", help="folder of the programs (default build/bin)")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--stops", type=int, default=1)
    parser.add_argument("--seed", type=int, default=None, help="default: a random one, which is printed")
    parser.add_argument("--json", metavar="FILE", help="add the rounds to those that are in it")


class Leftovers:
    """A folder for all that a job writes, and a look at what stays behind in it and in shared memory."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-faults-")
        self.shared = self.shared_names()
        self.environment = dict(os.environ, TMPDIR=self.folder.name)

    @staticmethod
    def shared_names():
        return {name for name in os.listdir("/dev/shm") if "tutti" in name}

    def check(self, pids, allowed=()):
        """Raises Wrong if a process still runs or a name is left. Pids must have been waited for."""
        running = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        if running:
            raise Wrong(f"still running: {running}")
        names = self.shared_names() - self.shared
        if names:
            raise Wrong(f"left in /dev/shm: {sorted(names)}")
        files = set(os.listdir(self.folder.name)) - set(allowed)
        if files:
            raise Wrong(f"left in the folder for temporary files: {sorted(files)}")

    def close(self):
        self.folder.cleanup()


def run(args, cases, run_round, happened="noticed by all", counts=None):
    """Runs the rounds, over the cases (of each fault, or of all) in turn, prints a line each and statistics, and returns the
    exit code. What run_round counts in `counts` is kept with the rounds."""
    seed = args.seed if args.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    generator = random.Random(seed)
    done = []
    for what, count in ((KILL, args.kills), (STOP, args.stops)):
        of_fault = cases[what] if isinstance(cases, dict) else cases
        for number in range(count):
            entry = {"fault": what, "case": of_fault[number % len(of_fault)], "seconds": None}
            try:
                entry["seconds"] = run_round(what, entry["case"], generator)
                outcome = f"{happened} after {entry['seconds']:.3f} s"
            except Wrong as wrong:
                outcome = f"FAILED: {wrong}"
            print(f"{what} {number} ({entry['case']}): {outcome}", flush=True)
            done.append(entry)
    for row in statistics(done):
        print("{fault}s ({case}): {right} of {rounds} as promised, {happened} after {p50} (p50), {p99} (p99), {most} (most)"
              .format(happened=happened, **row), flush=True)
    if args.json:
        keep(args.json, {"seed": seed, "kills": args.kills, "stops": args.stops, **(counts or {})}, done)
    return 0 if all(entry["seconds"] is not None for entry in done) else 1


def keep(path, command, done):
    """Adds a run to the file of runs."""
    kept = {"runs": [], "rounds": []}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
    kept["runs"].append(command)
    kept["rounds"] += done
    with open(path, "w", encoding="utf-8") as file:
        json.dump(kept, file, indent=1)


def statistics(done):
    """A row for each fault and case: rounds, rounds that went as promised, and the time until all had noticed."""
    rows = []
    for what, case in dict.fromkeys((entry["fault"], entry["case"]) for entry in done):
        all_times = [entry["seconds"] for entry in done if (entry["fault"], entry["case"]) == (what, case)]
        times = sorted(seconds for seconds in all_times if seconds is not None)
        row = {"fault": what, "case": case, "rounds": len(all_times), "right": len(times)}
        for name, share in (("p50", 0.5), ("p99", 0.99), ("most", 1)):
            row[name] = f"{times[math.ceil(share * len(times)) - 1]:.3f} s" if times else "-"
        rows.append(row)
    return rows
