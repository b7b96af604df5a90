"""Trains, exports, and runs the exported model by `tutti predict`; Python opens its weights."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file


def run(program, *flags, code=0):
    done = subprocess.run([program, *flags], check=False, capture_output=True, text=True)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def relu(x):
    return numpy.maximum(x, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    args = parser.parse_args()
    tutti = os.path.join(args.bin, "tutti")
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        run(os.path.join(args.bin, "fashion_mnist"), "--model", "mlp", "--max-steps", "50",
            "--export", model, "--quiet")
        with open(os.path.join(model, "model.json"), encoding="utf-8") as file:
            signature = json.load(file)
        assert signature["version"] == 2 and list(signature["inputs"]) == ["image"], signature

        images = numpy.random.default_rng(5).integers(0, 256, (37, 28, 28, 1), dtype=numpy.uint8)
        paths = {name: os.path.join(folder, name + ".npy") for name in ("x", "logits", "class", "c++")}
        numpy.save(paths["x"], images)
        run(tutti, "predict", model, "--input", paths["x"], "--batch", "10", "--output",
            "logits=" + paths["logits"], "class=" + paths["class"])
        logits, classes = numpy.load(paths["logits"]), numpy.load(paths["class"])

        # Ten lines of C++ that know nothing of the model.
        run(os.path.join(args.bin, "predict"), model, paths["x"], paths["c++"])
        assert (numpy.load(paths["c++"]) == classes).all()

        # The same model in NumPy.
        weights = load_file(os.path.join(model, "weights.safetensors"))
        h = images.reshape(37, 784).astype(numpy.float32) / 255
        h = relu(h @ weights["dense/weights"] + weights["dense/bias"])
        expected = h @ weights["dense_1/weights"] + weights["dense_1/bias"]
        assert numpy.allclose(logits, expected, rtol=1e-3, atol=1e-4)
        assert (classes == expected.argmax(axis=1)).all()

        said = run(tutti, "predict", model)
        assert "image uint8 [?, 28, 28, 1]" in said and "class int32 [?]" in said, said
        said = run(tutti, "predict", model, "--input", paths["x"], "--rows", "2")
        assert "... 35 more" in said, said
        said = run(tutti, "predict", model, "--input", "picture=" + paths["x"], code=2)
        assert 'there is no "picture"; the model has image' in said, said
        said = run(tutti, "predict", model, "--input", paths["logits"], code=2)
        assert 'the input "image" is float32 [37, 10]; the model expects uint8' in said, said
    print("the exported model predicts as NumPy does")


if __name__ == "__main__":
    sys.exit(main())
