#!/usr/bin/env python3
"""Kills and stops ranks in the middle of collectives, and checks what the others say.

    tests/fault/collective_faults.py --bin build/bin --kills 200 --stops 50 [--seed 1]

Every round starts 2 to 4 processes that run collectives back to back (tests/fault/collective_rank.cc), over each of
--transports in turn, and kills (SIGKILL) or stops (SIGSTOP) a random one at a random moment. Every other
rank's operations must end with UNAVAILABLE (a kill) or DEADLINE_EXCEEDED (a stop) that names the struck rank, or with
the right data; nobody may hang, and nothing may stay behind. Prints one line a round, and at the end how long the others
took to notice.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time

import rounds

START_SECONDS = 60
EXIT_SECONDS = 20


class Rank:
    """A process under test, its lines read by a thread as they come."""

    def __init__(self, program, words, environment, log):
        self.process = subprocess.Popen([program, *words], env=environment, stdout=subprocess.PIPE,
                                        stderr=log, text=True)
        self.running = threading.Event()  # it has begun, or ended
        self.end = None
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.end = json.loads(line)
            self.running.set()
        self.running.set()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()


def check_end(rank, number, victim, what):
    """What a survivor said."""
    if rank.process.returncode != 0 or rank.end is None:
        raise rounds.Wrong(f"rank {number} ended with code {rank.process.returncode} and said {rank.end}")
    end = rank.end
    expected = "UNAVAILABLE" if what == rounds.KILL else "DEADLINE_EXCEEDED"
    if end["code"] != expected or end["odd"]:
        raise rounds.Wrong(f"rank {number} ended with {end}, expected {expected} for all that was under way")
    if not re.search(rf"\brank {victim} \(.*\) (died|has given no sign of life)", end["message"]):
        raise rounds.Wrong(f"rank {number} does not name rank {victim}: {end['message']}")


def strike(args, what, ranks, generator):
    victim = generator.randrange(len(ranks))
    deadline = time.monotonic() + START_SECONDS
    for number, rank in enumerate(ranks):
        if not rank.running.wait(max(0, deadline - time.monotonic())) or rank.process.poll() is not None:
            raise rounds.Wrong(f"rank {number} did not start")
    time.sleep(generator.random() * 0.3)
    struck = time.monotonic()
    ranks[victim].process.send_signal(rounds.SIGNALS[what])
    ceiling = rounds.KILL_CEILING_SECONDS if what == rounds.KILL else args.silence * rounds.STOP_CEILING_FACTOR
    deadline = struck + ceiling + EXIT_SECONDS
    survivors = [(n, rank) for n, rank in enumerate(ranks) if n != victim]
    for number, rank in survivors:
        try:
            rank.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise rounds.Wrong(f"rank {number} hangs after rank {victim} was struck") from None
        rank.reader.join()
    for number, rank in survivors:
        check_end(rank, number, victim, what)
    seconds = max(rank.end["seconds"] for _, rank in survivors) - struck
    if seconds > ceiling:
        raise rounds.Wrong(f"noticed after {seconds:.1f} s, expected at most {ceiling} s")
    return seconds


def run_round(args, what, transport, generator):
    size = generator.randint(2, 4)
    seed = generator.randrange(1 << 30)
    leftovers = rounds.Leftovers()
    folder = leftovers.folder.name
    leftovers.environment["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
    ranks = []
    try:
        with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            for number in range(size):
                words = [number, size, os.path.join(folder, "meeting"), transport, seed, args.silence]
                ranks.append(Rank(f"{args.bin}/collective_rank", [str(word) for word in words],
                                  leftovers.environment, log))
            try:
                seconds = strike(args, what, ranks, generator)
            except rounds.Wrong as wrong:
                log.seek(0)
                raise rounds.Wrong(f"{wrong} ({size} ranks, seed {seed})\n{log.read()[-3000:]}") from None
        for rank in ranks:
            rank.close()
        # The file in which ranks meet is the caller's; a rank 0 that was killed cannot remove it.
        leftovers.check([rank.process.pid for rank in ranks], allowed=("log", "cache", "meeting"))
        return seconds
    finally:
        for rank in ranks:
            rank.close()
        leftovers.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    rounds.add_arguments(parser)
    parser.add_argument("--silence", type=float, default=5,
                        help="seconds without a sign of life until a rank is given up")
    parser.add_argument("--transports", default="shm,tcp")
    args = parser.parse_args()
    return rounds.run(args, args.transports.split(","), lambda *round_: run_round(args, *round_))


if __name__ == "__main__":
    sys.exit(main())
