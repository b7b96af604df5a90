"""What is compared: models, contenders, and the targets that docs/benchmarks.md is held against."""

import dataclasses

THREADS = (1, 2)


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    title: str
    batch: int
    target: float  # at least this many times as fast as the best peer
    flops: float   # multiplications and additions of the matrix products of one step


def _dense_flops(batch, sizes):
    """Forward, and backward into weights and inputs; nothing flows into the data."""
    products = [inputs * units for inputs, units in zip(sizes, sizes[1:])]
    return 2.0 * batch * (3 * sum(products) - products[0])


def _cnn_flops(batch):
    conv0, conv1 = 28 * 28 * 9 * 32, 14 * 14 * 9 * 32 * 64
    dense = 7 * 7 * 64 * 128 + 128 * 10
    return 2.0 * batch * (2 * conv0 + 3 * conv1 + 3 * dense)


def _encoder_flops(batch, length=128, width=256, hidden=1024):
    projections = length * (4 * width * width + 2 * width * hidden)
    scores = 2 * length * length * width
    # Of all inputs only the block's own gets no gradient: that of query, key and value.
    return 2.0 * batch * (3 * (projections + scores) - 3 * length * width * width)


MODELS = (
    Model("mlp-small", "MLP 784-100-10, batch 32", 32, 1.4, _dense_flops(32, (784, 100, 10))),
    Model("mlp-large", "MLP 784-1024-1024-10, batch 128", 128, 1.05,
          _dense_flops(128, (784, 1024, 1024, 10))),
    Model("cnn", "CNN conv32-pool-conv64-pool-dense128-10 on 28x28, batch 64", 64, 1.25,
          _cnn_flops(64)),
    Model("transformer", "transformer encoder block, sequence 128, width 256, 4 heads, batch 8", 8,
          1.1, _encoder_flops(8)),
)

GEMM_SHARE_TARGET = 0.85        # of mlp-large
PEAK_BATCH = 256                # of the cnn, for peak memory
PEAK_TARGET = 0.8               # at most this much of PyTorch's
NULL_TARGET = 30e6              # nodes a second
RUN_TARGET_US = 2.0
STARTUP_TARGET_MS = 50.0


@dataclasses.dataclass(frozen=True)
class Peer:
    """A framework, run by peers/<install>_peer.py, or by `script` where it trains with others.
    `environment` is added to that of this process."""
    key: str
    label: str
    install: str  # the virtual environment
    modes: tuple
    cnn_modes: tuple = ()
    strategy: str = ""  # how it trains with others
    script: str = ""
    environment: tuple = ()
    # Not how the framework comes: shown beside the others, but no target was set against it.
    tuned: bool = False

    def modes_of(self, model):
        return self.modes + (self.cnn_modes if model == "cnn" else ())


PEERS = (
    Peer("torch", "PyTorch", "torch", ("eager", "compile"),
         ("channels-last", "compile, channels-last")),
    Peer("tensorflow", "TensorFlow", "tensorflow", ("function", "xla")),
    Peer("tensorflow-onednn", "TensorFlow", "tensorflow", ("function, oneDNN",),
         environment=(("TF_ENABLE_ONEDNN_OPTS", "1"),), tuned=True),
    Peer("jax", "JAX", "jax", ("jit",)),
)
