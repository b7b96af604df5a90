#!/usr/bin/env python3
"""How much memory a parameter server takes, with Adam and 8 workers, against the bytes of the values that it keeps.

    tests/cluster/ps_memory.py --bin build/bin [--strategy ps-async]

Values and the two slots of Adam are 3 times P. The rest is what updates and reads need at their peak: at most 0.3 P where
gradients are applied as they come, and 2 P where they are summed first. What workers and the server share is counted in
shares (Pss): a gradient that the server reads in a worker's memory is not its own.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time

from tasks import cluster_of

P = 4 * 12_513_290  # train_bench's mlp-50mb
MOST = {"ps-async": 3.3, "ps-ssp:3": 3.3, "ps-sync": 5.0}
WORKERS = 8


def proportional_bytes(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
            return 1024 * int(re.search(r"^Pss: +(\d+) kB", file.read(), re.M).group(1))
    except (OSError, AttributeError):
        return 0


def peak_of(binaries, strategy, steps):
    """Bytes of the server at its peak, above what it had before the training."""
    cluster = cluster_of(worker=WORKERS, ps=1)
    started = []
    try:
        for job, count in (("ps", 1), ("worker", WORKERS)):
            for index in range(count):
                config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
                started.append(subprocess.Popen(
                    [f"{binaries}/train_bench", "--model", "mlp-50mb", "--batch-size", "1", "--optimizer", "adam",
                     "--strategy", strategy, "--untimed-steps", "0", "--max-steps", str(steps), "--start-timeout", "120"],
                    env={**os.environ, "TF_CONFIG": config, "TUTTI_JOB_TOKEN": "secret"}, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, text=True))
            if job == "ps":
                time.sleep(0.5)
                before = proportional_bytes(started[0].pid)
        peak, over = [before], threading.Event()

        def watch():
            while not over.wait(0.02):
                peak[0] = max(peak[0], proportional_bytes(started[0].pid))
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            outputs = [task.communicate(timeout=600)[0] for task in started[1:]]
        finally:
            over.set()
            watcher.join()
        codes = [task.returncode for task in started[1:]]
        if any(codes):
            raise AssertionError(f"workers ended with {codes}: {outputs[0][-500:]}")
        return peak[0] - before
    finally:
        for task in started:
            if task.poll() is None:
                task.kill()
            task.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--strategy", nargs="+", default=list(MOST), choices=MOST)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    failed = False
    for strategy in options.strategy:
        steps = options.steps // WORKERS if strategy == "ps-sync" else options.steps
        times = peak_of(options.bin, strategy, steps) / P
        print(f"{strategy}: {times:.2f} P at most {MOST[strategy]}", flush=True)
        failed = failed or not 3 <= times <= MOST[strategy]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
