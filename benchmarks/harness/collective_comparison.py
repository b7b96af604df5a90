"""One run of the all-reduce comparison: scout the peers' modes, then rounds where all take turns.

The result is a dictionary that JSON can hold; collective_report.py makes the section of it.
"""

import itertools
import statistics
import time

from harness import collective_jobs as jobs
from harness import collective_network as network
from harness import collective_plan as plan
from harness import machine
from harness.comparison import say
from harness.processes import BenchError

# Of a library's modes, at each size, so many take turns; none that took longer than HOPELESS times
# its best one in scouting.
MODES = 3
HOPELESS = 1.4
# Tutti's contenders: key, transport, memory.
TUTTI = (("tutti", "shm", "registered"), ("tutti-ordinary", "shm", "ordinary"),
         ("tutti-tcp", "tcp", "registered"))


class CollectiveComparison:
    def __init__(self, tutti, options):
        self._tutti = tutti  # None: peers only
        self._options = options
        self._peers = [p for p in plan.PEERS if not options.peers or p.key in options.peers]
        self._chosen = {}    # (ranks, peer key): {mode label: sizes}
        self._figures = {}   # (ranks, contender, mode label, bytes): figure
        self.result = {"commit": machine.commit(tutti.program) if tutti else "none",
                       "machine": machine.describe(tutti, options),
                       "rounds": options.rounds, "seconds": options.seconds,
                       "versions": {}, "failures": [], "figures": [], "bound": {}, "busy": {}}

    def run(self):
        before = time.monotonic()
        if "host" in self._options.parts:
            self._within_host()
        if "network" in self._options.parts and self._tutti:
            self._between_hosts()
        self.result["run_seconds"] = time.monotonic() - before
        return self.result

    def _within_host(self):
        for peer in list(self._peers):
            try:
                jobs.build(peer.key)
                self.result["versions"][peer.key] = jobs.version(peer.key)
            except BenchError as error:
                self._fail(str(error))
                self._peers.remove(peer)
        for ranks in self._options.ranks:
            for peer in self._peers:
                self._chosen[ranks, peer.key] = self._scout(peer, ranks)
        for number in range(self._options.rounds):
            say(f"round {number + 1} of {self._options.rounds}")
            self._round(number)
            self._busy_round()

    def _between_hosts(self):
        why = network.refusal()
        if why:
            self._fail(f"between hosts: this machine does not allow it: {why}")
            return
        self.result["network"] = network.run(self._tutti.program, self._options.rounds,
                                             self._options.seconds, self._fail)

    def _fail(self, text):
        say(f"  {text}")
        if text not in self.result["failures"]:
            self.result["failures"].append(text)

    def _scout(self, peer, ranks):
        """Which modes are worth a turn, and at which sizes. Sizes above SCOUTED are not tried here, where
        they would take most of the time: the modes of the largest size that is tried run at them."""
        scouted = [s for s in self._options.bytes if s <= plan.SCOUTED] or self._options.bytes
        times = {}
        for mode in peer.modes:
            try:
                found = jobs.run_peer(peer, mode, ranks, scouted, self._options.seconds / 4)
            except BenchError as error:
                self._fail(f"{peer.label}, {mode.label}, {ranks} ranks: {error}")
                continue
            times[mode.label] = {size: line["us"] for size, line in found.items()}
        chosen = {}
        for size in self._options.bytes:
            like = min(size, max(scouted))
            order = sorted((label for label in times if like in times[label]),
                           key=lambda label: times[label][like])
            for label in order[:MODES]:
                if times[label][like] <= HOPELESS * times[order[0]][like]:
                    chosen.setdefault(label, []).append(size)
        say(f"  {peer.label}, {ranks} ranks: {', '.join(chosen) or 'nothing runs'}")
        return chosen

    def _turns(self, ranks):
        """One function per job; each measures and records."""
        turns = []
        for key, transport, memory in TUTTI if self._tutti else ():
            sizes = [s for s in self._options.bytes if transport == "shm" or s >= plan.TCP_FROM]
            if sizes:
                def measure(sizes=sizes, t=transport, m=memory):
                    return jobs.run_tutti(self._tutti.program, ranks, sizes,
                                          self._options.seconds, t, m)
                bounded = key == "tutti"
                turns.append((key, "", (lambda m=measure: self._with_bound(m)) if bounded
                              else measure))
        for peer in self._peers:
            for mode in peer.modes:
                sizes = self._chosen[ranks, peer.key].get(mode.label)
                if sizes:
                    turns.append((peer.key, mode.label, lambda p=peer, m=mode, s=sizes:
                                  jobs.run_peer(p, m, ranks, s, self._options.seconds)))
        return turns

    def _busy_round(self):
        """64 KB between two ranks beside a process that computes all the time."""
        size, turns = plan.BUSY_SIZE, {}
        if self._tutti:
            turns["Tutti"] = lambda: jobs.run_tutti(self._tutti.program, 2, [size], self._options.seconds, "shm",
                                                    "registered", busy=1)
        for peer in self._peers:
            for mode in plan.BUSY_MODES.get(peer.key, ()):
                def measure(peer=peer, mode=mode):
                    with jobs.busy_process():
                        return jobs.run_peer(peer, mode, 2, [size], self._options.seconds)
                turns[f"{peer.label}, {mode.label}"] = measure
        for name, measure in turns.items():
            try:
                self.result["busy"].setdefault(name, []).append(measure()[size]["us"])
            except BenchError as error:
                self._fail(f"{name}, beside a busy process: {error}")

    def _with_bound(self, measure):
        """What memory allows is measured right before and right after: on a shared machine it can
        change by half within a minute. The higher of the two is the bound of this turn."""
        large = [s for s in self._options.bytes if s >= plan.BOUND_FROM]
        if not large:
            return measure()
        before = jobs.run_memory_bound(large, self._options.seconds)
        lines = measure()
        after = jobs.run_memory_bound(large, self._options.seconds)
        for size in large:
            bound = max(before[size], after[size])
            self.result["bound"].setdefault(str(size), []).append(bound)
            if size in lines:
                lines[size]["bound"] = bound
        return lines

    def _round(self, number):
        for ranks in self._options.ranks:
            turns = self._turns(ranks)
            first = number * 3 % max(1, len(turns))  # another one goes first in each round
            for key, mode, measure in itertools.chain(turns[first:], turns[:first]):
                try:
                    for size, line in measure().items():
                        self._record(ranks, key, mode, size, line)
                except BenchError as error:
                    self._fail(f"{key} {mode}, {ranks} ranks: {error}")

    def _record(self, ranks, key, mode, size, line):
        place = (ranks, key, mode, size)
        if place not in self._figures:
            self._figures[place] = {"ranks": ranks, "contender": key, "mode": mode, "bytes": size,
                                    "us": [], "back_to_back_us": [], "bound": []}
            self.result["figures"].append(self._figures[place])
        self._figures[place]["us"].append(line["us"])
        if line.get("back_to_back_us"):
            self._figures[place]["back_to_back_us"].append(line["back_to_back_us"])
        if line.get("bound"):
            self._figures[place]["bound"].append(line["bound"])


def median(figure, what="us"):
    return statistics.median(figure[what]) if figure and figure[what] else None
