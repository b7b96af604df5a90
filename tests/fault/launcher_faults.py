#!/usr/bin/env python3
"""Kills ranks of trainings that another launcher has started, and looks at what is said and left.

    tests/fault/launcher_faults.py --bin build/bin --launcher openmpi|mpich|slurm|torchrun|ssh --kills 20 [--seed 1]
        [--out docs/faults.md]

Every round trains with 2 or 3 processes, by all-reduce or with a parameter server in turn, and kills (SIGKILL) a random
one after a random step. The launcher must end with a code that is not 0, somebody must name the rank, or its process,
and nothing may stay behind: no process, no file. `--launcher` may be given several times, or be left out for all that
this machine has; those that it has not are told. Slurm and ssh (`tutti run --hosts` over netlab hosts) need root.
--out writes the section "launchers" of a page.
"""
import argparse
import os
import random
import re
import signal
import sys
import time

import page_sections
import rounds

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
from outside_launchers import LAUNCHERS, make_launcher, present_launchers  # pylint: disable=wrong-import-position

END_SECONDS = 60  # for all to end
NAMES = {"openmpi": "`mpirun`, Open MPI", "mpich": "`mpirun`, MPICH", "slurm": "`srun`", "torchrun": "`torchrun`",
         "ssh": "`tutti run --hosts`"}
STRATEGIES = {"allreduce": [], "ps-async": ["--ps", "1"]}


def training(args, strategy):
    return [f"{args.bin}/fashion_mnist", "--model", "mlp", "--batch-size", "16", "--strategy", strategy,
            *STRATEGIES[strategy], "--start-timeout", "30", "--max-steps", "1000000", "--log-every", "1"]


def check_round(launcher, job, strategy, size, generator):
    # Workers other than the first, whom the others go on without, are for tests/fault/ps_faults.py.
    needed = [0, size - 1] if strategy == "ps-async" and launcher.outlives_workers else range(size)
    step, victim = generator.randint(1, 40), generator.choice(needed)
    if not job.wait_for_step(step):
        raise rounds.Wrong(f"step {step} was never reached")
    ranks = job.ranks()
    if len(ranks) != size:
        raise rounds.Wrong(f"found ranks {sorted(ranks)} of {size}")
    struck = time.monotonic()
    os.kill(ranks[victim], signal.SIGKILL)
    try:
        code, text = job.finish(END_SECONDS)
    except Exception as error:
        raise rounds.Wrong(f"the launcher hangs after rank {victim} was killed at step {step}: {error}") from None
    seconds = time.monotonic() - struck
    if code == 0:
        raise rounds.Wrong(f"the launcher ended with 0 after rank {victim} was killed")
    # The others name a task by its rank or role, launchers by its rank, its number or its process.
    names = rf"\brank {victim}\b|task {victim}: Killed|\b{ranks[victim]}\b|local_rank: {victim}\b"
    if strategy == "ps-async":
        names += r"|/job:ps/task:0\b|\bps 0 was ended" if victim == size - 1 else r"|/job:(chief|worker)/task:\d"
    if not re.search(names, text):
        raise rounds.Wrong(f"nobody names rank {victim} of {size}, process {ranks[victim]}")
    deadline = time.monotonic() + END_SECONDS
    while job.processes() and time.monotonic() < deadline:
        time.sleep(0.02)
    if job.processes():
        raise rounds.Wrong(f"still running: {sorted(job.processes())}")
    if launcher.left_files():
        raise rounds.Wrong(f"left in the home: {launcher.left_files()}")
    return seconds


def run_round(args, launcher, number, generator):
    strategy = list(STRATEGIES)[number % len(STRATEGIES)]
    size = 3 if strategy == "ps-async" else generator.randint(2, 3)
    shared = rounds.Leftovers.shared_names()
    job = launcher.start(size, training(args, strategy))
    try:
        seconds = check_round(launcher, job, strategy, size, generator)
    except rounds.Wrong as wrong:
        raise rounds.Wrong(f"{wrong} ({strategy}, {size} processes)\n{job.text[-1500:]}") from None
    finally:
        for pid in job.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if job.process.poll() is None:
            job.finish()
    names = rounds.Leftovers.shared_names() - shared
    if names:
        raise rounds.Wrong(f"left in /dev/shm: {sorted(names)}")
    return seconds


def section(done, kills, seed, left_out):
    """A row a launcher; of a round that went wrong there is no time."""
    lines = ["## Launchers", "",
             "`fashion_mnist` trains with 2 or 3 processes under each launcher, by all-reduce or with a parameter server in "
             "turn; after a random step a random process is killed. The launcher must end with a code that is not 0, somebody "
             "must name the rank or its process, and no process or file may be left. The time is until the launcher has ended.",
             "", "| launcher | rounds | right | p50 | p99 | most |", "|---|---|---|---|---|---|"]
    for row in rounds.statistics(done):
        lines.append("| {case} | {rounds} | {right} | {p50} | {p99} | {most} |".format(**row))
    if left_out:
        lines += ["", f"Not on this machine: {', '.join(NAMES[name] for name in left_out)}."]
    return "\n".join([*lines, "", f"`tests/fault/launcher_faults.py --kills {kills} --seed {seed}`", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", default="build/bin", help="folder of the programs (default build/bin)")
    parser.add_argument("--launcher", action="append", choices=list(LAUNCHERS))
    parser.add_argument("--kills", type=int, default=2, help="under each launcher")
    parser.add_argument("--seed", type=int, default=None, help="default: a random one, which is printed")
    parser.add_argument("--out", help="the page whose section is written")
    args = parser.parse_args()
    args.bin = os.path.abspath(args.bin)
    seed = random.randrange(1 << 30) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    done = []
    names = args.launcher or present_launchers()
    for name in names:
        generator = random.Random(f"{seed} {name}")
        with make_launcher(name) as launcher:
            right = 0
            for number in range(args.kills):
                entry = {"fault": rounds.KILL, "case": NAMES[name], "seconds": None}
                try:
                    entry["seconds"] = run_round(args, launcher, number, generator)
                    right += 1
                    print(f"{name} {number}: named, ended after {entry['seconds']:.1f} s, nothing left", flush=True)
                except rounds.Wrong as reason:
                    print(f"{name} {number}: WRONG: {reason}", flush=True)
                done.append(entry)
            print(f"{name}: {right} of {args.kills} kills as promised", flush=True)
    if args.out:
        page_sections.write(args.out, "launchers", "tests/fault/launcher_faults.py",
                            section(done, args.kills, seed, [name for name in LAUNCHERS if name not in names]))
    return 1 if any(entry["seconds"] is None for entry in done) else 0


if __name__ == "__main__":
    sys.exit(main())
