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
        self.best = max((f for f in self.figures if f["contender"] != TUTTI and f["way"] == plan.TOGETHER),
                        key=median, default=None)

    def find(self, contender, mode, way):
        return next((f for f in self.figures if (f["contender"], f["mode"], f["way"]) ==
                     (contender, mode, way)), None)

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
        rows.append((contest.model.title, _rate_cell(contest.tutti),
                     _rate_cell(contest.best, named=True), contest.speed.text("{:.2f}"),
                     f"{contest.model.target:g}", contest.speed.verdict(contest.model.target)))
    return table(("model", "Tutti", "best peer", "times as fast", "target", ""), rows)


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
    found += [f"{title}: {text}, not {target}." for title, _, _, text, target, met in ways(result)
              if not met]
    return "".join(f"- {line}\n" for line in found) or "Nowhere in this run.\n"


def ways(result):
    """(title, figure, the other one, ratio with its rounds, target, is it met?) of Tutti in one way to another."""
    found = []
    for way in result.get("ways", ()):
        if not way["rates"]:
            continue
        ratio = Ratio(way, {"rates": way["against"]})
        found.append((way["title"], *(f"{rate_text(statistics.median(way[key]))} samples/s" for key in ("rates", "against")),
                      ratio.text("{:.2f}"), f"at least {way['target']:g}", ratio.value >= way["target"]))
    start = result.get("start", {})
    if start and all(start.values()):
        ratio = Ratio({"rates": start[plan.TOGETHER]}, {"rates": start[plan.ALONE]})
        found.append(("83 million parameters: start, one step and end with 2 workers, to one",
                      *(f"{statistics.median(start[way]):.2f} s" for way in (plan.TOGETHER, plan.ALONE)),
                      ratio.text("{:.2f}"), f"at most {plan.START_TARGET:g}", ratio.value <= plan.START_TARGET))
    return found


def ways_section(result):
    rows = [(*cells, verdict(met)) for *cells, met in ways(result)]
    if not rows:
        return ""
    head = table(("", "figure", "compared with", "times", "target", ""), rows)
    return ("### Other ways to train\nTutti beside itself, in turns. By hand: two processes with TF_CONFIG, each allowed "
            f"both cores; pinned: `tutti run --cores-per-worker 1`.\n\n{head}\n")


SECTION = """## Training with {workers} workers
Workers of one core each on one host; float32, SGD, numbers made up in memory. Figures are samples a second over all workers, the median over the rounds; ratios are those of medians, with the lowest and the highest round behind them.
The best peer is the quickest of all peers' modes: {strategies}. {disturbance}

{head}
{speed}
TensorFlow runs as it comes and with `TF_ENABLE_ONEDNN_OPTS=1`, which is off by default on some processors.

### What working together costs
Against {workers} workers that train at the same time and know nothing of each other (`--strategy local`), so that cores, caches and memory are as busy:

{efficiency}
### Where Tutti misses
{misses}
### What another worker brings
One alone leaves the other cores idle, and is without any strategy in every framework.

{gain}
{ways}{network}{failures}### How to repeat it
```sh
make build
benchmarks/install-peers torch tensorflow
benchmarks/compare-training --out docs/benchmarks.md --json build/training.json
```
Command of each Tutti figure: `tutti run --workers {workers} --cores-per-worker 1 -- build/bin/train_bench --model MODEL --batch-size BATCH --strategy allreduce --max-steps STEPS --report FILE`; alone: `taskset -c CORE build/bin/train_bench --strategy local` with the same flags.

How it is kept fair:
- Every worker is bound to a core of its own, the same cores for all; only one contender works at a time.
- Contenders take turns within each round, and another one goes first in each. Compilation and warm-up are outside the timing, and everyone takes as many steps as fill the time.
- Tutti (`--values-of-peers`) and all peers start from the same numbers, each worker with its own share of the data, and their mean losses in the first steps must agree: so gradients are exchanged, and by everyone. The loss is read in every step.
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
        gain=gain_section(result), ways=ways_section(result),
        network=network.section(result.get("network"), result["machine"]["cores"]),
        failures=f"### What did not run\n{failures}\n" if failures else "")
