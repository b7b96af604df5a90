#!/usr/bin/env python3
"""Kills and stops workers of a training, and checks what the others say.

    tests/fault/training_faults.py --bin build/bin --kills 100 --stops 30 [--workers 3] [--seed 1]

Every round starts a job under `tutti run`, lets it train for a moment, and kills (SIGKILL) or stops (SIGSTOP) a random
worker. Every other worker must end with an error that names that rank, within the deadline, the launcher must tell the
cause and leave nothing running. Prints one line a round, and at the end how long the others took to notice.
"""
import argparse
import os
import re
import signal
import sys
import time

import rounds
from training_job import TrainingJob

SILENCE_SECONDS = 5  # what a training waits for a sign of life
NAMED = re.compile(r"worker (\d+) \| .*fashion_mnist: .*\brank (\d+)\b")


def strike(args, what, job, generator):
    victim = generator.randrange(args.workers)
    job.wait_for_steps()
    time.sleep(generator.random() * 0.3)
    pids = job.workers()
    struck = time.monotonic()
    os.kill(pids[victim], rounds.SIGNALS[what])
    noticed = {}  # each survivor's message: when it came, and whom it names

    def watch(line):
        match = NAMED.search(line)
        if match and int(match.group(1)) != victim:
            noticed.setdefault(int(match.group(1)), (time.monotonic() - struck, int(match.group(2))))
        return len(noticed) == args.workers - 1

    job.read_until(watch, rounds.KILL_CEILING_SECONDS if what == rounds.KILL
                   else SILENCE_SECONDS * rounds.STOP_CEILING_FACTOR)
    if what == rounds.STOP:
        os.kill(pids[victim], signal.SIGKILL)  # the launcher would after its grace time
    code = job.finish()
    if len(noticed) < args.workers - 1:
        raise rounds.Wrong(f"only {sorted(noticed)} noticed that {victim} was struck")
    for worker, (_, rank) in noticed.items():
        if rank != victim:
            raise rounds.Wrong(f"worker {worker} names rank {rank}, struck was {victim}")
    if code < 128:
        raise rounds.Wrong(f"the launcher exited with {code}, expected 128 or more")
    if what == rounds.KILL and f"tutti run: worker {victim} was ended by SIGKILL" not in job.text():
        raise rounds.Wrong(f"the launcher does not name worker {victim}")
    return max(seconds for seconds, _ in noticed.values()), pids.values()


def run_round(args, what, generator):
    leftovers = rounds.Leftovers()
    job = TrainingJob(args.bin, args.workers, args.extra, environment=leftovers.environment)
    try:
        seconds, pids = strike(args, what, job, generator)
        leftovers.check(pids)
        return seconds
    except rounds.Wrong as wrong:
        raise rounds.Wrong(f"{wrong}\n{job.text()}") from None
    finally:
        job.close()
        leftovers.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    rounds.add_arguments(parser)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("extra", nargs="*", help="more flags for the program")
    args = parser.parse_args()
    case = f"{args.workers} workers"
    return rounds.run(args, [case], lambda what, _, generator: run_round(args, what, generator))


if __name__ == "__main__":
    sys.exit(main())
