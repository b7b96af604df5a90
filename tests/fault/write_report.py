#!/usr/bin/env python3
"""Writes docs/faults.md from the statistics of the harnesses of faults. Called by scripts/soak.

    tests/fault/write_report.py --commit C --machine M --report docs/faults.md \
        collective=FILE.json training=FILE.json resume=FILE.json cluster=FILE.json

`resume` and `cluster` have sections of their own, which can be written alone. Marked sections of others stay as they are.
"""
import argparse
import datetime
import json
import sys

import page_sections
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

After each round no process of the job may be running, and nothing of Tutti's may be new in /dev/shm or in the folder
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

RESUME = """## Trainings that go on

The CNN of `fashion_mnist` with dropout and Adam, with a checkpoint every other step, is killed (SIGKILL) twice a round at
random moments, and started again by the same command each time: with `local` the process, with `allreduce` one of 2 workers,
with `ps-sync` one of 2 workers and 2 ps, or all of them and their launcher. {strikes} kills in all, {saving} of them in the
middle of a save. After each kill the newest checkpoint is whole (`tutti inspect`), and the last one has the same bytes, in
every file, as that of a run that nobody killed. The time is from the last start to its first step.

| among | rounds | same bytes | p50 | most |
|---|---|---|---|---|
{rows}

- date: {date}
- commit: {commit}
- machine: {machine}
- repeat it with `scripts/soak kills`, or with `tests/fault/resume_faults.py --kills 90 --stops 0`
"""

CLUSTER = """## Clusters

A chief (the coordinator), a worker and three ps, each a `tutti server`, stay up through all rounds; a client connected to
the worker works on it and on two ps, another one, connected to the chief, on the third. The client creates sessions,
registers steps, runs steps or pauses between them when a task or the client itself is killed or stopped at a random moment.
A round is right if the client's call ends with UNAVAILABLE and names the task, no other task ends, the second client goes
on with right values, and the struck task, started again, is usable; after a client was killed, if the tasks have forgotten its
sessions and steps; after a ps that the client does not use was killed, if the client goes on. A stopped task that goes on
must end by itself, say why, and have changed nothing. The time is from the signal to the end of the client's call, or
until the tasks have forgotten it.

A task that loses its link to another one reports it to the coordinator, which takes the other's place away: all tasks close
their connections to it at once. A stopped task is let go on when they have done so. A client may notice earlier: its own
link to the task tells nobody else, and an answer in a handshake is waited for less long. A task that goes on in between stays
in the cluster, and may carry out the step whose client has been told UNAVAILABLE. Whoever is told so does not know whether
the step was carried out.

| struck | fault | rounds | right | p50 | p99 | most |
|---|---|---|---|---|---|---|
{rows}

- date: {date}
- commit: {commit}
- machine: {machine}
- repeat it with `scripts/soak kills`, or with

```sh
{commands}
```
"""

STRUCK = {"ps": "ps", "worker": "worker that the client is connected to", "client": "client",
          "spare": "ps that the client does not use"}
DURING = {"collective": "collectives", "training": "training"}
AMONG = {"shm": "shared memory", "tcp": "TCP"}


def cluster_rows(done):
    """A row for each fault and victim, over all phases."""
    victims = [dict(entry, case=entry["case"].split(", ")[0]) for entry in done]
    for row in rounds.statistics(victims):
        times = [row[name] if row["case"] != "spare" else "" for name in ("p50", "p99", "most")]
        cells = [STRUCK[row["case"]], row["fault"], row["rounds"], row["right"], *times]
        yield "| " + " | ".join(str(cell) for cell in cells) + " |"


def command_lines(harness, runs):
    return [f"tests/fault/{harness}_faults.py --kills {run['kills']} --stops {run['stops']} --seed {run['seed']}"
            for run in runs]


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
    facts = {"date": datetime.datetime.now(datetime.timezone.utc).date(), "commit": args.commit, "machine": args.machine}
    rows, commands = [], []
    for word in args.statistics:
        harness, _, path = word.partition("=")
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        found = rounds.statistics(kept["rounds"])
        rows += [(harness, row) for row in found]
        if harness == "resume":
            lines = ["| {case} | {rounds} | {right} | {p50} | {most} |".format(**row) for row in found]
            text = RESUME.format(rows="\n".join(lines), strikes=sum(run["strikes"] for run in kept["runs"]),
                                 saving=sum(run["during a save"] for run in kept["runs"]), **facts)
            page_sections.write(args.report, "resume", "tests/fault/write_report.py", text)
            continue
        if harness == "cluster":
            text = CLUSTER.format(rows="\n".join(cluster_rows(kept["rounds"])),
                                  commands="\n".join(command_lines(harness, kept["runs"])), **facts)
            page_sections.write(args.report, "cluster", "tests/fault/write_report.py", text)
            continue
        commands += command_lines(harness, kept["runs"])
    if commands:
        lines = [row_of(*entry) for entry in rows if entry[0] in DURING]
        page_sections.write_around(args.report, PAGE.format(rows="\n".join(lines), commands="\n".join(commands), **facts))
    right = sum(row["right"] for _, row in rows)
    total = sum(row["rounds"] for _, row in rows)
    print(f"{right} of {total} kills and stops as promised; figures in {args.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
