"""OpenBLAS's rate for the product of `tutti bench gemm`, through the numpy of a peer's virtual environment.

    OPENBLAS_NUM_THREADS=1 openblas_peer.py SECONDS     # prints one JSON object: name, GFLOP/s
"""

import json
import sys

import numpy

import worker

SIZE = 2048


def name():
    blas = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    if "openblas" not in blas["name"]:
        raise SystemExit(f"numpy {numpy.__version__} has {blas['name']}, not OpenBLAS")
    return f"OpenBLAS {blas['version']}"


def main():
    random = numpy.random.default_rng(1)
    a, b = (random.random((SIZE, SIZE), numpy.float32) for _ in range(2))
    result = numpy.empty_like(a)
    seconds, _ = worker.median_seconds(lambda: numpy.matmul(a, b, out=result), float(sys.argv[1]))
    print(json.dumps({"name": name(), "value": 2e-9 * SIZE ** 3 / seconds}))


if __name__ == "__main__":
    main()
