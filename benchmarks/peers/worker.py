"""What the peers' processes have in common: JSON lines in, JSON lines out, and the clock.

A peer is an object with

  info() -> dict                  name, version, and what else the table shall tell
  prepare(model, mode, batch)     -> step: a function that runs one training step to its end and
                                  returns the loss as a float; compiled when it returns
  peak(model, mode, batch)        -> bytes (only a peer that can tell)
  null(seconds)                   -> dict (only a peer that has an executor of nodes)

A measurement takes about "seconds" and gives the median step, or takes "steps" and gives the
seconds of all. Of a peer of several processes every one gets each request.

Requests are {"do": "prepare" | "measure" | "peak" | "null" | "info", ...}; each gets one line, an
object with "error" when it failed. The end of the input ends the process.
"""

import json
import os
import statistics
import sys
import time
import traceback

CHECKED_STEPS = 3  # losses that are compared between peers
WARM_UP_STEPS = 2
LEAST_STEPS = 5


def median_seconds(run, seconds):
    """The median time of one call of `run`, called for about `seconds`; and how many there were."""
    for _ in range(WARM_UP_STEPS):
        run()
    times = []
    before = time.perf_counter()
    end = before + seconds
    while before < end or len(times) < LEAST_STEPS:
        run()
        after = time.perf_counter()
        times.append(after - before)
        before = after
    return statistics.median_low(times), len(times)


def total_seconds(run, steps):
    for _ in range(WARM_UP_STEPS):
        run()
    before = time.perf_counter()
    for _ in range(steps):
        run()
    return time.perf_counter() - before


class Worker:
    def __init__(self, peer):
        self._peer = peer
        self._steps = {}

    def answer(self, request):
        if request["do"] == "info":
            return self._peer.info()
        if request["do"] == "null":
            return self._peer.null(request["seconds"])
        model, mode, batch = request["model"], request["mode"], request["batch"]
        if request["do"] == "peak":
            return {"bytes": self._peer.peak(model, mode, batch)}
        if request["do"] == "prepare":
            before = time.perf_counter()
            step = self._peer.prepare(model, mode, batch)
            losses = [float(step()) for _ in range(CHECKED_STEPS)]
            self._steps[model, mode, batch] = step
            return {"losses": losses, "seconds": time.perf_counter() - before}
        if "steps" in request:
            return {"seconds": total_seconds(self._steps[model, mode, batch], request["steps"])}
        seconds, steps = median_seconds(self._steps[model, mode, batch], request["seconds"])
        return {"ms": seconds * 1e3, "steps": steps}


def serve(peer):
    # What libraries print must not get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(peer)
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # whatever a framework throws is an answer, not the end
            traceback.print_exc()
            first = (str(error) or repr(error)).splitlines()[0]
            answer = {"error": f"{type(error).__name__}: {first}"}
        print(json.dumps(answer), file=out, flush=True)


def threads():
    """The number of threads that the peer is to use: the only argument of its script."""
    return int(sys.argv[1])
