"""The models of the benchmarks: what every peer has to build, and what `tutti bench step` and
train_bench build.

mlp-small    784-100-10, relu, softmax cross-entropy
mlp-large    784-1024-1024-10, relu, softmax cross-entropy
mlp-97mb     784-4096-4096-1024-10, relu, softmax cross-entropy
cnn          28x28x1; conv 3x3 32, relu, max-pool 2x2, conv 3x3 64, relu, max-pool 2x2, dense 128,
             relu, dense 10; convolutions keep the size; softmax cross-entropy
transformer  one encoder block, post-norm, without dropout: 4 heads of self-attention, width 256,
             feed-forward 1024 with relu, sequence 128; loss: the mean of the squared result

Parameters are named here, initialised from one seed and given to every peer as numpy arrays in
TensorFlow's layouts (dense [in, out], filters HWIO), so that all of them compute the same losses.
"""

import math

import numpy

LEARNING_RATE = 0.01
HEADS = 4
WIDTH = 256
SEQUENCE = 128
FEED_FORWARD = 1024
LAYER_NORM_EPSILON = 1e-5

_DENSE = {"mlp-small": (784, 100, 10), "mlp-large": (784, 1024, 1024, 10),
          "mlp-97mb": (784, 4096, 4096, 1024, 10)}


def shapes(model):
    """The shape of each parameter, by name, in order."""
    if model in _DENSE:
        return _dense_chain(_DENSE[model])
    if model == "cnn":
        return {"conv0/filter": (3, 3, 1, 32), "conv0/bias": (32,),
                "conv1/filter": (3, 3, 32, 64), "conv1/bias": (64,),
                **_dense_chain((7 * 7 * 64, 128, 10))}
    return {  # query, key and value lie side by side in one matrix, as peers' own layers have it
        "qkv/weights": (WIDTH, 3 * WIDTH), "qkv/bias": (3 * WIDTH,),
        "output/weights": (WIDTH, WIDTH), "output/bias": (WIDTH,),
        "norm0/scale": (WIDTH,), "norm0/bias": (WIDTH,),
        "up/weights": (WIDTH, FEED_FORWARD), "up/bias": (FEED_FORWARD,),
        "down/weights": (FEED_FORWARD, WIDTH), "down/bias": (WIDTH,),
        "norm1/scale": (WIDTH,), "norm1/bias": (WIDTH,)}


def _dense_chain(sizes):
    found = {}
    for index, (inputs, units) in enumerate(zip(sizes, sizes[1:])):
        found[f"dense{index}/weights"] = (inputs, units)
        found[f"dense{index}/bias"] = (units,)
    return found


def dense_layers(model):
    """How many dense layers end the model (relu between them)."""
    return sum(name.startswith("dense") for name in shapes(model)) // 2


def parameters(model):
    """Glorot-uniform weights, zero biases, scales of one."""
    random = numpy.random.default_rng(1)
    values = {}
    for name, shape in shapes(model).items():
        if name.endswith("bias"):
            values[name] = numpy.zeros(shape, numpy.float32)
        elif name.endswith("scale"):
            values[name] = numpy.ones(shape, numpy.float32)
        else:
            field = math.prod(shape[:-2])
            limit = math.sqrt(6 / (field * (shape[-2] + shape[-1])))
            values[name] = random.uniform(-limit, limit, shape).astype(numpy.float32)
    return values


def data(model, batch, rank=0, workers=1):
    """One batch: x, and labels (None where the loss takes none); of several workers the one at
    `rank` gets its share of what a single one would get with a batch as large as all of theirs."""
    x, labels = _joined_data(model, batch * workers)
    share = slice(rank * batch, (rank + 1) * batch)
    return x[share], None if labels is None else labels[share]


def _joined_data(model, batch):
    random = numpy.random.default_rng(2)
    shape = {"cnn": (batch, 28, 28, 1), "transformer": (batch, SEQUENCE, WIDTH)}
    x = random.standard_normal(shape.get(model, (batch, 784))).astype(numpy.float32)
    labels = None if model == "transformer" else random.integers(0, 10, batch).astype(numpy.int32)
    return x, labels
