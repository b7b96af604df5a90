"""Tasks of a cluster, `tutti server`, that tests start by hand, and what they print."""
import json
import os
import re
import subprocess
import time

PATIENCE = 60  # seconds for what takes a moment
TOKEN = "secret"


class ServerError(Exception):
    """A task that did not start; says what it printed."""


def environment(**variables):
    return dict(os.environ, TUTTI_JOB_TOKEN=TOKEN, **variables)


class ServerTask:
    """A task of the cluster, in its process of the moment. `spec` is the cluster as TF_CONFIG has it."""

    def __init__(self, spec, name, folder, bin_folder, *flags):
        self.name = name
        job, index = re.match(r"/job:(\w+)/task:(\d+)", name).groups()
        self.address = spec[job][int(index)]
        self.config = json.dumps({"cluster": spec, "task": {"type": job, "index": int(index)}})
        self.log = os.path.join(folder, f"{job}{index}.log")
        self.command = [f"{bin_folder}/tutti", "server", *flags]
        self.process = None

    def start(self):
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command, env=environment(TF_CONFIG=self.config), stdout=log,
                                            stderr=log)

    def await_listening(self):
        deadline = time.monotonic() + PATIENCE
        while "listens at" not in self.said():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"{self.name} did not start: {self.said()}")
            time.sleep(0.005)

    def said(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()
