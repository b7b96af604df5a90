#!/usr/bin/env python3
"""Kills trainings at random moments, lets the same command go on, and compares the end with that of an unbroken run.

    tests/fault/resume_faults.py --bin build/bin --kills 60 --stops 0 [--strikes 2] [--seed 1]

Every round trains the CNN of fashion_mnist with dropout and Adam in a new --model-dir, with a checkpoint every other
step. It is killed (SIGKILL) --strikes times, each time after a random step and a random moment more, so that many kills
come in the middle of a save: with `local` the process, with `allreduce` one of 2 workers, with `ps-sync` one of 2
workers and 2 ps, or all of them and their launcher.
After each kill `tutti inspect` must find the newest checkpoint whole, and the same command goes on. In the end the last
checkpoint must have the same bytes, in every file, as that of a run that nobody killed. Prints one line a round, how many kills came
during a save, and how long a resumed training took to its first step.
"""
import argparse
import filecmp
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import rounds
from training_job import children_of

STEPS = 24
CASES = ["local", "2 workers", "2 workers + 2 ps"]
FLAGS = ["--model", "cnn", "--dropout", "0.3", "--batch-size", "8", "--max-steps", str(STEPS), "--save-every", "2",
         "--keep", "3", "--log-every", "1"]
STEP_LINE = re.compile(rb"step (\d+) loss")


def command_of(args, case, model_dir):
    program = [f"{args.bin}/fashion_mnist", *FLAGS, "--model-dir", model_dir]
    if case == "local":
        return program
    roles = ["--workers", "2", *(["--ps", "2"] if "ps" in case else [])]
    return [f"{args.bin}/tutti", "run", *roles, "--", *program, "--strategy", "ps-sync" if "ps" in case else "allreduce"]


class Run:
    """One start of the command, with its output as it comes."""

    def __init__(self, args, case, model_dir):
        self.began = time.monotonic()
        self.first_step = None
        self.text = b""
        self.process = subprocess.Popen(command_of(args, case, model_dir), stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)

    def read_to_step(self, step):
        """Reads until that step was made; false when the run ended before."""
        for line in self.process.stdout:
            self.text += line
            if match := STEP_LINE.search(line):
                self.first_step = self.first_step or time.monotonic()
                if int(match.group(1)) >= step:
                    return True
        return False

    def kill(self, case, generator):
        """Everything at once, or one task of several, whose end the others then have to notice."""
        victims = [self.process.pid] if case == "local" else children_of(self.process.pid)
        if case != "local" and generator.random() < 0.5:
            victims = [generator.choice(victims)] if victims else []
        elif case != "local":
            victims.append(self.process.pid)
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has just ended
        self.finish()

    def finish(self):
        self.text += self.process.stdout.read()
        return self.process.wait(timeout=60)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.stdout.close()
        self.process.wait()


def last_checkpoint(model_dir):
    return f"{model_dir}/checkpoint-{STEPS:06}"


def check_same(made, unbroken):
    names = sorted(os.listdir(unbroken))
    if sorted(os.listdir(made)) != names:
        raise rounds.Wrong(f"the last checkpoint has the files {sorted(os.listdir(made))}, expected {names}")
    _, others, failed = filecmp.cmpfiles(made, unbroken, names, shallow=False)
    if others or failed:
        raise rounds.Wrong(f"the last checkpoint has other bytes than that of the unbroken run in {others + failed}")


def train_to_the_end(args, case, model_dir):
    run = Run(args, case, model_dir)
    try:
        run.read_to_step(STEPS + 1)
        code = run.finish()
    finally:
        run.close()
    if code != 0 or b"test accuracy" not in run.text:
        raise rounds.Wrong(f"the training ended with {code}:\n{run.text.decode(errors='replace')[-2000:]}")
    if b"not bit-reproducible" in run.text:
        raise rounds.Wrong(run.text.decode(errors="replace")[-2000:])
    return run


def check_newest(args, model_dir):
    """What a kill leaves: no checkpoint yet, or a whole one."""
    whole = [name for name in os.listdir(model_dir) if name.startswith("checkpoint-")]
    if not whole:
        return
    done = subprocess.run([f"{args.bin}/tutti", "inspect", model_dir], capture_output=True, check=False)
    if done.returncode != 0 or b"all checksums are right" not in done.stdout:
        raise rounds.Wrong(f"after a kill: {done.stdout.decode()}{done.stderr.decode()}")


def run_round(args, case, generator, unbroken, counts):
    with tempfile.TemporaryDirectory(prefix="tutti-resume-") as model_dir:
        for _ in range(args.strikes):
            run = Run(args, case, model_dir)
            try:
                alive = run.read_to_step(generator.randrange(1, STEPS))
                if alive:
                    time.sleep(generator.random() * 0.04)
                    run.kill(case, generator)
            finally:
                run.close()
            counts["strikes"] += 1
            counts["during a save"] += any(name.startswith(".tmp-") for name in os.listdir(model_dir))
            check_newest(args, model_dir)
        run = train_to_the_end(args, case, model_dir)
        check_same(last_checkpoint(model_dir), unbroken)
        # A training that was killed after its last checkpoint has nothing left to do.
        return (run.first_step or time.monotonic()) - run.began


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    rounds.add_arguments(parser)
    parser.add_argument("--strikes", type=int, default=2, help="kills in a round (default 2)")
    parser.add_argument("--case", choices=CASES, action="append", help="only this one; may be repeated")
    args = parser.parse_args()
    cases = (args.case or CASES)[:args.kills]
    counts = {"strikes": 0, "during a save": 0}
    with tempfile.TemporaryDirectory(prefix="tutti-unbroken-") as folder:
        for case in cases:
            train_to_the_end(args, case, f"{folder}/{case}")
        code = rounds.run(args, cases,
                          lambda what, case, generator: run_round(args, case, generator,
                                                                  last_checkpoint(f"{folder}/{case}"), counts),
                          "same bytes; the first step", counts)
    print(f"{counts['strikes']} kills, {counts['during a save']} of them during a save")
    return code


if __name__ == "__main__":
    sys.exit(main())
