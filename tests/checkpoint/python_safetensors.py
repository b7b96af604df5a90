#!/usr/bin/env python3
"""Opens what Tutti writes with Python's own `safetensors` package, and the other way round.

    tests/checkpoint/python_safetensors.py --bin build/bin --environment build/python-safetensors

Installs the package (requirements.txt) into that virtual environment first; ends with 77 where it cannot be had.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77


def enter(environment):
    """Starts this script again under the Python of the environment, which is made if there is none."""
    python = f"{environment}/bin/python"
    ready = f"{environment}/ready"
    if not os.path.exists(ready):
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r",
                            f"{FOLDER}/requirements.txt"], check=True)
        except subprocess.CalledProcessError as error:
            print(f"skipped: {error}")
            sys.exit(SKIPPED)
        with open(ready, "w", encoding="utf-8"):
            pass
    os.execv(python, [python, __file__, *sys.argv[1:], "--inside"])


def tutti(args, *words, code=0):
    done = subprocess.run([f"{args.bin}/tutti", *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, f"tutti {words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def read_ours(args, folder):
    import numpy
    from safetensors import safe_open
    from safetensors.numpy import load_file
    model = f"{folder}/model"
    subprocess.run([f"{args.bin}/fashion_mnist", "--model", "mlp", "--max-steps", "3", "--model-dir", model], check=True,
                   capture_output=True)
    listed = json.loads(tutti(args, "inspect", model, "--json"))
    assert listed["step"] == 3 and listed["verdict"] == "all checksums are right", listed
    tutti(args, "convert", model, f"{folder}/all.safetensors")
    tutti(args, "convert", "--weights", model, f"{folder}/weights.safetensors")
    loaded = load_file(f"{folder}/all.safetensors")
    shard = load_file(f"{model}/checkpoint-000003/shard-00000.safetensors")
    assert {entry["name"] for entry in listed["tensors"]} == set(loaded) == set(shard)
    for entry in listed["tensors"]:
        value = loaded[entry["name"]]
        assert list(value.shape) == entry["shape"] and value.dtype == entry["dtype"], entry
        assert value.tobytes() == shard[entry["name"]].tobytes(), entry
    assert loaded["global_step"] == 3
    assert numpy.isfinite(loaded["dense/weights"]).all() and loaded["dense/weights"].std() > 0.01
    with safe_open(f"{folder}/weights.safetensors", "numpy") as file:
        assert sorted(file.keys()) == ["dense/bias", "dense/weights", "dense_1/bias", "dense_1/weights"], file.keys()
        assert file.metadata()["tutti.step"] == "3"
    print(f"Python reads {len(loaded)} tensors as we wrote them")


def write_for_ours(args, folder):
    import numpy
    from safetensors.numpy import load_file, save_file
    generator = numpy.random.default_rng(1)
    dtypes = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    tensors = {f"group/{name}": generator.integers(0, 100, size=(3, 5)).astype(name) for name in dtypes}
    tensors |= {"flags": numpy.array([True, False]), "scalar": numpy.array(2.5, dtype="float32"),
                "empty": numpy.zeros((0, 4), dtype="float32")}
    save_file(tensors, f"{folder}/python.safetensors", metadata={"made by": "Python"})
    assert "made by: Python" in tutti(args, "inspect", f"{folder}/python.safetensors")
    tutti(args, "convert", f"{folder}/python.safetensors", f"{folder}/made", "--step", "17")
    assert "step 17" in tutti(args, "inspect", f"{folder}/made")
    tutti(args, "convert", f"{folder}/made", f"{folder}/back.safetensors")
    back = load_file(f"{folder}/back.safetensors")
    assert set(back) == set(tensors)
    for name, value in tensors.items():
        assert back[name].dtype == value.dtype and back[name].shape == value.shape, name
        assert back[name].tobytes() == value.tobytes(), name
    assert "File exists" in tutti(args, "convert", f"{folder}/made", f"{folder}/back.safetensors", code=1)
    print(f"we read {len(tensors)} tensors as Python wrote them")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--environment", default="build/python-safetensors")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        enter(args.environment)
    with tempfile.TemporaryDirectory(prefix="tutti-safetensors-") as folder:
        read_ours(args, folder)
        write_for_ours(args, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
