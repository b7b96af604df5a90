"""Trains a few steps and reads the event files back by TensorBoard's own event accumulator."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

STEPS = 60
EVERY = 20


def train(args, model_dir):
    flags = ["--model", "mlp", "--max-steps", str(STEPS), "--summary-every", str(EVERY),
             "--eval-every", "30", "--histograms", "--show", "learning-rate,gradient-norm,metrics",
             "--model-dir", model_dir, "--quiet"]
    done = subprocess.run([os.path.join(args.bin, "fashion_mnist"), *flags], check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and done.stderr == "", (done.stdout, done.stderr)


def load(folder):
    accumulator = EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0})
    accumulator.Reload()
    return accumulator


def lines(model_dir, kind):
    with open(os.path.join(model_dir, "metrics.jsonl"), encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if line["kind"] == kind]


def check_scalars(events, log, names):
    """Every scalar has the steps and values that metrics.jsonl has."""
    assert set(names) <= set(events.Tags()["scalars"]), events.Tags()
    for name in names:
        found = [(event.step, event.value) for event in events.Scalars(name)]
        expected = [(line["step"], line[name]) for line in log]
        assert [step for step, _ in found] == [step for step, _ in expected], (name, found)
        for (_, value), (_, wanted) in zip(found, expected):
            assert math.isclose(value, wanted, rel_tol=1e-6), (name, value, wanted)


def check_histograms(events):
    tags = events.Tags()["histograms"]
    for tag in ("weights/dense/weights", "gradients/dense/weights", "weights/dense_1/bias"):
        assert tag in tags, tags
    for event in events.Histograms("weights/dense/weights"):
        value = event.histogram_value
        assert value.num == 784 * 100, value.num
        assert math.isclose(sum(value.bucket), value.num), value
        assert value.min < 0 < value.max
        assert list(value.bucket_limit) == sorted(value.bucket_limit)
    assert [event.step for event in events.Histograms("gradients/dense/weights")] == [20, 40, 60]


def check_graph(events):
    nodes = {node.name: node for node in events.Graph().node}
    product = nodes["dense/MatMul"]
    assert product.op == "MatMul"
    assert product.input[1] == "dense/weights", product.input
    shape = product.attr["_output_shapes"].list.shape[0]
    assert [dim.size for dim in shape.dim] == [-1, 100], shape


def check_text(events):
    assert "configuration" in events.Tags()["tensors"], events.Tags()
    text = events.Tensors("configuration")[0].tensor_proto.string_val[0].decode()
    assert "summary-every" in text and "flag" in text and "batch-size" in text, text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as model_dir:
        train(args, model_dir)
        events = load(model_dir)
        log = lines(model_dir, "train")
        assert [line["step"] for line in log] == [20, 40, 60], log
        assert log[-1]["loss"] < log[0]["loss"], log
        check_scalars(events, log, ["loss", "learning_rate", "gradient_norm", "train_accuracy",
                                    "steps_per_second", "samples_per_second",
                                    "step_milliseconds"])
        check_histograms(events)
        check_graph(events)
        check_text(events)
        evaluations = lines(model_dir, "eval")
        assert [line["step"] for line in evaluations] == [30, 60], evaluations
        check_scalars(load(os.path.join(model_dir, "eval")), evaluations, ["loss", "accuracy"])
    print("TensorBoard reads all of it")


if __name__ == "__main__":
    sys.exit(main())
