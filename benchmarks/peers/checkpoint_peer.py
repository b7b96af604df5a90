#!/usr/bin/env python3
"""Saves and loads a model with torch.save or safetensors, and prints one JSON object a figure.

    benchmarks/peers/checkpoint_peer.py torch|safetensors --bytes 500000000 --dir . [--rounds 1]

A save is timed until its file is durable (fsync); torch.save also without that, which is what a training waits for.
"""
import argparse
import json
import os
import statistics
import tempfile
import time

VARIABLE_BYTES = 16 << 20


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def torch_functions(count, elements):
    import torch
    state = {f"variable_{i}": torch.rand(elements) for i in range(count)}
    return (lambda path: torch.save(state, path)), torch.load


def safetensors_functions(count, elements):
    import numpy
    from safetensors.numpy import load_file, save_file
    generator = numpy.random.default_rng(1)
    state = {f"variable_{i}": generator.random(elements, dtype="float32") for i in range(count)}
    return (lambda path: save_file(state, path)), load_file


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("peer", choices=["torch", "safetensors"])
    parser.add_argument("--bytes", type=int, default=500_000_000)
    parser.add_argument("--dir", default=".")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    count = max(1, args.bytes // VARIABLE_BYTES)
    functions = torch_functions if args.peer == "torch" else safetensors_functions
    save, load = functions(count, args.bytes // count // 4)
    times = {"save": [], "save to durable": [], "restore": []}
    for round_number in range(args.rounds + 1):
        with tempfile.TemporaryDirectory(dir=args.dir) as folder:
            path = f"{folder}/model"
            begin = time.perf_counter()
            save(path)
            saved = time.perf_counter()
            sync(path)
            durable = time.perf_counter()
            loaded = load(path)
            restored = time.perf_counter()
            assert len(loaded) == count
        if round_number == 0:
            continue  # warms up
        times["save"].append(saved - begin)
        times["save to durable"].append(durable - begin)
        times["restore"].append(restored - durable)
    for what, values in times.items():
        print(json.dumps({"bench": "checkpoint", "case": f"{args.peer}, {what}", "value": statistics.median(values),
                          "unit": "s"}))


if __name__ == "__main__":
    main()
