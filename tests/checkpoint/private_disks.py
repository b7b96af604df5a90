#!/usr/bin/env python3
"""Saves and resumes a training whose parameter servers do not see the model directory of the chief.

    tests/checkpoint/private_disks.py --bin build/bin

Each server has a mount namespace of its own, in which another file system hides the directory. Ends with 77 where there are
no such namespaces.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile

SKIPPED = 77


def hidden(folder):
    """Runs a command to which `folder` is empty."""
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none "{folder}" && exec "$@"', "-"]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    return sockets, [each.getsockname()[1] for each in sockets]


def train(args, folder, model, steps, private):
    held, ports = free_ports(4)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    cluster = {"worker": addresses[:2], "ps": addresses[2:]}
    started = []
    for job, indices in (("ps", (0, 1)), ("worker", (0, 1))):
        for index in indices:
            config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
            command = [f"{args.bin}/fashion_mnist", "--model", "mlp", "--strategy", "ps-sync", "--batch-size", "16",
                       "--split-bytes", "20000", "--save-every", "10", "--max-steps", str(steps), "--model-dir", model,
                       "--verbose"]
            hides = hidden(folder) if private and job == "ps" else []
            started.append(subprocess.Popen([*hides, *command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                            env=dict(os.environ, TF_CONFIG=config, TUTTI_JOB_TOKEN="secret")))
    texts = []
    for task in started:
        try:
            texts.append(task.communicate(timeout=120)[0])
        finally:
            task.kill()
        assert task.returncode == 0, f"exit code {task.returncode}:\n{texts[-1]}"
    for each in held:
        each.close()
    return texts[2]  # of the chief


def saved(args, model, step):
    """The bytes of all tensors of a checkpoint, which is whole."""
    checkpoint = f"{model}/checkpoint-{step:06}"
    shards = [name for name in os.listdir(checkpoint) if name.startswith("shard-")]
    assert len(shards) == 2, os.listdir(checkpoint)
    text = subprocess.run([f"{args.bin}/tutti", "inspect", checkpoint], check=True, capture_output=True, text=True).stdout
    assert "all checksums are right" in text, text
    subprocess.run([f"{args.bin}/tutti", "convert", checkpoint, f"{model}.{step}.safetensors"], check=True, capture_output=True)
    with open(f"{model}.{step}.safetensors", "rb") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", default="build/bin")
    args = parser.parse_args()
    args.bin = os.path.abspath(args.bin)
    with tempfile.TemporaryDirectory(prefix="tutti-private-") as folder:
        if subprocess.run([*hidden(folder), "true"], capture_output=True, check=False).returncode != 0:
            print("skipped: there are no mount namespaces here")
            return SKIPPED
        shared = f"{folder}/shared"
        # The learning rate follows --max-steps.
        for steps in (20, 40):
            train(args, folder, shared, steps, False)
        private = f"{folder}/private"
        text = train(args, folder, private, 20, True)
        for index in (0, 1):
            assert f"/job:ps/task:{index}/cpu:0 does not see {private}; its variables travel here" in text, text
        saved(args, private, 20)
        text = train(args, folder, private, 40, True)
        assert "goes on from step 20" in text and "failed" not in text, text
        assert saved(args, private, 40) == saved(args, shared, 40), "the training went on with other values"
    print("a training whose servers do not see its directory saves and resumes with the same bits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
