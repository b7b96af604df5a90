"""Makes docs/benchmarks.md of the figures of one run."""

import statistics

from harness import plan
from harness.machine import cautions

TUTTI = "tutti"
QUIET_SHARE = 0.85  # a round whose MatMul rate is below this share of the best was disturbed


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def milliseconds(value):
    digits = 3 if value < 1 else 2 if value < 10 else 1
    return f"{value:.{digits}f} ms"


def verdict(met):
    return "met" if met else "**missed**"


def spread(values, text):
    return f"{text(min(values))} to {text(max(values))}"


class Contest:
    """The figures of one model on one number of threads."""

    def __init__(self, result, model, threads):
        self.model = model
        self.threads = threads
        figures = [f for f in result["steps"]
                   if f["model"] == model.name and f["threads"] == threads and f["ms"]]
        self.tutti = next((f for f in figures if f["peer"] == TUTTI), None)
        self.peers = [f for f in figures if f["peer"] != TUTTI]
        for figure in figures:
            figure["median"] = statistics.median(figure["ms"])

    @property
    def complete(self):
        return self.tutti is not None and bool(self.peers)

    @property
    def best(self):
        return min(self.peers, key=lambda f: f["median"])

    def ratio(self, figure):
        return figure["median"] / self.tutti["median"]

    def ratios(self, figure):
        """Round by round."""
        return [theirs / ours for theirs, ours in zip(figure["ms"], self.tutti["ms"])]


def _peer(key):
    return next(peer for peer in plan.PEERS if peer.key == key)


def _label(figure):
    return f"{_peer(figure['peer']).label} {figure['mode']}"


def contests(result):
    threads = sorted({f["threads"] for f in result["steps"]})
    found = [Contest(result, model, count) for model in plan.MODELS for count in threads]
    return [contest for contest in found if contest.complete]


def step_section(result):
    rows = []
    for contest in contests(result):
        best = contest.best
        rows.append((
            contest.model.title, str(contest.threads), milliseconds(contest.tutti["median"]),
            f"{milliseconds(best['median'])} ({_label(best)})",
            f"**{contest.ratio(best):.2f}** ({spread(contest.ratios(best), '{:.2f}'.format)})",
            f"{contest.model.target}", verdict(contest.ratio(best) >= contest.model.target)))
    return table(("model", "threads", "Tutti", "best peer", "times as fast", "target", ""), rows)


def modes_section(result):
    """Every contender: a column for each contest."""
    found = contests(result)
    names = ["Tutti"]
    for contest in found:
        names += [_label(f) for f in contest.peers if _label(f) not in names]
    rows = []
    for name in names:
        row = [name]
        for contest in found:
            figures = [contest.tutti] if name == "Tutti" else contest.peers
            figure = next((f for f in figures if name == "Tutti" or _label(f) == name), None)
            row.append(f"{figure['median']:.3g} ({spread(figure['ms'], '{:.3g}'.format)})"
                       if figure else "")
        rows.append(row)
    head = [""] + [f"{c.model.name}, {c.threads}" for c in found]
    return table(head, rows)


def gemm_rates(result):
    return {int(name.split()[1]): statistics.median(values) * 1e9
            for name, values in result["machine_limits"].items() if name.startswith("gemm")}


def gemm_shares(result):
    """(contest, its rate, that as a share of the MatMul rate, whether the share has a target)"""
    rates = gemm_rates(result)
    for contest in contests(result):
        if contest.threads in rates:
            rate = contest.model.flops / (contest.tutti["median"] * 1e-3)
            yield contest, rate, rate / rates[contest.threads], contest.model.name == "mlp-large"


def rate_section(result):
    rows = []
    for contest, rate, share, targeted in gemm_shares(result):
        rows.append((contest.model.name, str(contest.threads), f"{contest.model.flops * 1e-9:.3g}",
                     f"{rate * 1e-9:.1f} GFLOP/s", f"{share:.0%}",
                     f"{plan.GEMM_SHARE_TARGET:.0%}" if targeted else "",
                     verdict(share >= plan.GEMM_SHARE_TARGET) if targeted else ""))
    return table(("model", "threads", "GFLOP a step", "Tutti", "of the GEMM rate", "target", ""),
                 rows)


def limits_section(result):
    rows = []
    for name, values in result["machine_limits"].items():
        what, threads = name.split()
        unit = "GFLOP/s" if what == "gemm" else "GB/s"
        title = "product of 2048 x 2048 x 2048, the best below" if what == "gemm" else "memory, a = b + s * c"
        rows.append((title, threads, f"{statistics.median(values):.1f} {unit}",
                     spread(values, "{:.1f}".format),
                     f"`tutti bench {what} --threads {threads}`"))
        for name, rates in result.get("gemm_kernels", {}).get(threads, {}).items() if what == "gemm" else ():
            rows.append((f"by {name}", threads, f"{statistics.median(rates):.1f} {unit}", spread(rates, "{:.1f}".format),
                         ""))
    return table(("limit", "threads", "median", "rounds", "command"), rows)


def our_peak(result):
    return next(value for case, value in result["peak"]["tutti"].items()
                if case.endswith("tensors"))


def peak_shares(result):
    """(mode of PyTorch, Tutti's share of its peak), the largest share first"""
    peak = result["peak"]
    modes = sorted((m for m in peak if m != "tutti"), key=lambda m: peak[m])
    return [(mode, our_peak(result) / peak[mode]) for mode in modes]


def peak_section(result):
    peak = result["peak"]
    if not peak:
        return "Not measured in this run.\n"
    rows = [("Tutti", f"{our_peak(result):.1f} MB", "", "", "")]
    for mode, share in peak_shares(result):
        rows.append((f"PyTorch {mode}", f"{peak[mode]:.1f} MB", f"{share:.2f}",
                     f"at most {plan.PEAK_TARGET}", verdict(share <= plan.PEAK_TARGET)))
    return table(("", "peak of tensors", "Tutti's share of it", "target", ""), rows)


def time_limit(case):
    """At most so many us, of a case of `tutti bench null` that is a time; None: it is a rate."""
    return plan.RUN_TARGET_US if "run" in case else plan.CUT_TARGET_US if case.startswith("more") else None


def engine_section(result):
    rows = []
    theirs = result.get("tensorflow_null", {})
    for case, values in result["null"].items():
        value, limit = statistics.median(values), time_limit(case)
        if limit is not None:
            rows.append((case, f"{value:.2f} us", f"at most {limit:g} us", verdict(value <= limit),
                         f"{theirs['run_us']:.0f} us, through Python" if theirs and "run" in case else "",
                         "`tutti bench null`"))
        else:
            other = theirs.get("chain" if "chain" in case else "side_by_side")
            rows.append((f"null nodes, {case}", f"{value * 1e-6:.0f} million/s",
                         f"{plan.NULL_TARGET * 1e-6:.0f} million/s",
                         verdict(value >= plan.NULL_TARGET),
                         f"{other * 1e-6:.0f} million/s" if other else "", "`tutti bench null`"))
    if result["startup"]:
        value = statistics.median(result["startup"])
        rows.append(("process start to the end of the first step of mlp-small", f"{value:.1f} ms",
                     f"under {plan.STARTUP_TARGET_MS:g} ms",
                     verdict(value < plan.STARTUP_TARGET_MS), "", "`tutti bench startup`"))
    return table(("", "Tutti", "target", "", "TensorFlow", "command"), rows)


def losses_section(result):
    """Where Tutti loses or misses, said first and in words."""
    found = []
    for contest in contests(result):
        where = f"{contest.model.name}, {contest.threads} thread" + "s" * (contest.threads > 1)
        ratio = contest.ratio(contest.best)
        if ratio < 1:
            found.append(f"{where}: {_label(contest.best)} is {1 / ratio:.2f} times as fast.")
        elif ratio < contest.model.target:
            found.append(f"{where}: {ratio:.2f} times {_label(contest.best)}, short of "
                         f"{contest.model.target}.")
    found += missed_shares(result) + missed_in_engine(result)
    if not found:
        return "Nowhere in this run.\n"
    return "".join(f"- {line}\n" for line in found)


def missed_shares(result):
    """Of the MatMul rate and of PyTorch's memory."""
    found = [f"{contest.model.name}, {contest.threads} thread" + "s" * (contest.threads > 1)
             + f": {share:.0%} of the MatMul rate, short of {plan.GEMM_SHARE_TARGET:.0%}."
             for contest, _, share, targeted in gemm_shares(result)
             if targeted and share < plan.GEMM_SHARE_TARGET]
    for mode, share in peak_shares(result) if result["peak"] else ():
        if share > plan.PEAK_TARGET:
            found.append(f"peak memory: {share:.2f} of PyTorch {mode}'s, above {plan.PEAK_TARGET}.")
    return found


def missed_in_engine(result):
    found = []
    for case, values in result["null"].items():
        value, limit = statistics.median(values), time_limit(case)
        if limit is not None and value > limit:
            found.append(f"{case}: {value:.2f} us, above {limit:g} us.")
        elif limit is None and value < plan.NULL_TARGET:
            found.append(f"null nodes, {case}: {value * 1e-6:.0f} million/s, short of "
                         f"{plan.NULL_TARGET * 1e-6:.0f} million/s.")
    if result["startup"] and statistics.median(result["startup"]) >= plan.STARTUP_TARGET_MS:
        found.append(f"process start: {statistics.median(result['startup']):.1f} ms, not under "
                     f"{plan.STARTUP_TARGET_MS:g} ms.")
    return found


def disturbance(result):
    """How many rounds had to share the machine, as its own rate tells."""
    rates = [values for name, values in result["machine_limits"].items() if name.startswith("gemm")]
    shares = [[value / max(values) for value in values] for values in rates]
    disturbed = [number for number, worst in enumerate(map(min, zip(*shares)), start=1)
                 if worst < QUIET_SHARE]
    if not disturbed:
        return f"In every round the MatMul rate was at least {QUIET_SHARE:.0%} of its best."
    which = ", ".join(map(str, disturbed))
    return (f"In {len(disturbed)} of {len(rates[0])} rounds (number {which}) the MatMul rate at "
            f"the round's start was below {QUIET_SHARE:.0%} of its best: other work ran on the "
            "machine. No round was left out.")


def head(result, peers, each="measurement", libraries=True):
    """The table over a page's figures: what ran, on what, and for how long."""
    machine, minutes = result["machine"], result.get("run_seconds", 0) / 60
    rows = [("commit", result["commit"]),
            ("machine", f"cores: {machine['cores']}, {machine['SIMD']}, {machine['memory']}, "
                        f"{machine['system']}"),
            ("libraries", machine["libraries"]),
            ("peers", peers),
            ("run", f"{machine['date']}; {result['rounds']} rounds of {result['seconds']:g} s a "
                    f"{each}, {minutes:.0f} minutes in all; load before it: {machine['load']}")]
    rows += [("**not for publication**", text) for text in cautions(machine, result["commit"])]
    body = "".join(f"| {name} | {text} |\n" for name, text in rows
                   if libraries or name != "libraries")
    return "| | |\n|---|---|\n" + body


def versions(result):
    parts = []
    for info in result["peers"].values():
        origin = " (Debian's python3-torch, standing in for 2.15)" if info.get("from_debian") else ""
        parts.append(f"{info['name']} {info['version']}{origin}")
    return ", ".join(dict.fromkeys(parts))


PAGE = """# Benchmarks

Written by `benchmarks/compare`; do not edit. Tutti and its peers ran in one run, in turns.

{head}
## Training steps
Forward, backward and update: SGD's where no other optimizer is named. Times are the median over the rounds of the median step; the ratio is that of these medians, with its lowest and highest round behind it.
The best peer is the quickest of all peers' modes. {disturbance}

{steps}
TensorFlow runs as it comes and with `TF_ENABLE_ONEDNN_OPTS=1` ("oneDNN"), which is off by default on some processors.

Command of each Tutti figure: `tutti bench step --model MODEL --batch BATCH --threads THREADS`.

### Where Tutti loses
{losses}
### All modes
Milliseconds a step, median and range over the rounds; columns are model and threads.

{modes}
## Against the machine
The limits were measured in every round of the same run.

{limits}
What the matrix products of a step amount to, as a share of the best rate above, round by round the best of Tutti's MatMul, oneDNN, our packed kernel and OpenBLAS (numpy's):

{rates}
## Peak memory
Tensors of one CNN step at batch {peak_batch}, variables and data included. Tutti: `tutti bench peak --model cnn --batch {peak_batch}`, planned memory plus variables plus feeds. PyTorch: the most that its profiler saw live in one
step (allocations minus releases), plus parameters and data; what oneDNN takes inside an operator is not seen there, so PyTorch's figure is a lower bound. PyTorch frees tensors as early as references allow, with no caching on the CPU.

{peak}
## Engine
One core. TensorFlow: `tf.no_op` through a v1 session without graph optimisation, the time of a run of one node taken off.

{engine}
{failures}## How to repeat it
```sh
make build
benchmarks/install-peers
benchmarks/compare --out docs/benchmarks.md --json build/benchmarks.json
```
`--quick` takes two short rounds, `--models`, `--peers` and `--threads` choose, `--from-json` makes this page of raw figures again. Peers live in `~/.cache/tutti/peers` (or `TUTTI_PEERS`) and are never linked into Tutti.

How it is kept fair:
- Every process is bound to as many cores as it may use threads, the same cores for all; only one works at a time.
- Contenders take turns within each round, and another one goes first in each. Compilation (`torch.compile`, XLA, Tutti's plan) and warm-up are outside the timing.
- Tutti and all peers start from the same numbers and must show the same losses in their first steps (`tutti bench step --losses`). Data lie in each framework's own tensors beforehand; the loss is read in every step.
- Peers are written as their users would for speed: update of all parameters in one call and fused attention (PyTorch), concrete functions (TensorFlow), donated parameters (JAX), query, key and value in one product (all three).

Noise: on a shared machine the same program differs from one minute to the next, by more when two cores are used; the ranges over the rounds tell how quiet this run was. Compare ratios of one run, never milliseconds of two. A ratio whose range spans its target is not settled by this run.
"""


def page(result):
    failures = "".join(f"- {text}\n" for text in result["failures"])
    return PAGE.format(
        head=head(result, versions(result)), steps=step_section(result),
        disturbance=disturbance(result), losses=losses_section(result),
        modes=modes_section(result), limits=limits_section(result), rates=rate_section(result), peak=peak_section(result), peak_batch=plan.PEAK_BATCH,
        engine=engine_section(result),
        failures=f"## What did not run\n{failures}\n" if failures else "")
