#!/usr/bin/env python3
"""Saves a training on 3 parameter servers and goes on elsewhere: on 2 servers, with allreduce, alone, and back.

    tests/checkpoint/other_places.py --bin build/bin

From one checkpoint every job makes the same single step, whose gradients depend on the weights and whose result depends on
the optimizer's slots. A job with the same strategy must end with the same bits, others with the same values but for the
order of sums.
"""
import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

BATCH = 32  # of all workers
# Variables of 784 x 100 floats, and their slots, are split.
COMMON = ["--model", "mlp", "--save-every", "0", "--split-bytes", "20000"]


def command(args, strategy, workers, servers):
    program = [f"{args.bin}/fashion_mnist", "--strategy", strategy, "--batch-size", str(BATCH // workers), *COMMON]
    if strategy in ("local", "mirrored:2"):
        if strategy == "mirrored:2":
            program[program.index("--batch-size") + 1] = str(BATCH // 2)
        return program
    return [f"{args.bin}/tutti", "run", "--workers", str(workers), "--ps", str(servers), "--", *program]


def train(args, model, steps, strategy, workers=1, servers=0):
    done = subprocess.run([*command(args, strategy, workers, servers), "--model-dir", model, "--max-steps", str(steps)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180, check=False)
    assert done.returncode == 0, f"{strategy} on {servers} ps: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def tensors(args, model, step):
    """Every tensor of the checkpoint, whole, as bytes, and the number of files that it lay in."""
    checkpoint = f"{model}/checkpoint-{step:06}"
    single = f"{model}.{step}.safetensors"
    subprocess.run([f"{args.bin}/tutti", "convert", checkpoint, single], check=True, capture_output=True)
    with open(single, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = (entry["dtype"], tuple(entry["shape"]), data[8 + size + begin:8 + size + end])
    return found, sum(name.startswith("shard-") for name in os.listdir(checkpoint))


def check_same(found, expected, exact, what):
    assert set(found) == set(expected), f"{what}: {set(found) ^ set(expected)}"
    for name, (dtype, shape, data) in expected.items():
        assert found[name][:2] == (dtype, shape), f"{what}: {name} is {found[name][:2]}, expected {(dtype, shape)}"
        if exact or dtype != "F32":
            assert found[name][2] == data, f"{what}: {name} differs"
            continue
        count = len(data) // 4
        ours, theirs = struct.unpack(f"<{count}f", found[name][2]), struct.unpack(f"<{count}f", data)
        norm = sum(value * value for value in theirs) ** 0.5
        distance = sum((a - b) ** 2 for a, b in zip(ours, theirs)) ** 0.5
        assert distance <= 1e-5 * norm, f"{what}: {name} is {distance / norm:.3g} from what it should be"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", default="build/bin")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tutti-places-") as folder:
        saved = f"{folder}/saved"
        train(args, saved, 20, "ps-sync", 2, 3)
        first, shards = tensors(args, saved, 20)
        assert shards == 3, f"{shards} shards"
        # The weights, two slots for each, and the step.
        assert len(first) == 4 * 3 + 1, sorted(first)
        slots = [name for name in first if name.endswith(("/m", "/v"))]
        assert len(slots) == 8 and all(any(first[name][2]) for name in slots), slots

        def go_on(source, name, step, *job):
            model = f"{folder}/{name}"
            shutil.copytree(f"{folder}/{source}", model)
            text = train(args, model, step, *job)
            assert f"goes on from step {step - 1}" in text, text
            found, count = tensors(args, model, step)
            assert count == max(1, job[2] if len(job) > 2 else 1), f"{name}: {count} shards"
            return found

        expected = go_on("saved", "on-3", 21, "ps-sync", 2, 3)
        assert all(expected[name][2] != first[name][2] for name in slots)
        check_same(go_on("saved", "on-2", 21, "ps-sync", 2, 2), expected, True, "on 2 ps")
        check_same(go_on("saved", "on-1", 21, "ps-sync", 2, 1), expected, True, "on 1 ps")
        for strategy, workers in (("allreduce", 2), ("local", 1), ("mirrored:2", 1)):
            name = strategy.replace(":", "-")
            check_same(go_on("saved", name, 21, strategy, workers), expected, False, strategy)
            # And back.
            back = go_on(name, f"{name}-back", 22, "ps-sync", 2, 3)
            check_same(back, go_on(name, f"{name}-on", 22, strategy, workers), False, f"from {strategy} to 3 ps")
    print("a training goes on with its values and slots on other servers and strategies")
    return 0


if __name__ == "__main__":
    sys.exit(main())
