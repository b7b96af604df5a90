"""One run of the comparison of training with several workers: model by model, start and prepare
everybody, then rounds in which all take turns.

The result is a dictionary that JSON can hold; training_report.py makes the section of it.
"""

import time

from harness import collective_network, machine
from harness import training_network as network
from harness import training_plan as plan
from harness.comparison import say, unlike
from harness.processes import BenchError
from harness.training_jobs import PeerJob, TuttiJob, seconds_of_one_step

TUTTI = "tutti"
FIRST_STEPS = 5  # of the first measurement, which only tells how many fill the time
LEAST_STEPS = 5
CHECKED_STEPS = 3  # of which losses are compared; peers/worker.py has as many


class Contender:
    """One row of the figures: who, in which way and mode, and its samples a second by round."""

    def __init__(self, job, key, name, way, mode, model):
        self._job, self._mode = job, mode
        workers = 1 if way == plan.ALONE else plan.WORKERS
        self._step_samples = model.batch * workers
        self._steps = FIRST_STEPS
        self.label = f"{f'{name} {mode}'.strip()}, {model.name}, {way}"
        self.figure = {"model": model.name, "contender": key, "way": way, "mode": mode, "rates": []}

    def measure(self, seconds):
        """The rate; the next measurement takes as many steps as `seconds` would have held."""
        rate = self._job.measure(self._mode, self._steps)
        self._steps = max(LEAST_STEPS, round(seconds * rate / self._step_samples))
        return rate


class TrainingComparison:
    def __init__(self, tutti, program, options, log):
        self._tutti, self._program, self._options, self._log = tutti, program, options, log
        self._peers = [p for p in plan.PEERS if not options.peers or p.install in options.peers]
        self.result = {"commit": machine.commit(program), "machine": machine.describe(tutti, options),
                       "rounds": options.rounds, "seconds": options.seconds, "peers": {},
                       "failures": [], "figures": [], "machine_limits": {}}

    def run(self):
        before = time.monotonic()
        for model in plan.MODELS if "host" in self._options.parts else ():
            if not self._options.models or model.name in self._options.models:
                self._contest(model)
        if "ways" in self._options.parts:
            self._ways()
        if "network" in self._options.parts:
            self._between_hosts()
        self.result["run_seconds"] = time.monotonic() - before
        return self.result

    def _fail(self, text):
        say(f"  {text}")
        if text not in self.result["failures"]:
            self.result["failures"].append(text)

    def _between_hosts(self):
        why = collective_network.refusal()
        if why:
            self._fail(f"training between hosts: this machine does not let us make them: {why}")
            return
        self.result["network"] = network.run(self._program, min(3, self._options.rounds),
                                             self._fail)

    def _ways(self):
        """Tutti in one way against itself in another, in turns."""
        self.result["ways"], self.result["start"] = [], {plan.ALONE: [], plan.TOGETHER: []}
        pairs = []
        for comparison in plan.COMPARISONS:
            pair = [Contender(TuttiJob(self._tutti, self._program, comparison.model, way), TUTTI, "Tutti", way, "",
                              comparison.model) for way in (comparison.way, comparison.against)]
            if all(self._calibrate(contender) for contender in pair):
                self.result["ways"].append({"title": comparison.title, "target": comparison.target,
                                            "rates": pair[0].figure["rates"], "against": pair[1].figure["rates"]})
                pairs.append(pair)
        for number in range(self._options.rounds):
            say(f"other ways: round {number + 1} of {self._options.rounds}")
            for pair in pairs:
                rates = [self._turn(contender, self._options.seconds) for contender in pair]
                if None not in rates:
                    for contender, rate in zip(pair, rates):
                        contender.figure["rates"].append(rate)
            for way, seconds in self.result["start"].items():
                try:
                    seconds.append(seconds_of_one_step(self._tutti, self._program, plan.START_MODEL, way))
                except BenchError as error:
                    self._fail(f"{plan.START_MODEL.name}, {way}: {error}")

    def _contest(self, model):
        say(f"{model.name}: preparing")
        jobs = []
        try:
            contenders = [
                Contender(TuttiJob(self._tutti, self._program, model, way), TUTTI, "Tutti",
                          way, "", model)
                for way in (plan.TOGETHER, plan.ALONE, plan.INDEPENDENT)]
            for way in (plan.TOGETHER, plan.ALONE):
                contenders += self._prepare_peers(model, way, jobs)
            contenders = [c for c in contenders if self._calibrate(c)]
            self.result["figures"] += [contender.figure for contender in contenders]
            for number in range(self._options.rounds):
                say(f"{model.name}: round {number + 1} of {self._options.rounds}")
                self._round(contenders, number)
        finally:
            for job in jobs:
                job.close()

    def _prepare_peers(self, model, way, jobs):
        contenders, losses = [], {}
        try:
            losses[f"Tutti, {model.name}, {way}"] = TuttiJob(self._tutti, self._program, model, way).losses(CHECKED_STEPS)
        except BenchError as error:
            self._fail(f"Tutti, {model.name}, {way}, first losses: {error}")
        for peer in self._peers:
            job = PeerJob(peer, model, way, self._log)
            jobs.append(job)
            try:
                self.result["peers"].setdefault(peer.key, job.info())
            except BenchError as error:
                self._fail(f"{peer.label}, {way}, does not start: {error}")
                continue
            for mode in peer.modes_of(model.name):
                contender = Contender(job, peer.key, peer.label, way, mode, model)
                try:
                    seconds, losses[contender.label] = job.prepare(mode)
                except BenchError as error:
                    self._fail(f"{contender.label}: {error}")
                    continue
                say(f"  ready in {seconds:.1f} s: {contender.label}")
                contenders.append(contender)
        for text in unlike(losses):
            self._fail(text)
        return contenders

    def _calibrate(self, contender):
        return (self._turn(contender, self._options.seconds / 4) is not None and
                self._turn(contender, self._options.seconds) is not None)

    def _turn(self, contender, seconds):
        try:
            return contender.measure(seconds)
        except BenchError as error:
            self._fail(f"{contender.label}: {error}")
            return None

    def _round(self, contenders, number):
        limits = self._tutti.bench("gemm", plan.WORKERS, "--seconds", self._options.seconds / 4)
        self.result["machine_limits"].setdefault(f"gemm {plan.WORKERS}", []).append(
            max(limits.values()))
        first = number * 3 % max(1, len(contenders))  # another one goes first in each round
        for contender in contenders[first:] + contenders[:first]:
            rate = self._turn(contender, self._options.seconds)
            if rate is not None:
                contender.figure["rates"].append(rate)
