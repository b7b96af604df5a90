#!/usr/bin/env python3
"""Kills and stops workers of a training, and checks what the others say.

    tests/fault/training_faults.py --bin build/bin --kills 100 --stops 30 [--workers 3] [--seed 1]

Every round starts a job under `tutti run`, lets it train for a moment, and kills (SIGKILL) or stops
(SIGSTOP) a random worker. Every other worker must end with an error that names that rank, within the
deadline, the launcher must tell the cause and leave nothing running. Prints one line a round, and at the end how long
the others took to notice: median and 99th percentile.
"""
import argparse
import os
import random
import re
import selectors
import signal
import subprocess
import sys
import time

# Ten times what is promised: a loaded machine is no failure.
KILL_CEILING_SECONDS = 10
STOP_CEILING_SECONDS = 50


def children_of(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            found += [int(child) for child in file.read().split()]
    return found


def index_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        text = file.read().decode(errors="replace")
    return int(re.search(r'"index":(\d+)', text).group(1))


class Job:
    """A training under the launcher, with its output as it comes."""

    def __init__(self, bin_folder, workers, extra):
        self.lines = []
        self.begin = time.monotonic()
        command = [f"{bin_folder}/tutti", "run", "--workers", str(workers), "--grace", "20", "--",
                   f"{bin_folder}/fashion_mnist", "--model", "mlp", "--strategy", "allreduce",
                   "--max-steps", "100000000", "--log-every", "20", *extra]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.pending = b""

    def read_until(self, done, seconds):
        """Reads lines until done(line) is true for one, the output ends, or the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.selector.select(timeout=0.05):
                continue
            block = self.process.stdout.read()
            if block == b"":
                return False
            if block is None:
                continue
            self.pending += block
            *whole, self.pending = self.pending.split(b"\n")
            for line in whole:
                text = line.decode(errors="replace")
                self.lines.append((time.monotonic(), text))
                if done(text):
                    return True
        return False

    def workers(self):
        return {index_of(pid): pid for pid in children_of(self.process.pid)}


def run_round(args, number, stop, generator):
    victim = generator.randrange(args.workers)
    job = Job(args.bin, args.workers, args.extra)
    try:
        if not job.read_until(lambda line: "| step " in line, 60):
            return f"no step within 60 s: {job.lines[-5:]}", None
        time.sleep(generator.random() * 0.3)
        pids = job.workers()
        struck = time.monotonic()
        os.kill(pids[victim], signal.SIGSTOP if stop else signal.SIGKILL)
        # Each survivor's message, and when it came.
        noticed = {}
        named = re.compile(r"worker (\d+) \| .*fashion_mnist: .*\brank (\d+)\b")

        def watch(line):
            match = named.search(line)
            if match and int(match.group(1)) != victim:
                noticed.setdefault(int(match.group(1)), (time.monotonic() - struck, int(match.group(2))))
            return len(noticed) == args.workers - 1

        ceiling = STOP_CEILING_SECONDS if stop else KILL_CEILING_SECONDS
        job.read_until(watch, ceiling)
        if stop:
            os.kill(pids[victim], signal.SIGKILL)  # the launcher would after its grace time
        job.read_until(lambda line: False, 40)
        code = job.process.wait(timeout=40)
        text = "\n".join(line for _, line in job.lines[-60:])
        if len(noticed) < args.workers - 1:
            return f"only {sorted(noticed)} noticed that {victim} was struck\n{text}", None
        for worker, (_, rank) in noticed.items():
            if rank != victim:
                return f"worker {worker} names rank {rank}, struck was {victim}\n{text}", None
        if code < 128:
            return f"the launcher exited with {code}, expected 128 or more\n{text}", None
        if not stop and f"tutti run: worker {victim} was ended by SIGKILL" not in text:
            return f"the launcher does not name worker {victim}\n{text}", None
        left = [pid for pid in pids.values() if os.path.exists(f"/proc/{pid}")]
        if left:
            return f"still running: {left}", None
        return None, max(seconds for seconds, _ in noticed.values())
    finally:
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--stops", type=int, default=1)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("extra", nargs="*", help="more flags for the program")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}")
    generator = random.Random(seed)
    failures = 0
    for stop, count in ((False, args.kills), (True, args.stops)):
        times = []
        for number in range(count):
            problem, seconds = run_round(args, number, stop, generator)
            what = "stop" if stop else "kill"
            if problem:
                failures += 1
                print(f"{what} {number}: FAILED: {problem}", flush=True)
            else:
                times.append(seconds)
                print(f"{what} {number}: noticed by all after {seconds:.3f} s", flush=True)
        if times:
            print(f"{'stops' if stop else 'kills'}: {len(times)} of {count}, noticed after "
                  f"{percentile(times, 0.5):.3f} s (p50), {percentile(times, 0.99):.3f} s (p99)",
                  flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
