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


def _encoder_flops(batch, length=128, width=256, blocks=1):
    projections = length * 12 * width * width
    scores = 2 * length * length * width
    # Of all inputs only those of the first block get no gradient: of query, key and value.
    return 2.0 * batch * (3 * blocks * (projections + scores) - 3 * length * width * width)


def _resnet_flops(batch):
    first, others = 16 * 16 * 9 * 3 * 32, 4 * 16 * 16 * 9 * 32 * 32
    return 2.0 * batch * (2 * first + 3 * (others + 8 * 8 * 32 * 10))


def _lstm_flops(batch, steps=20, inputs=64, units=128):
    # No gradient flows into the inputs.
    return 2.0 * batch * steps * 4 * units * (3 * (inputs + units) - inputs)


_LARGE, _CNN = "MLP 784-1024-1024-10, batch 128", "CNN conv32-pool-conv64-pool-dense128-10 on 28x28, batch 64"
_LARGE_FLOPS = _dense_flops(128, (784, 1024, 1024, 10))
# Of the models without a promise the target is to be ahead of the best peer.
MODELS = (
    Model("mlp-small", "MLP 784-100-10, batch 32", 32, 1.4, _dense_flops(32, (784, 100, 10))),
    Model("mlp-large", _LARGE, 128, 1.05, _LARGE_FLOPS),
    Model("mlp-large-momentum", f"{_LARGE}, Momentum", 128, 1.0, _LARGE_FLOPS),
    Model("mlp-large-adam", f"{_LARGE}, Adam", 128, 1.0, _LARGE_FLOPS),
    Model("cnn", _CNN, 64, 1.25, _cnn_flops(64)),
    Model("cnn-momentum", f"{_CNN}, Momentum", 64, 1.0, _cnn_flops(64)),
    Model("cnn-adam", f"{_CNN}, Adam", 64, 1.0, _cnn_flops(64)),
    Model("resnet", "ResNet-like CNN, 5 convolutions of 32 on 16x16 with 2 connections around pairs, batch 32", 32,
          1.0, _resnet_flops(32)),
    Model("lstm", "LSTM cell of 128 units over 64 inputs, 20 steps unrolled, batch 32", 32, 1.0, _lstm_flops(32)),
    Model("transformer", "transformer encoder block, sequence 128, width 256, 4 heads, batch 8", 8,
          1.1, _encoder_flops(8)),
    Model("transformer-4", "4 transformer encoder blocks, sequence 64, width 128, 4 heads, batch 8", 8,
          1.0, _encoder_flops(8, 64, 128, 4)),
)

GEMM_SHARE_TARGET = 0.85        # of mlp-large
PEAK_BATCH = 256                # of the cnn, for peak memory
PEAK_TARGET = 0.8               # at most this much of PyTorch's
NULL_TARGET = 30e6              # nodes a second
RUN_TARGET_US = 2.0
CUT_TARGET_US = 5.0             # more for a step over two devices of a process
STARTUP_TARGET_MS = 50.0


@dataclasses.dataclass(frozen=True)
class Peer:
    """A framework, run by peers/<install>_peer.py, or by `script` where it trains with others.
    `environment` is added to that of this process."""
    key: str
    label: str
    install: str  # the virtual environment
    modes: tuple
    more_modes: tuple = ()  # (model without its optimizer, modes) pairs
    strategy: str = ""  # how it trains with others
    script: str = ""
    environment: tuple = ()

    def modes_of(self, model):
        model = model.removesuffix("-momentum").removesuffix("-adam")
        return self.modes + dict(self.more_modes).get(model, ())


PEERS = (
    Peer("torch", "PyTorch", "torch", ("eager", "compile"),
         (("cnn", ("channels-last", "compile, channels-last")),
          ("resnet", ("channels-last", "compile, channels-last")), ("lstm", ("torch.lstm",)))),
    Peer("tensorflow", "TensorFlow", "tensorflow", ("function", "xla")),
    Peer("tensorflow-onednn", "TensorFlow", "tensorflow", ("function, oneDNN",),
         environment=(("TF_ENABLE_ONEDNN_OPTS", "1"),)),
    Peer("jax", "JAX", "jax", ("jit",)),
)
