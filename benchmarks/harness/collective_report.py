"""Makes the section on collectives of docs/benchmarks.md of the figures of one run."""

import statistics

from harness import collective_network
from harness import collective_plan as plan
from harness.collective_comparison import HOPELESS, MODES, median
from harness.report import QUIET_SHARE, head, table, verdict

LABELS = {peer.key: peer.label for peer in plan.PEERS}


def size_name(size):
    for unit, name in ((plan.M, "MB"), (plan.K, "KB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def rate(size, us):
    """GB/s of data reduced, whatever the library moves for it."""
    return size / us * 1e-3


def rate_text(size, us):
    if us is None:
        return ""
    value = rate(size, us)
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def time_text(us):
    if us is None:
        return ""
    return f"{us:.2f} us" if us < 10 else f"{us:.0f} us"


class Row:
    """All figures of one number of ranks and one size."""

    def __init__(self, result, ranks, size, what="us"):
        self.ranks, self.size, self.what = ranks, size, what
        self._figures = [f for f in result["figures"]
                         if f["ranks"] == ranks and f["bytes"] == size and f[what]]

    def of(self, contender):
        """(us, figure) of its best mode, or (None, None)."""
        mine = [(median(f, self.what), f) for f in self._figures if f["contender"] == contender]
        return min(mine, key=lambda pair: pair[0], default=(None, None))

    def best(self):
        """(us, figure) of the best peer."""
        found = [self.of(peer.key) for peer in plan.PEERS]
        return min((pair for pair in found if pair[0]), key=lambda pair: pair[0],
                   default=(None, None))

    def ratio_range(self, mine, other):
        """The lowest and the highest ratio of times over the rounds."""
        ratios = [b / a for a, b in zip(mine[self.what], other[self.what])]
        return f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""


def name_of(figure):
    return f"{LABELS[figure['contender']]}, {figure['mode']}"


def pairs(result):
    return sorted({(f["ranks"], f["bytes"]) for f in result["figures"]})


def bound_of(figure):
    """GB/s that memory allowed a direct all-reduce when this was measured: B / 2N."""
    if not figure or not figure.get("bound"):
        return None
    return statistics.median(figure["bound"]) / (2 * figure["ranks"])


def share_of(figure):
    """The share of the bound that was reached: round by round, then the median."""
    return statistics.median(
        rate(figure["bytes"], us) / (bound / (2 * figure["ranks"]))
        for us, bound in zip(figure["us"], figure["bound"]))


def disturbance(result):
    """How quiet the run was: memory's own rate at the largest size tells."""
    if not result["bound"]:
        return ""
    size = max(result["bound"], key=int)
    rates = result["bound"][size]
    text = (f"At {size_name(int(size))} B was {min(rates):.1f} to {max(rates):.1f} GB/s over the "
            "rounds")
    disturbed = sum(rate < QUIET_SHARE * max(rates) for rate in rates)
    if disturbed:
        text += (f"; in {disturbed} of {len(rates)} rounds it was below {QUIET_SHARE:.0%} of its "
                 "best: other work ran on the machine. No round was left out")
    return text + ".\n"


def rates_section(result):
    rows = []
    for ranks, size in pairs(result):
        if size <= plan.SMALL:
            continue
        row = Row(result, ranks, size)
        mine, figure = row.of("tutti")
        ordinary, _ = row.of("tutti-ordinary")
        best, best_figure = row.best()
        target = plan.rate_target(ranks, size)
        bound = bound_of(figure)
        compared = mine is not None and best is not None
        cells = [str(ranks), size_name(size), rate_text(size, mine), rate_text(size, ordinary),
                 f"{rate_text(size, best)} ({name_of(best_figure)})" if best else "",
                 f"**{best / mine:.2f}**{row.ratio_range(figure, best_figure)}" if compared else "",
                 f"{target}" if target else "",
                 verdict(best / mine >= target) if compared and target else "",
                 f"{best / ordinary:.2f}, {verdict(best / ordinary >= plan.ORDINARY_TARGET)}"
                 if ordinary and best else "",
                 f"{bound:.1f}" if bound else "",
                 share_text(figure) if bound else ""]
        rows.append(cells)
    return table(["ranks", "size", "Tutti, registered", "Tutti, ordinary", "best peer",
                  "times as fast", "target", "", "ordinary against the best", "B/2N",
                  "Tutti's share of it"], rows)


def share_text(figure):
    share = share_of(figure)
    if share > 1:  # memory cannot be beaten: other work slowed the measurement of B
        return f"{share:.0%}, disturbed"
    promised = figure["ranks"] == 2 and figure["bytes"] >= plan.BOUND_FROM
    return f"{share:.0%}" + (f", {verdict(share >= plan.BOUND_SHARE)}" if promised else "")


def small_section(result):
    rows = []
    for ranks, size in pairs(result):
        if size > plan.SMALL:
            continue
        for what, title in (("back_to_back_us", "back to back"), ("us", "after a barrier")):
            row = Row(result, ranks, size, what)
            mine, _ = row.of("tutti")
            best, best_figure = row.best()
            promised = (what == "us") == (ranks > 2)  # which of the two the target is for
            limit = plan.time_limit(ranks, best) if best and promised else None
            rows.append([str(ranks), size_name(size), title, time_text(mine),
                         f"{time_text(best)} ({name_of(best_figure)})" if best else "",
                         f"at most {time_text(limit)}" if limit else "",
                         verdict(mine <= limit) if mine and limit else ""])
    return table(["ranks", "size", "calls", "Tutti", "best peer", "target", ""], rows)


def busy_section(result):
    """Beside a process that computes all the time."""
    found = {name: statistics.median(times) for name, times in result.get("busy", {}).items() if times}
    mine, peers = found.pop("Tutti", None), found
    best = min(peers, key=peers.get, default=None)
    if mine is None:
        return "Not measured in this run.\n"
    times = result["busy"]["Tutti"]
    return table(["ranks", "size", "Tutti", "best peer", "target", ""], [[
        "2", size_name(plan.BUSY_SIZE), f"{time_text(mine)} ({time_text(min(times))} to {time_text(max(times))})",
        f"{time_text(peers[best])} ({best})" if best else "", f"at most {plan.BUSY_LIMIT_US} us",
        verdict(mine <= plan.BUSY_LIMIT_US)]])


def tcp_section(result):
    rows = []
    for ranks, size in pairs(result):
        row = Row(result, ranks, size)
        mine, _ = row.of("tutti-tcp")
        gloo, figure = row.of("gloo")
        if size < plan.TCP_FROM or gloo is None:
            continue
        rows.append([str(ranks), size_name(size), rate_text(size, mine),
                     f"{rate_text(size, gloo)} ({figure['mode']})",
                     f"**{gloo / mine:.2f}**" if mine else "", str(plan.TCP_TARGET),
                     verdict(gloo / mine >= plan.TCP_TARGET) if mine else ""])
    return table(["ranks", "size", "Tutti, tcp", "Gloo", "times as fast", "target", ""], rows)


def libraries_section(result):
    """Every library's best mode at every size, as GB/s, or us for small sizes."""
    present = [p for p in plan.PEERS if any(f["contender"] == p.key for f in result["figures"])]
    rows = []
    for ranks, size in pairs(result):
        row = Row(result, ranks, size)
        cells = [str(ranks), size_name(size)]
        for peer in present:
            us, figure = row.of(peer.key)
            text = time_text(us) if size <= plan.SMALL else rate_text(size, us)
            cells.append(f"{text} ({figure['mode']})" if figure else "")
        rows.append(cells)
    return table(["ranks", "size", *(p.label for p in present)], rows)


SECTION = """## All-reduce
Processes on one host, float32, sum. Before every call each rank writes its data anew, as a training step writes its gradients, and waits in a barrier; after it each rank checks its whole result. Neither is timed. The slowest rank's time of a call counts, then the median over the calls of a job, then the median over the rounds.
Rates are GB/s of data reduced: bytes of one rank divided by the time; sizes are powers of 1024. Registered memory is what training uses; ordinary memory costs one more copy.

{head}
B is what two threads reach with `a = b = a + b` on two arrays of that size in huge pages, each freshly written by one of them, 16 bytes an element, the best of several turns, measured right before and right after Tutti in each round (the higher of the two counts, since a shared machine's memory is not equally fast at all times); B/2N is the most that N ranks can reach, since each element is read from N buffers and stored into N. The share is taken round by round, then the median.
{disturbance}
{rates}
Small sizes. Back to back: call after call, the time divided by their number; writing and checking the few bytes is in it.

{small}
Beside one process that computes all the time, on the same two cores (`--busy 1`); Open MPI, MPICH and Intel MPI as they come, and with waiting ranks that give way:

{busy}
Over TCP only, as between hosts; Gloo has nothing else.

{tcp}
### Each library at its best
Behind each figure the mode that reached it. GB/s, and times after a barrier up to 1 KB.

{libraries}
{network}{failures}### How to repeat it
```sh
make build
benchmarks/install-peers collectives
benchmarks/compare-collectives --out docs/benchmarks.md --json build/collectives.json
```
Command of each Tutti figure: `tutti bench allreduce --ranks RANKS --bytes BYTES --transport shm|tcp --memory registered|ordinary --algorithm auto --json`.

How it is kept fair:
- Every library runs in several modes: its own choice, its algorithms by name, in place and between two arrays, and with the settings for more ranks than cores where there are (yielding, no pinning). A short scouting run keeps, size by size, the {modes} quickest, but none that takes over {hopeless} times the library's best; they take their turn in every round, and the best at each size counts.
- Ranks are bound to cores where the library can do that and there are enough. Data lie in huge pages.
- Every timed call, of Tutti and of every peer, reduces numbers that were written right before it by the rank that brings them, and every result is checked.
- Jobs take turns within each round, and another one goes first in each; only one runs at a time.
"""


def section(result):
    failures = "".join(f"- {text}\n" for text in result["failures"])
    versions = ", ".join(f"{LABELS[key]} {text}" for key, text in result["versions"].items())
    return SECTION.format(
        head=head(result, versions, each="size", libraries=False),
        rates=rates_section(result), disturbance=disturbance(result),
        small=small_section(result), busy=busy_section(result), tcp=tcp_section(result), libraries=libraries_section(result),
        modes=MODES, hopeless=HOPELESS,
        network=collective_network.section(result.get("network")),
        failures=f"### What did not run\n{failures}\n" if failures else "")
