"""Makes the section on training with several workers of docs/benchmarks.md of one run's figures."""

import statistics

from harness import training_network as network
from harness import training_plan as plan
from harness.report import disturbance, head, spread, table, verdict, versions

TUTTI = "tutti"
PEERS = {peer.key: peer for peer in plan.PEERS}


def rate_text(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def name_of(figure):
    if figure["contender"] == TUTTI:
        return "Tutti"
    return f"{PEERS[figure['contender']].label} {figure['mode']}"


def median(figure):
    return statistics.median(figure["rates"])


class Ratio:
    """Of two figures' medians; None of a figure gives a ratio that is not known."""

    def __init__(self, figure, other):
        self.known = figure is not None and other is not None
        if self.known:
            self.value = median(figure) / median(other)
            self.rounds = [a / b for a, b in zip(figure["rates"], other["rates"])]

    def text(self, form):
        if not self.known:
            return ""
        behind = f" ({spread(self.rounds, form.format)})" if len(self.rounds) > 1 else ""
        return f"**{form.format(self.value)}**{behind}"

    def verdict(self, target):
        return verdict(self.value >= target) if self.known and target else ""


class Contest:
    """The figures of one model."""

    def __init__(self, result, model):
        self.model = model
        self.figures = [f for f in result["figures"] if f["model"] == model.name and f["rates"]]
        self.tutti = self.find(TUTTI, "", plan.TOGETHER)
        self.independent = self.find(TUTTI, "", plan.INDEPENDENT)
        self.best = self._best(tuned=False)
        tuned = self._best(tuned=True)
        # A mode that is no framework's default, where it beats all defaults.
        better = tuned and (self.best is None or median(tuned) > median(self.best))
        self.best_tuned = tuned if better else None

    def find(self, contender, mode, way):
        return next((f for f in self.figures if (f["contender"], f["mode"], f["way"]) ==
                     (contender, mode, way)), None)

    def _best(self, tuned):
        found = [f for f in self.figures if f["contender"] != TUTTI and f["way"] == plan.TOGETHER
                 and PEERS[f["contender"]].tuned == tuned]
        return max(found, key=median, default=None)

    @property
    def speed(self):
        return Ratio(self.tutti, self.best)

    @property
    def efficiency(self):
        return Ratio(self.tutti, self.independent)


def contests(result):
    found = (Contest(result, model) for model in plan.MODELS)
    return [contest for contest in found if contest.figures]


def _rate_cell(figure, named=False):
    if figure is None:
        return ""
    return rate_text(median(figure)) + (f" ({name_of(figure)})" if named else "")


def speed_section(result):
    rows = []
    for contest in contests(result):
        tuned = contest.best_tuned
        beside = Ratio(contest.tutti, tuned)
        rows.append((contest.model.title, _rate_cell(contest.tutti),
                     _rate_cell(contest.best, named=True), contest.speed.text("{:.2f}"),
                     f"{contest.model.target:g}", contest.speed.verdict(contest.model.target),
                     f"{beside.value:.2f} ({name_of(tuned)})" if beside.known else ""))
    return table(("model", "Tutti", "best peer", "times as fast", "target", "",
                  "against a tuned peer"), rows)


def efficiency_section(result):
    rows = []
    for contest in contests(result):
        promised = contest.model.efficiency
        rows.append((contest.model.name, _rate_cell(contest.tutti),
                     _rate_cell(contest.independent), contest.efficiency.text("{:.0%}"),
                     f"{promised:.0%}" if promised else "", contest.efficiency.verdict(promised)))
    return table(("model", "together", "independent", "efficiency", "target", ""), rows)


def gain_section(result):
    """Everybody together and alone, and how much the second worker brought."""
    rows = []
    for contest in contests(result):
        together = [f for f in contest.figures if f["way"] == plan.TOGETHER]
        for figure in sorted(together, key=median, reverse=True):
            alone = contest.find(figure["contender"], figure["mode"], plan.ALONE)
            gain = Ratio(figure, alone)
            rows.append((contest.model.name, name_of(figure), _rate_cell(figure),
                         spread(figure["rates"], rate_text), _rate_cell(alone),
                         f"{gain.value:.2f}" if gain.known else ""))
    return table(("model", "", f"{plan.WORKERS} workers", "rounds", "one alone",
                  "times as fast as alone"), rows)


def misses_section(result):
    """Where Tutti loses or misses, said in words."""
    found = []
    for contest in contests(result):
        name, speed, efficiency = contest.model.name, contest.speed, contest.efficiency
        if contest.tutti is None:
            found.append(f"{name}: Tutti has no figure.")
        if speed.known and speed.value < contest.model.target:
            found.append(f"{name}: {speed.value:.2f} times {name_of(contest.best)}, short of "
                         f"{contest.model.target:g}.")
        if efficiency.known and efficiency.value < contest.model.efficiency:
            found.append(f"{name}: {efficiency.value:.0%} of independent workers, short of "
                         f"{contest.model.efficiency:.0%}.")
        tuned = Ratio(contest.tutti, contest.best_tuned)
        if tuned.known and tuned.value < 1:
            found.append(f"{name}: {name_of(contest.best_tuned)} is {1 / tuned.value:.2f} times as "
                         "fast.")
    return "".join(f"- {line}\n" for line in found) or "Nowhere in this run.\n"


SECTION = """## Training with {workers} workers
Workers of one core each on one host; float32, SGD, numbers made up in memory. Figures are samples a second over all workers, the median over the rounds; ratios are those of medians, with the lowest and the highest round behind them.
The best peer is the quickest of all peers' modes: {strategies}. {disturbance}

{head}
{speed}
A tuned peer is TensorFlow with `TF_ENABLE_ONEDNN_OPTS=1`, which is off by default on processors like this one. It is named where it beats every peer as it comes.

### What working together costs
Against {workers} workers that train at the same time and know nothing of each other (`--strategy local`), so that cores, caches and memory are as busy:

{efficiency}
### Where Tutti misses
{misses}
### What another worker brings
One alone leaves the other cores idle, and is without any strategy in every framework.

{gain}
{network}{failures}### How to repeat it
```sh
make build
benchmarks/install-peers torch tensorflow
benchmarks/compare-training --out docs/benchmarks.md --json build/training.json
```
Command of each Tutti figure: `tutti run --workers {workers} --cores-per-worker 1 -- build/bin/train_bench --model MODEL --batch-size BATCH --strategy allreduce --max-steps STEPS --report FILE`; alone: `taskset -c CORE build/bin/train_bench --strategy local` with the same flags.

How it is kept fair:
- Every worker is bound to a core of its own, the same cores for all; only one contender works at a time.
- Contenders take turns within each round, and another one goes first in each. Compilation and warm-up are outside the timing, and everyone takes as many steps as fill the time.
- All peers start from the same numbers, each worker with its own share of the data, and their mean losses in the first steps must agree: so gradients are exchanged, and by everyone. The loss is read in every step.
- Tutti's program is a user's: `Main`, an `Estimator`, and a `Dataset` in memory that is cut into batches while it trains. Peers train on one batch again and again.
- Peers are set up as their documentation advises for speed: gradients in the buckets, a static graph, a fused update (PyTorch), a concrete function with all gradients reduced in one call (TensorFlow).
"""


def section(result):
    failures = "".join(f"- {text}\n" for text in result["failures"])
    strategies = dict.fromkeys(f"{p.label} {p.strategy}" for p in plan.PEERS
                               if p.key in result["peers"])
    return SECTION.format(
        workers=plan.WORKERS, head=head(result, versions(result)),
        strategies="; ".join(strategies),
        disturbance=disturbance(result), speed=speed_section(result),
        efficiency=efficiency_section(result), misses=misses_section(result),
        gain=gain_section(result),
        network=network.section(result.get("network"), result["machine"]["cores"]),
        failures=f"### What did not run\n{failures}\n" if failures else "")
