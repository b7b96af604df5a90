#!/usr/bin/env python3
"""Kills workers and servers of trainings with parameter servers, and checks what each strategy promises.

    tests/fault/ps_faults.py --bin build/bin --kills 100 [--seed 1] [--json rounds.json] [--out docs/faults.md]

--out writes the section of a page from all rounds that --json has kept, over several runs.

Every round starts 3 workers and 2 servers by TF_CONFIG, and kills one of them (SIGKILL) after a random step. Where the
strategy needs the task, all others must name it and end with code 128; a round counts the time until the last has. Every
strategy needs the first worker and the servers. Where it does not need the task, the first worker must name it once, and
all others must make every step and end with code 0; a round counts the time until it is named, and how long after the
first worker the last of the others has ended. Under ps-sync:backup=1 both are right, if the first worker says which it is.
"""
import argparse
import json
import math
import os
import queue
import re
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))

import rounds
import tasks

STEPS = 600
PATIENCE = 120  # seconds for a job that goes on
CASES = [f"{strategy}, a {victim} dies" for strategy in ("ps-async", "ps-ssp:2", "ps-sync", "ps-sync:backup=1")
         for victim in ("worker", "first worker", "ps")]
END_CEILING_SECONDS = 20  # the promise, 2 s after the first worker, ten times
STEP_LINE = re.compile(r"^step (\d+) loss")


class Task:
    """A task, and its lines with the times at which they came."""

    def __init__(self, cluster, job, index, strategy):
        self.name = f"/job:{job}/task:{index}"
        self.process = tasks.start(cluster, job, index, "--strategy", strategy, "--max-steps", str(STEPS),
                                   "--batch-size", "32", "--log-every", "1")
        self.lines = []
        self.coming = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))
            self.coming.put(line)
        self.ended = time.monotonic()
        self.coming.put(None)

    def await_step(self, step):
        """False when the task ended before."""
        while True:
            line = self.coming.get(timeout=PATIENCE)
            if line is None:
                return False
            if (match := STEP_LINE.match(line)) and int(match.group(1)) >= step:
                return True

    def end(self, seconds):
        """Its exit code; None if it did not end."""
        self.reader.join(timeout=seconds)
        return None if self.reader.is_alive() else self.process.wait()

    @property
    def text(self):
        return "".join(line for _, line in self.lines)


def check_ended(others, victim, struck):
    """All others named it and ended; when the last one had."""
    for other in others:
        code = other.end(rounds.KILL_CEILING_SECONDS)
        if code != 128:
            raise rounds.Wrong(f"{other.name} ended with {code}, expected 128: {other.text[-800:]}")
        if victim.name not in other.text:
            raise rounds.Wrong(f"{other.name} does not name {victim.name}: {other.text[-800:]}")
    return max(other.ended for other in others) - struck


def check_went_on(others, victim, struck, ends):
    for other in others:
        code = other.end(PATIENCE)
        if code != 0:
            raise rounds.Wrong(f"{other.name} ended with {code}, expected 0: {other.text[-800:]}")
    if "test accuracy" not in others[0].text:
        raise rounds.Wrong(f"{others[0].name} did not evaluate: {others[0].text[-800:]}")
    told = [(at, other) for other in others for at, line in other.lines if f"({victim.name}) is lost" in line]
    if len(told) != 1 or told[0][1] is not others[0]:
        raise rounds.Wrong(f"{victim.name} was to be named once by {others[0].name}, got {len(told)} lines")
    ends.append(max(other.ended for other in others) - others[0].ended)
    if ends[-1] > END_CEILING_SECONDS:
        raise rounds.Wrong(f"the last task ended {ends[-1]:.1f} s after {others[0].name}, expected at most 2 s")
    return told[0][0] - struck


def run_round(case, generator, ends):
    strategy, role = re.match("(.*), a (.*) dies", case).groups()
    cluster = tasks.cluster_of(worker=3, ps=2)
    # The first worker stands first.
    started = {(job, i): Task(cluster, job, i, strategy) for job, count in (("worker", 3), ("ps", 2))
               for i in range(count)}
    try:
        if not started["worker", 0].await_step(generator.randrange(1, STEPS // 3)):
            raise rounds.Wrong(f"worker 0 ended before the kill: {started['worker', 0].text[-800:]}")
        victim = started[{"worker": ("worker", generator.randrange(1, 3)), "first worker": ("worker", 0),
                          "ps": ("ps", generator.randrange(2))}[role]]
        others = [task for task in started.values() if task is not victim]
        victim.process.send_signal(signal.SIGKILL)
        struck = time.monotonic()
        if role != "worker" or strategy == "ps-sync":
            return check_ended(others, victim, struck)
        if "backup" in strategy and others[0].end(PATIENCE) == 128:
            if "had been admitted to step" not in others[0].text:
                raise rounds.Wrong(f"worker 0 ended for no good reason: {others[0].text[-800:]}")
            return check_ended(others, victim, struck)
        return check_went_on(others, victim, struck, ends)
    finally:
        for task in started.values():
            if task.process.poll() is None:
                task.process.kill()
            task.process.wait()


BEGIN, END = "<!-- ps: written by tests/fault/ps_faults.py; do not edit -->\n", "<!-- /ps -->\n"


def at_share(ordered, share):
    return ordered[math.ceil(share * len(ordered)) - 1]


def write_section(path, kept):
    """Replaces or adds the section on parameter servers."""
    lines = ["## Parameter servers", "",
             "3 workers and 2 servers train `fashion_mnist`; after a random step one of them is killed. Where the strategy "
             "needs the task, all others name it and end with 128; else the first worker names it, and the others make every "
             "step and end with 0. The time is until the last one that must had named it; the first worker is also the chief.", "",
             "| strategy, who dies | rounds | right | p50 | p99 | most |", "|---|---|---|---|---|---|"]
    for row in rounds.statistics(kept["rounds"]):
        lines.append("| {case} | {rounds} | {right} | {p50} | {p99} | {most} |".format(**row))
    ends = sorted(seconds for run in kept["runs"] for seconds in run.get("ends", []))
    if ends:
        lines += ["", f"In {len(ends)} trainings that went on, the last task ended after the first worker by "
                  f"{at_share(ends, 0.5):.3f} s (p50), {at_share(ends, 0.99):.3f} s (p99), {ends[-1]:.3f} s (most; at most 2 s)."]
    for run in kept["runs"]:
        lines += ["", f"`tests/fault/ps_faults.py --kills {run['kills']} --seed {run['seed']}`"]
    with open(path, encoding="utf-8") as file:
        text = file.read()
    start, stop = text.find(BEGIN), text.find(END)
    old = text[start:stop + len(END)] if 0 <= start < stop else ""
    section = BEGIN + "\n".join(lines) + "\n" + END
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(old, section) if old else text.rstrip("\n") + "\n\n" + section)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    rounds.add_arguments(parser)
    parser.set_defaults(stops=0)
    parser.add_argument("--out", help="the page whose section is written; needs --json")
    args = parser.parse_args()
    tasks.BIN = args.bin
    ends = []
    code = rounds.run(args, CASES[:args.kills], lambda what, case, generator: run_round(case, generator, ends),
                      "named", {"ends": ends})
    if ends:
        print(f"the last task ended after the first worker by {max(ends):.3f} s (most of {len(ends)})")
    if args.out:
        with open(args.json, encoding="utf-8") as file:
            write_section(args.out, json.load(file))
    return code


if __name__ == "__main__":
    sys.exit(main())
