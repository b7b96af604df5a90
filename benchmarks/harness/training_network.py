"""Training between hosts: network namespaces with shaped links, made by scripts/netlab.

Every case is a run of train_bench on all hosts; what is told of it comes from rank 0's report. A
run with one sample a worker computes next to nothing, so its communication is what the links take.
"""

import dataclasses
import json
import os
import statistics
import tempfile

from harness import collective_network as netlab
from harness.comparison import say
from harness.processes import BenchError
from harness.report import table, verdict

MODEL = "mlp-50mb"
MODEL_TEXT = "784-1504-1504-1504-1504-1504-1504-10"
BYTES = 4 * 12_513_290  # of its parameters
BATCH = 128
UNTIMED = 2
PORT = 4711
WORKERS = 4
FORWARD, LOCAL = "forward", "local"


@dataclasses.dataclass(frozen=True)
class Case:
    key: str
    hosts: int = WORKERS
    batch: int = 1
    flags: tuple = ("--strategy", "allreduce")
    steps: int = 4

    @property
    def ranks_per_host(self):
        return WORKERS // self.hosts


CASES = (
    Case(FORWARD, batch=BATCH, flags=("--strategy", "local", "--forward-steps", "12"), steps=1),
    Case(LOCAL, batch=BATCH, flags=("--strategy", "local"), steps=6),
    Case("one sample"),
    Case("step", batch=BATCH),
    Case("bfloat16", flags=("--strategy", "allreduce", "--wire", "bfloat16")),
    Case("flat", hosts=2, flags=("--strategy", "allreduce", "--algorithm", "ring")),
    Case("auto", hosts=2),
)


def tf_config(case):
    """As text in which netlab puts the rank."""
    workers = [f"10.77.0.{host + 1}:{PORT + slot}" for host in range(case.hosts)
               for slot in range(case.ranks_per_host)]
    cluster = json.dumps({"worker": workers})
    return f'{{"cluster": {cluster}, "task": {{"type": "worker", "index": {{rank}}}}}}'


def command(program, case, cores):
    """Of one rank. Ranks share the cores; each is bound to one, as workers are elsewhere."""
    bind = f'exec taskset -c $(set -- {" ".join(map(str, cores))}; ' \
           'shift $((NETLAB_RANK % $#)); echo $1) "$@"'
    alone = "local" in case.flags
    place = [] if alone else ["TUTTI_JOB_TOKEN=benchmark", f"TF_CONFIG={tf_config(case)}"]
    return ["env", *place, "sh", "-c", bind, "sh", program, "--model", MODEL, "--batch-size",
            case.batch, "--untimed-steps", UNTIMED, "--max-steps", case.steps, "--report",
            "/dev/stdout", *case.flags]


def figure(case, lines):
    """What is kept of a run: seconds a step, those of communication, and how gradients travel."""
    if case.key == FORWARD:
        return {"seconds": next(line["value"] for line in lines if line.get("case") == FORWARD)}
    report = [line for line in lines if "steps" in line][-1]
    return {"seconds": report["seconds"] / report["steps"],
            "communication": (report["comm_hidden"] + report["comm_exposed"]) / report["steps"],
            "gradients": report["gradients"]}


def run(program, rounds, fail):
    """{"stream": GB/s a round, "cases": {key: [figure a round]}}. `fail` takes what did not run."""
    result = {"stream": [], "cases": {}}
    cores = sorted(os.sched_getaffinity(0))
    # What earlier jobs measured on links of another rate must not be taken for these.
    with tempfile.TemporaryDirectory(prefix="tutti-network-") as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        for number in range(rounds):
            say(f"training between hosts, round {number + 1} of {rounds}")
            result["stream"].append(netlab.lines_of(2, 1, "--stream", 2)[0]["value"])
            for case in CASES:
                try:
                    lines = netlab.lines_of(case.hosts, case.ranks_per_host, "--",
                                            *command(program, case, cores),
                                            environment=environment)
                    result["cases"].setdefault(case.key, []).append(figure(case, lines))
                except (BenchError, StopIteration, IndexError) as error:
                    fail(f"training between hosts, {case.key}: {error or 'no report'}")
    return result


class Figures:
    """Medians over the rounds; None where something did not run."""

    def __init__(self, network):
        self._cases = network["cases"]
        self.stream = statistics.median(network["stream"]) * 1e9  # bytes a second

    def of(self, key, what="seconds"):
        found = self._cases.get(key)
        return statistics.median(f[what] for f in found) if found else None

    def gradients(self, key):
        found = self._cases.get(key)
        return found[-1]["gradients"] if found else ""


def _row(what, value, against, against_text, most, wanted):
    if value is None or against is None:
        return None
    ratio = value / against
    return [what, f"{value:.3f} s", f"{against_text} = {against:.3f} s", f"{ratio:.2f}", wanted,
            verdict(ratio <= most)]


def rows(network):
    f = Figures(network)
    communication = f.of("one sample", "communication")
    predicted = 2 * (WORKERS - 1) / WORKERS * BYTES / f.stream
    forward, local = f.of(FORWARD), f.of(LOCAL)
    ideal = None
    if None not in (forward, local, communication):
        ideal = forward + max(local - forward, communication)
    found = [
        _row(f"communication of a step, {WORKERS} hosts", communication, predicted,
             "2(N-1)/N K/B", 1.15, "at most 1.15"),
        _row(f"a step, {WORKERS} hosts, {BATCH} samples a worker", f.of("step"), ideal,
             "forward + max(backward, communication)", 1.1, "at most 1.1"),
        _row("communication with `--wire bfloat16`", f.of("bfloat16", "communication"), communication,
             "as float32", 0.6, "near 0.5"),
        _row("communication, 2 workers on each of 2 hosts", f.of("auto", "communication"),
             f.of("flat", "communication"), "`--algorithm ring`", 0.999, "below 1"),
    ]
    return [row for row in found if row]


SECTION = """### Between hosts
{workers} workers train an MLP {model} (K = {megabytes:.0f} MB) on network namespaces of this machine, joined by a bridge; each link is shaped to 1 Gbit/s in both directions (`scripts/netlab`). B is what one plain TCP stream gets on such a link in the same run: {stream:.1f} MB/s.
The workers share the cores of this machine, {cores}, so that computing, summing and the kernel's work for the links compete for them as they would not on {workers} machines; {batch} samples a worker are few enough that computing does not drown the links. Communication is the time in which an operation was under way, in steps of one sample a worker; forward ({forward}) and forward with backward and update ({local}) are those of {workers} workers that compute at the same time and do not communicate.

{rows}
How gradients travelled, as each run says at its start:
- {workers} hosts: {ring}
- 2 workers on each of 2 hosts: {auto}

"""


def _seconds(value):
    return "not measured" if value is None else f"{value:.3f} s"


def section(network, cores):
    if not network or not network["stream"]:
        return ""
    f = Figures(network)
    head = ["what", "time", "against", "ratio", "target", ""]
    return SECTION.format(workers=WORKERS, model=MODEL_TEXT, megabytes=BYTES / 1e6, cores=cores,
                          stream=f.stream / 1e6, batch=BATCH, forward=_seconds(f.of(FORWARD)),
                          local=_seconds(f.of(LOCAL)), rows=table(head, rows(network)),
                          ring=f.gradients("one sample"), auto=f.gradients("auto"))
