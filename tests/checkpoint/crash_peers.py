#!/usr/bin/env python3
"""Shows what a crash in the middle of a save leaves of a checkpoint: of Tutti's, torch.save's and TensorFlow's.

    tests/checkpoint/crash_peers.py --bin build/bin [--system tutti]... [--states 5000] [--report docs/faults.md]

A checkpoint of step 10 is there and durable; the save of step 20 is recorded by strace. For every prefix of its system
calls, crash_states (the model of crash_test.cc) writes what a kill leaves, and samples of what a loss of power leaves: of the
writes and names that were not synced, any may be missing or torn. The system's own reader then loads each state. Tutti must
have the checkpoint of step 10 or 20 in each, and ends with 1 otherwise; of the others it is only counted. Ends with 77 without
strace.
"""
import argparse
import datetime
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fault"))

import page_sections  # noqa: E402
import recorded_calls  # noqa: E402

PEERS = os.environ.get("TUTTI_PEERS", os.path.expanduser("~/.cache/tutti/peers"))
SAVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "crash_peer.py")
SKIPPED = 77

SECTION = """## What a crash leaves of a checkpoint

A checkpoint of step 10 is on the disk. The system calls of the save of step 20 are recorded (strace), and every prefix of them
is replayed: as a kill (SIGKILL) leaves it, and as a loss of power may, where of all that was not synced any write or name may
be missing, and a write may be there in part. That is what POSIX allows; a journaling file system in its default mode loses
less. Each state is loaded by the system's own reader. "Neither" has no checkpoint that loads; "wrong values" loads without an
error and is neither of the two.

| save | calls | crash | states | step 20 | step 10 | neither | wrong values |
|---|---|---|---|---|---|---|---|
{rows}

- Tutti: `fashion_mnist --model-dir --keep 1`, read as a training does: the newest checkpoint that is whole.
- torch.save: over the file of step 10; with os.replace: to a file beside it, which then takes its name.
- TensorFlow: `tf.train.CheckpointManager` with `max_to_keep=1`, read by `tf.train.latest_checkpoint`.
- {versions}
- date: {date}; commit: {commit}
- repeat it with `tests/checkpoint/crash_peers.py`
"""


class Tutti:
    name = "Tutti"

    def __init__(self, args):
        self.bin = args.bin

    def save(self, root, step):
        return [f"{self.bin}/fashion_mnist", "--model", "mlp", "--batch-size", "8", "--max-steps", str(step), "--keep", "1",
                "--save-every", "0", "--model-dir", root]

    def judge(self, state):
        names = sorted((name for name in os.listdir(state) if name.startswith("checkpoint-")), reverse=True)
        for name in names:
            done = subprocess.run([f"{self.bin}/tutti", "inspect", f"{state}/{name}"], capture_output=True, check=False)
            if done.returncode == 0 and b"all checksums are right" in done.stdout:
                return {"checkpoint-000020": "new", "checkpoint-000010": "old"}.get(name, "wrong")
        return "lost"

    def version(self):
        return ""

    def close(self):
        pass


class Peer:
    """A system whose saver and reader are in crash_peer.py, run by a Python that has it."""

    def __init__(self, name, mode, pythons):
        self.name, self.mode = name, mode
        package = mode.split("-")[0]
        found = [python for python in pythons if os.path.exists(python) and subprocess.run(
            [python, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0]
        self.python = found[0] if found else None
        self.reader = None

    def save(self, root, step):
        return [self.python, SAVER, self.mode, "save", root, str(step)]

    def ask(self, question):
        if self.reader is None:
            self.reader = subprocess.Popen([self.python, SAVER, self.mode, "judge"], stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        print(question, file=self.reader.stdin, flush=True)
        return self.reader.stdout.readline().strip()

    def judge(self, state):
        return self.ask(state)

    def version(self):
        return self.ask("version")

    def close(self):
        if self.reader is not None:
            self.reader.stdin.close()
            self.reader.wait()


def systems_of(args):
    torch = [f"{PEERS}/torch/bin/python", "/usr/bin/python3"]
    return {"tutti": lambda: Tutti(args),
            "torch": lambda: Peer("torch.save", "torch", torch),
            "torch-replace": lambda: Peer("torch.save, os.replace", "torch-replace", torch),
            "tensorflow": lambda: Peer("TensorFlow", "tensorflow", [f"{PEERS}/tensorflow/bin/python"])}


def run(args, system):
    """Counts by (crash, outcome), and the number of calls."""
    with tempfile.TemporaryDirectory(prefix="tutti-crash-", dir="/dev/shm") as folder:
        root, before, out = f"{folder}/model", f"{folder}/before", f"{folder}/out"
        os.mkdir(out)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(system.save(root, 10), check=True, **quiet)
        shutil.copytree(root, before)
        directory = recorded_calls.Directory(root)
        directory.follow(recorded_calls.record(system.save(root, 20), folder=folder, **quiet))
        shutil.rmtree(root)
        os.rename(before, root)  # crash_states reads what was there
        with open(f"{folder}/calls", "w", encoding="ascii") as file:
            file.writelines(json.dumps(call) + "\n" for call in directory.calls)
        seed = args.seed if args.seed is not None else random.randrange(1 << 30)
        print(f"{system.name}: {len(directory.calls)} calls, seed {seed}", flush=True)
        states = subprocess.Popen([f"{args.bin}/crash_states", root, f"{folder}/calls", out, str(args.states), str(seed)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        counts = {}
        for number, line in enumerate(states.stdout):
            crash = json.loads(line)["crash"]
            outcome = system.judge(f"{out}/{number}")
            counts[crash, outcome] = counts.get((crash, outcome), 0) + 1
            shutil.rmtree(f"{out}/{number}")
            print(file=states.stdin, flush=True)
        states.stdin.close()
        assert states.wait() == 0
        return counts, len(directory.calls)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--system", action="append", choices=["tutti", "torch", "torch-replace", "tensorflow"],
                        help="default: all that are installed")
    parser.add_argument("--states", type=int, default=5000, help="of each, at least")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--report", help="the page whose section is written")
    args = parser.parse_args()
    args.bin = os.path.abspath(args.bin)
    if shutil.which("strace") is None or not os.path.isdir("/dev/shm"):
        print("skipped: there is no strace")
        return SKIPPED
    rows, versions, failed = [], [], False
    for key, make in systems_of(args).items():
        if args.system and key not in args.system:
            continue
        system = make()
        if isinstance(system, Peer) and system.python is None:
            print(f"{system.name}: not installed")
            continue
        counts, calls = run(args, system)
        for crash in ("killed", "power lost"):
            found = {outcome: counts.get((crash, outcome), 0) for outcome in ("new", "old", "lost", "wrong")}
            total = sum(count for (which, _), count in counts.items() if which == crash)
            rows.append(f"| {system.name} | {calls} | {crash} | {total} | {found['new']} | {found['old']} | "
                        f"{found['lost']} | {found['wrong']} |")
            print(rows[-1], flush=True)
            failed = failed or key == "tutti" and (total == 0 or found["new"] + found["old"] != total)
        versions.append(system.version())
        system.close()
    if args.report:
        commit = subprocess.run(["git", "-C", os.path.dirname(SAVER), "rev-parse", "--short=12", "HEAD"],
                                capture_output=True, text=True, check=True).stdout.strip()
        text = SECTION.format(rows="\n".join(rows), versions=", ".join(dict.fromkeys(filter(None, versions))),
                              date=datetime.datetime.now(datetime.timezone.utc).date(), commit=commit)
        page_sections.write(args.report, "crashes", "tests/checkpoint/crash_peers.py", text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
