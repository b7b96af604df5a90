"""A training under `tutti run`, with its output as it comes."""
import os
import re
import selectors
import subprocess
import time

import rounds


def children_of(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as file:
            found += [int(child) for child in file.read().split()]
    return found


def index_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        text = file.read().decode(errors="replace")
    return int(re.search(r'"index":(\d+)', text).group(1))


class TrainingJob:
    """Fashion-MNIST on some workers, without an end unless `flags` give one."""

    def __init__(self, bin_folder, workers, flags=(), grace=20, environment=None):
        self.lines = []
        self.pending = b""
        command = [f"{bin_folder}/tutti", "run", "--workers", str(workers), "--grace", str(grace), "--",
                   f"{bin_folder}/fashion_mnist", "--model", "mlp", "--strategy", "allreduce",
                   "--max-steps", "100000000", "--log-every", "20", *flags]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def read_until(self, done, seconds):
        """Reads lines until done(line) is true for one, the output ends, or the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.selector.select(timeout=0.05):
                continue
            block = self.process.stdout.read()
            if block == b"":
                return False
            if block is None:
                continue
            self.pending += block
            *whole, self.pending = self.pending.split(b"\n")
            # All of them belong to what has been read, even if done() is true for the first.
            texts = [line.decode(errors="replace") for line in whole]
            self.lines += texts
            if any([done(text) for text in texts]):
                return True
        return False

    def wait_for_steps(self):
        if not self.read_until(lambda line: "| step " in line, 60):
            raise rounds.Wrong("no step within 60 s")

    def workers(self):
        """The pid of each worker."""
        return {index_of(pid): pid for pid in children_of(self.process.pid)}

    def finish(self, seconds=80):
        """Reads what comes until all have ended, and returns the exit code."""
        self.read_until(lambda line: False, seconds)
        try:
            return self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            raise rounds.Wrong(f"the job did not end within {seconds} s") from None

    def text(self, lines=60):
        """The last lines."""
        return "\n".join(self.lines[-lines:])

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.selector.close()
        self.process.stdout.close()
