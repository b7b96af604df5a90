"""Who trains: Tutti, started for every measurement, and jobs of the peers' long-lived processes.

Each has measure(mode, steps), the samples a second over all its workers. Tutti's warm-up is the
program's own, the peers' that of peers/worker.py; neither is in the rate.
"""

import json
import pathlib
import socket
import tempfile
import time

from harness import training_plan as plan
from harness.processes import BenchError, PeerProcess, bound_to, last_cores, run_together

# A framework may compile for a while before it answers.
ANSWER_SECONDS = 300


class TuttiJob:
    """`way` is one of training_plan's ways to work."""

    def __init__(self, tutti, program, model, way):
        self._tutti, self._program, self._model, self._way = tutti, program, model, way

    def command(self, report, steps):
        """Of one worker, without what starts it."""
        strategy = {plan.TOGETHER: "allreduce", plan.BY_HAND: "allreduce",
                    plan.TOWERS: f"mirrored:{plan.WORKERS}"}.get(self._way, "local")
        return [self._program, "--model", self._model.name, "--batch-size", self._model.batch,
                "--strategy", strategy, "--max-steps", steps, "--report", report]

    def commands(self, reports, steps):
        """What is run at once, a report each."""
        if self._way == plan.TOGETHER:
            cores = last_cores(plan.WORKERS)
            launcher = [self._tutti.program, "run", "--workers", plan.WORKERS,
                        "--cores-per-worker", 1, "--"]
            return [bound_to(cores, [*launcher, *self.command(reports[0], steps)])]
        if self._way == plan.TOWERS:
            return [bound_to(last_cores(plan.WORKERS), self.command(reports[0], steps))]
        if self._way == plan.BY_HAND:
            return [bound_to(last_cores(plan.WORKERS), ["env", f"TF_CONFIG={place['TF_CONFIG']}",
                                                        *self.command(reports[0], steps)])
                    for place in places(plan.WORKERS)]
        return [bound_to([core], self.command(report, steps))
                for core, report in zip(last_cores(len(reports)), reports)]

    def losses(self, steps):
        """Of the first steps, from the peers' first values and on their batch, which is used again and again."""
        with tempfile.TemporaryDirectory(prefix="tutti-training-") as folder:
            found = []
            for last in range(1, steps + 1):
                report = pathlib.Path(folder) / f"{last}.json"
                run_together([[*command, "--untimed-steps", 0, "--batches", 1, "--learning-rate", 0.01,
                               "--values-of-peers"] for command in self.commands([report], last)])
                found.append(json.loads(report.read_text())["loss"])
            return found

    def measure(self, mode, steps):
        del mode  # there is one
        count = plan.WORKERS if self._way == plan.INDEPENDENT else 1
        with tempfile.TemporaryDirectory(prefix="tutti-training-") as folder:
            reports = [pathlib.Path(folder) / f"{number}.json" for number in range(count)]
            run_together(self.commands(reports, steps))
            try:
                return sum(json.loads(r.read_text())["samples_per_second"] for r in reports)
            except (OSError, ValueError) as error:
                raise BenchError(f"one of its workers gave no report: {error}")


def seconds_of_one_step(tutti, program, model, way):
    """From the start of the processes of a training of one step until they have ended."""
    with tempfile.TemporaryDirectory(prefix="tutti-training-") as folder:
        job = TuttiJob(tutti, program, model, way)
        commands = [[*command, "--untimed-steps", 0] for command in
                    job.commands([pathlib.Path(folder) / "0.json"], 1)]
        before = time.monotonic()
        run_together(commands)
        return time.monotonic() - before


def _free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def places(workers):
    """The environment of each worker: what torch.distributed reads, and what TensorFlow does."""
    ports = _free_ports(workers)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    return [{"RANK": str(rank), "WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(ports[0]),
             "TF_CONFIG": json.dumps({"cluster": cluster,
                                      "task": {"type": "worker", "index": rank}})}
            for rank in range(workers)]


class PeerJob:
    """All processes of a peer that train one model, together or alone. Bound to one core each."""

    def __init__(self, peer, model, way, log):
        self._peer, self._model = peer, model
        if way == plan.ALONE:
            self._processes = [PeerProcess(peer, 1, log)]
        else:
            self._processes = [
                PeerProcess(peer, 1, log, cores=[core], script=peer.script, environment=place)
                for core, place in zip(last_cores(plan.WORKERS), places(plan.WORKERS))]

    def _ask(self, do, **request):
        """The answers of all. A job cannot go on when one worker failed: the others wait for it."""
        for process in self._processes:
            process.send(do, **request)
        answers = [process.receive(ANSWER_SECONDS) for process in self._processes]
        errors = [answer["error"] for answer in answers if "error" in answer]
        if 0 < len(errors) < len(answers):
            for process in self._processes:
                process.kill()
        if errors:
            raise BenchError(errors[0])
        return answers

    def info(self):
        return self._ask("info")[0]

    def prepare(self, mode):
        """(seconds it took, the mean losses of the first steps over all workers)"""
        answers = self._ask("prepare", model=self._model.name, mode=mode, batch=self._model.batch)
        losses = [sum(step) / len(step) for step in zip(*(a["losses"] for a in answers))]
        return answers[0]["seconds"], losses

    def measure(self, mode, steps):
        answers = self._ask("measure", model=self._model.name, mode=mode, batch=self._model.batch,
                            steps=steps)
        samples = steps * self._model.batch * len(self._processes)
        return samples / max(answer["seconds"] for answer in answers)

    def close(self):
        for process in self._processes:
            process.end_input()  # some frameworks end only when all their workers do
        for process in self._processes:
            process.close()
