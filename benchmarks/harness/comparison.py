"""One run of the comparison: prepare everything, then rounds in which all contenders take turns.

The result is a dictionary that JSON can hold; report.py makes the page of it.
"""

import statistics
import sys
import time

from harness import machine, plan
from harness.processes import BenchError, PeerProcess, openblas

TUTTI = "tutti"
# mlp-small takes less than a millisecond: half the time gives as steady a median.
SHORT = {"mlp-small": 0.5}


def say(text):
    print(text, file=sys.stderr, flush=True)


def unlike(losses):
    """Complaints about {name: losses}: all start from the same numbers, so the losses of their
    first steps must agree."""
    middle = [statistics.median(step) for step in zip(*losses.values())]
    # A loss that has all but gone is compared with a hundredth of the first one: optimizers differ in where
    # they put their epsilon.
    least = [max(abs(value), 0.01 * abs(middle[0])) for value in middle]
    return [f"{name}: losses {found} where the others have {middle}: not the same model"
            for name, found in losses.items()
            if any(abs(a - b) > 1e-3 * scale for a, b, scale in zip(found, middle, least))]


class Comparison:
    def __init__(self, tutti, options, log):
        self._tutti = tutti
        self._options = options
        self._log = log
        self._models = [m for m in plan.MODELS if not options.models or m.name in options.models]
        self._peers = [p for p in plan.PEERS if not options.peers or p.install in options.peers]
        self._processes = {}  # (peer key, threads)
        self._contests = {}   # (model name, threads): contenders, each [peer or tutti, mode]
        self.result = {"commit": machine.commit(tutti.program), "machine": machine.describe(tutti, options),
                       "rounds": options.rounds, "seconds": options.seconds, "peers": {},
                       "failures": [], "steps": [], "machine_limits": {}, "gemm_kernels": {}, "null": {},
                       "tensorflow_null": {}, "startup": [], "peak": {}}

    def run(self):
        before = time.monotonic()
        try:
            self._prepare()
            for number in range(self._options.rounds):
                say(f"round {number + 1} of {self._options.rounds}")
                self._round(number)
            self._tensorflow_null()
        finally:
            for process in self._processes.values():
                process.close()
        self._peak()
        self.result["run_seconds"] = time.monotonic() - before
        return self.result

    def _fail(self, text):
        say(f"  {text}")
        if text not in self.result["failures"]:
            self.result["failures"].append(text)

    def _prepare(self):
        for peer in self._peers:
            for threads in self._options.threads:
                self._processes[peer.key, threads] = PeerProcess(peer, threads, self._log)
        for model in self._models:
            for threads in self._options.threads:
                self._prepare_contest(model, threads)

    def _prepare_contest(self, model, threads):
        contenders = [(TUTTI, "")]
        losses = {f"Tutti, {model.name}, {threads} thread(s)": self._tutti.losses(model.name, model.batch, threads)}
        for peer in self._peers:
            process = self._processes[peer.key, threads]
            info = process.ask("info")
            if "error" in info:
                raise BenchError(f"{peer.label} does not start: {info['error']}")
            self.result["peers"].setdefault(peer.key, info)
            for mode in peer.modes_of(model.name):
                answer = process.ask("prepare", model=model.name, mode=mode, batch=model.batch)
                name = f"{peer.label} {mode}, {model.name}, {threads} thread(s)"
                if "error" in answer:
                    self._fail(f"{name}: {answer['error']}")
                    continue
                say(f"  ready in {answer['seconds']:.1f} s: {name}")
                contenders.append((peer.key, mode))
                losses[name] = answer["losses"]
        for text in unlike(losses):
            self._fail(text)
        self._contests[model.name, threads] = contenders
        for key, mode in contenders:
            self.result["steps"].append({"model": model.name, "threads": threads, "peer": key,
                                         "mode": mode, "ms": []})

    def _figures(self, model, threads):
        return {(f["peer"], f["mode"]): f for f in self.result["steps"]
                if f["model"] == model and f["threads"] == threads}

    def _round(self, number):
        self._limits()
        for model in self._models:
            for threads in self._options.threads:
                contenders = self._contests[model.name, threads]
                figures = self._figures(model.name, threads)
                turn = number % len(contenders)  # another one goes first in each round
                for key, mode in contenders[turn:] + contenders[:turn]:
                    ms = self._measure(model, threads, key, mode)
                    if ms is not None:
                        figures[key, mode]["ms"].append(ms)

    def _measure(self, model, threads, key, mode):
        seconds = self._options.seconds * SHORT.get(model.name, 1)
        if key == TUTTI:
            return next(iter(self._tutti.bench("step", threads, "--model", model.name, "--batch",
                                               model.batch, "--seconds", seconds).values()))
        answer = self._processes[key, threads].ask("measure", model=model.name, mode=mode,
                                                   batch=model.batch, seconds=seconds)
        if "error" in answer:
            self._fail(f"{key} {mode}, {model.name}, {threads} thread(s): {answer['error']}")
        return answer.get("ms")

    def _limits(self):
        seconds = ("--seconds", self._options.seconds / 2)
        for threads in self._options.threads:
            found = self._tutti.bench("memory", threads, *seconds)
            self.result["machine_limits"].setdefault(f"memory {threads}", []).extend(found.values())
            kernels = self.result["gemm_kernels"].setdefault(str(threads), {})
            rates = self._gemm_rates(threads, self._options.seconds / 2)
            for name, rate in rates.items():
                kernels.setdefault(name, []).append(rate)
            self.result["machine_limits"].setdefault(f"gemm {threads}", []).append(max(rates.values()))
        for case, value in self._tutti.bench("null", 1, *seconds).items():
            self.result["null"].setdefault(case, []).append(value)
        self.result["startup"].extend(
            self._tutti.bench("startup", max(self._options.threads)).values())

    def _gemm_rates(self, threads, seconds):
        """{kernel: GFLOP/s} of the product of `tutti bench gemm`."""
        names = ("Tutti's MatMul", "oneDNN", "our packed kernel")
        found = dict(zip(names, self._tutti.bench("gemm", threads, "--seconds", seconds).values()))
        try:
            name, rate = openblas(threads, seconds)
            found[name] = rate
        except BenchError as error:
            self._fail(f"OpenBLAS: {error}")
        return found

    def _tensorflow_null(self):
        process = self._processes.get(("tensorflow", 1))
        if process is not None:
            found = process.ask("null", seconds=self._options.seconds)
            if "error" in found:
                self._fail(f"TensorFlow, null nodes: {found['error']}")
            else:
                self.result["tensorflow_null"] = found

    def _peak(self):
        """Each in a process of its own; memory does not depend on the hour, so once is enough."""
        if not any(model.name == "cnn" for model in self._models):
            return
        say("peak memory")
        peak = self.result["peak"]
        peak["tutti"] = self._tutti.bench("peak", 1, "--model", "cnn", "--batch", plan.PEAK_BATCH)
        for peer in (p for p in self._peers if p.key == "torch"):
            for mode in peer.modes_of("cnn"):
                process = PeerProcess(peer, 1, self._log)
                answer = process.ask("peak", model="cnn", mode=mode, batch=plan.PEAK_BATCH)
                process.close()
                if "error" in answer:
                    self._fail(f"PyTorch {mode}, peak memory: {answer['error']}")
                else:
                    peak[mode] = answer["bytes"] * 1e-6
