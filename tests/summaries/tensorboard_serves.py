"""Trains a few steps, starts TensorBoard on the model directory, and asks it over HTTP for what it shows."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

STEPS = 40
SECONDS = 240  # for TensorBoard to start and to have read the files


def train(args, model_dir):
    done = subprocess.run([os.path.join(args.bin, "fashion_mnist"), "--model", "mlp", "--max-steps", str(STEPS),
                           "--summary-every", "10", "--eval-every", "20", "--histograms", "--model-dir", model_dir,
                           "--quiet"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class TensorBoard:
    """The real program, on a port of this host that it chooses."""

    def __init__(self, folder):
        # It waits for no other version of itself, and reads the files again every second.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", "0",
             "--reload_interval", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True)
        self.deadline = time.monotonic() + SECONDS
        # A program that says nothing is ended as well.
        self.watchdog = threading.Timer(SECONDS, self.process.kill)
        self.watchdog.start()
        said = ""
        for line in self.process.stdout:
            said += line
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
            if found:
                self.address = found.group(0)
                break
        else:
            raise AssertionError(f"TensorBoard did not start: {said}")
        # What it says later must not fill the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def get(self, path, **query):
        url = f"{self.address}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.status == 200, answer.status
            return answer.read().decode()

    def await_tags(self, plugin, runs):
        """The tags of a plugin, once it has read those of all runs."""
        while True:
            tags = json.loads(self.get(f"data/plugin/{plugin}/tags"))
            if runs <= tags.keys() and all(tags[run] for run in runs):
                return tags
            assert time.monotonic() < self.deadline, f"after {SECONDS} s TensorBoard has {tags} of {runs}"
            time.sleep(0.2)  # until its next look at the files

    def stop(self):
        self.watchdog.cancel()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def check(board):
    assert "<title>TensorBoard</title>" in board.get("")
    scalars = board.await_tags("scalars", {".", "eval"})
    assert {"loss", "steps_per_second", "samples_per_second"} <= scalars["."].keys(), scalars
    assert {"loss", "accuracy"} <= scalars["eval"].keys(), scalars
    for run, tag, steps in ((".", "loss", [10, 20, 30, 40]), ("eval", "accuracy", [20, 40])):
        points = json.loads(board.get("data/plugin/scalars/scalars", run=run, tag=tag))
        assert [step for _, step, _ in points] == steps, (run, tag, points)
    histograms = board.await_tags("histograms", {"."})
    assert {"weights/dense/weights", "gradients/dense/weights"} <= histograms["."].keys(), histograms
    graph = board.get("data/plugin/graphs/graph", run=".")
    assert "dense/MatMul" in graph, graph[:1000]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as model_dir:
        train(args, model_dir)
        board = TensorBoard(model_dir)
        try:
            check(board)
        finally:
            board.stop()
    print("TensorBoard serves all of it")


if __name__ == "__main__":
    sys.exit(main())
