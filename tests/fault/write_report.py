#!/usr/bin/env python3
"""Writes docs/faults.md from the statistics of the harnesses of faults. Called by scripts/soak.

    tests/fault/write_report.py --commit C --machine M --report docs/faults.md \
        collective=FILE.json training=FILE.json
"""
import argparse
import datetime
import json
import sys

import rounds

PAGE = """# What happens when a process dies

The harnesses in `tests/fault` kill (SIGKILL) and stop (SIGSTOP) processes at random moments; `scripts/soak kills` runs
them and writes this page. What makes a round right is not the same for both:

- Collectives: 2 to 4 processes run operations of all kinds back to back, three under way at a time
  (`tests/fault/collective_rank.cc`). Every other rank's operations end with UNAVAILABLE (kill) or DEADLINE_EXCEEDED
  (stop) that names the struck rank, or with data that was checked and is right. No rank hangs.
- Training: workers train under `tutti run`. Every other worker prints an error that names the struck rank, and the
  launcher exits with 128 or more and, after a kill, names the worker. Status codes and data are not looked at here. A
  stopped worker is killed by the harness once the others have noticed; that the launcher ends one by itself is tried
  once, in `tests/fault/bad_days.py`.

- Training that goes on: the CNN of `fashion_mnist` with dropout and Adam, with a checkpoint every other step, is killed
  twice at random moments, many of them in the middle of a save, and started again by the same command each time. After
  each kill the newest checkpoint is whole (`tutti inspect`), and the last one has the same bytes as that of a run that
  nobody killed. The time is from the last start to its first step.

After each round of the first two no process of the job may be running, and nothing of Tutti's may be new in /dev/shm or in the folder
for temporary files, but for the file in which ranks of the collectives meet: a killed rank 0 cannot remove it.

The times are from the signal until the last of the others had its error; for training, until the harness had read its
message. Promised are 1 s for a kill and, for a stop, the 5 s without a sign of life that are the default
(`silence_seconds`). A round only fails at ten times that; p99 of few rounds is the longest of them.

| during | among | fault | rounds | right | p50 | p99 | most |
|---|---|---|---|---|---|---|---|
{rows}

- date: {date}
- commit: {commit}
- machine: {machine}
- repeat it all with `scripts/soak kills`, or with the seeds of this page (moments differ from run to run):

```sh
{commands}
```
"""

DURING = {"collective": "collectives", "training": "training", "resume": "training that goes on"}
AMONG = {"shm": "shared memory", "tcp": "TCP"}


def row_of(harness, row):
    cells = [DURING[harness], AMONG.get(row["case"], row["case"]),
             *(row[name] for name in ("fault", "rounds", "right", "p50", "p99", "most"))]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--commit", required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--report", required=True)
    parser.add_argument("statistics", nargs="+", metavar="HARNESS=FILE")
    args = parser.parse_args()
    rows, commands = [], []
    for word in args.statistics:
        harness, _, path = word.partition("=")
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        rows += [(harness, row) for row in rounds.statistics(kept["rounds"])]
        commands += [f"tests/fault/{harness}_faults.py --kills {run['kills']} --stops {run['stops']} "
                     f"--seed {run['seed']}" for run in kept["runs"]]
    page = PAGE.format(rows="\n".join(row_of(*entry) for entry in rows), commands="\n".join(commands),
                       date=datetime.datetime.now(datetime.timezone.utc).date(), commit=args.commit,
                       machine=args.machine)
    with open(args.report, "w", encoding="utf-8") as file:
        file.write(page)
    right = sum(row["right"] for _, row in rows)
    total = sum(row["rounds"] for _, row in rows)
    print(f"{right} of {total} kills and stops as promised; figures in {args.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
