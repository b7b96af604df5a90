"""All-reduce between hosts: network namespaces with shaped links, made by scripts/netlab.

A case has a prediction from B, what one plain TCP stream gets on such a link in the same round, or
another case that it is compared with.
"""

import dataclasses
import json
import statistics
import subprocess

from harness.comparison import say
from harness.processes import FOLDER, JOB_SECONDS, BenchError, run_together
from harness.report import table, verdict

NETLAB = FOLDER.parent / "scripts/netlab"
RATE = "1gbit"
ADDRESS = "10.77.0.1:4711"  # netlab's first host
M = 1 << 20


@dataclasses.dataclass(frozen=True)
class Case:
    key: str
    title: str
    algorithm: str
    size: int
    hosts: int
    ranks_per_host: int = 1
    transport: str = "tcp"
    formula: str = ""       # the prediction in letters
    passes: float = 0.0     # the prediction is passes * size / B
    least: float = 0.0      # of measured / predicted
    most: float = 0.0
    against: str = ""       # the key of a case that this one must beat


def _server_case(servers, workers=4):
    return Case(f"central {servers}",
                f"central, {workers} workers, servers on hosts of their own: {servers}",
                f"central:{servers}:own", 16 * M, workers + servers,
                formula="2NK/(S B)", passes=2 * workers / servers, least=0.9, most=1.1)


CASES = (
    Case("ring", "ring, 4 hosts", "ring", 64 * M, 4, formula="2(N-1)/N K/B", passes=1.5, most=1.05),
    _server_case(1),
    _server_case(2),
    Case("flat", "ring, 2 ranks on each of 2 hosts", "ring", 64 * M, 2, 2, "auto"),
    Case("hierarchical", "hierarchical, 2 ranks on each of 2 hosts", "hierarchical", 64 * M, 2, 2,
         "auto", against="flat"),
)


def refusal():
    """Why this machine cannot do it; empty if it can."""
    asked = subprocess.run([NETLAB, "--check"], capture_output=True, text=True)
    return "" if asked.returncode == 0 else asked.stdout.strip().removeprefix("no: ")


def first_rank_lines(output):
    """What rank 0 printed: netlab writes the rank before every line."""
    return [json.loads(line.removeprefix("[0] ")) for line in output.splitlines()
            if line.startswith("[0] {")]


def lines_of(hosts, ranks_per_host, *words, environment=None):
    """The figures that rank 0 printed in a run of netlab."""
    output = run_together([[NETLAB, "--hosts", hosts, "--ranks-per-host", ranks_per_host,
                            "--rate", RATE, "--timeout", JOB_SECONDS - 20, *words]], environment)
    lines = first_rank_lines(output)
    if not lines:
        raise BenchError(f"rank 0 printed no figure but: {output.strip()[-200:]}")
    return lines


def run(program, rounds, seconds, fail):
    """{"stream": GB/s a round, "cases": {key: us a round}}. `fail` takes what did not run."""
    result = {"stream": [], "cases": {}}
    for number in range(rounds):
        say(f"between hosts, round {number + 1} of {rounds}")
        result["stream"].append(lines_of(2, 1, "--stream", 2)[0]["value"])
        for case in CASES:
            command = [program, "bench", "allreduce", "--rank", "{rank}", "--size", "{size}",
                       "--address", ADDRESS, "--bytes", case.size, "--transport", case.transport,
                       "--algorithm", case.algorithm, "--seconds", seconds, "--json"]
            try:
                lines = lines_of(case.hosts, case.ranks_per_host, "--", *command)
                result["cases"].setdefault(case.key, []).append(lines[0]["us"])
            except BenchError as error:
                fail(f"between hosts, {case.title}: {error}")
    return result


def _row(case, network):
    us = statistics.median(network["cases"][case.key])
    cells = [case.title, f"{case.size // M} MB", f"{us * 1e-6:.3f} s"]
    if case.passes:
        predicted = case.passes * case.size / statistics.median(network["stream"]) * 1e-3
        ratio = us / predicted
        wanted = f"{case.least} to {case.most}" if case.least else f"at most {case.most}"
        return [*cells, f"{case.formula} = {predicted * 1e-6:.3f} s", f"{ratio:.3f}", wanted,
                verdict(case.least <= ratio <= case.most)]
    rival = network["cases"].get(case.against)
    if not rival:
        return [*cells, "", "", "", ""]
    ratio = us / statistics.median(rival)
    return [*cells, f"the ring: {statistics.median(rival) * 1e-6:.3f} s", f"{ratio:.3f}", "below 1",
            verdict(ratio < 1)]


SECTION = """### Between hosts
Hosts are network namespaces on this machine, joined by a bridge; each link is shaped to 1 Gbit/s in both directions (`scripts/netlab`). B is what one plain TCP stream gets on such a link in the same run: {stream:.1f} MB/s.
N is the number of ranks that bring data, K its size, S the number of servers.

{rows}
"""


def section(network):
    if not network or not network["stream"]:
        return ""
    rows = [_row(case, network) for case in CASES if network["cases"].get(case.key)]
    head = ["what", "size", "time", "prediction or rival", "ratio", "target", ""]
    return SECTION.format(stream=statistics.median(network["stream"]) * 1e3,
                          rows=table(head, rows))
