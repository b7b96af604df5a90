"""The models of the benchmarks: what every peer has to build, and what `tutti bench step` and
train_bench build.

mlp-small    784-100-10, relu, softmax cross-entropy
mlp-large    784-1024-1024-10, relu, softmax cross-entropy
mlp-97mb     784-4096-4096-1024-10, relu, softmax cross-entropy
cnn          28x28x1; conv 3x3 32, relu, max-pool 2x2, conv 3x3 64, relu, max-pool 2x2, dense 128,
             relu, dense 10; convolutions keep the size; softmax cross-entropy
click        26 words a sample, looked up in one table of 10^6 rows of 16; 416-256-128-1, relu, sigmoid
             cross-entropy; words follow Zipf's law with the exponent 1.2
resnet       16x16x3; conv 3x3 32, relu, then two blocks of two such convolutions (relu between them)
             with a connection around them and relu behind it, max-pool 2x2, dense 10
lstm         a cell of 128 units over 64 inputs, unrolled 20 times, without bias; its gates are forget,
             input, candidate and output
transformer  one encoder block, post-norm, without dropout: 4 heads of self-attention, width 256,
             feed-forward 1024 with relu, sequence 128
transformer-4  four such blocks of width 128, feed-forward 512, sequence 64

Where no loss is named it is the mean of the squared result. The update is SGD; a name that ends with
-momentum or -adam is that model with another optimizer.

Parameters are named here, get values by a formula on whole numbers (`even`) and are given to every
peer as numpy arrays in TensorFlow's layouts (dense [in, out], filters HWIO). tools/tutti/even_values.h
has the same formula, so that Tutti and all peers compute the same losses.
"""

import math

import numpy

LEARNING_RATE = 0.01       # of SGD and momentum
MOMENTUM = 0.9
ADAM = {"rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
HEADS = 4
LAYER_NORM_EPSILON = 1e-5
LSTM_STEPS, LSTM_INPUTS, LSTM_UNITS = 20, 64, 128
RESNET_BLOCKS = 2
BLOCKS = {"transformer": 1, "transformer-4": 4}
BLOCK_PARAMETERS = 12
SEQUENCE_AND_WIDTH = {"transformer": (128, 256), "transformer-4": (64, 128)}
# What a dense layer gets whose inputs are an image: height, width, channels.
IMAGE_BEFORE_DENSE = {"cnn": (7, 7, 64), "resnet": (8, 8, 32)}
DATA_STREAM = 1000

_DENSE = {"mlp-small": (784, 100, 10), "mlp-large": (784, 1024, 1024, 10),
          "mlp-97mb": (784, 4096, 4096, 1024, 10), "click": (416, 256, 128, 1)}
# Of the click model: 26 look-ups a sample in one table; a few batches are made, and used in turn.
CLICK_WORDS, CLICK_ROWS, CLICK_WIDTH, CLICK_ZIPF, CLICK_BATCHES = 26, 1_000_000, 16, 1.2, 64


def base(model):
    """The model without its optimizer: cnn of cnn-adam."""
    return model.removesuffix("-momentum").removesuffix("-adam")


def optimizer(model):
    return model.removeprefix(base(model)).removeprefix("-") or "sgd"


def mixed(stream, count):
    """So many 32-bit numbers of a stream, all values equally likely: the finalizer of MurmurHash3."""
    h = numpy.arange(count, dtype=numpy.uint32) + numpy.uint32(stream * 0x9E3779B9 & 0xFFFFFFFF)
    h = (h ^ (h >> numpy.uint32(16))) * numpy.uint32(0x85EBCA6B)
    h = (h ^ (h >> numpy.uint32(13))) * numpy.uint32(0xC2B2AE35)
    return h ^ (h >> numpy.uint32(16))


def even(stream, shape, limit):
    """float32 in [-limit, limit)."""
    fraction = (mixed(stream, math.prod(shape)) >> numpy.uint32(8)).astype(numpy.float32)
    fraction *= numpy.float32(2.0 ** -24)
    return ((2 * fraction - 1) * numpy.float32(limit)).reshape(shape)


def shapes(model):
    """The shape of each parameter, by name, in order."""
    model = base(model)
    if model in _DENSE:
        return _dense_chain(_DENSE[model])
    if model == "cnn":
        return {"conv0/filter": (3, 3, 1, 32), "conv0/bias": (32,),
                "conv1/filter": (3, 3, 32, 64), "conv1/bias": (64,),
                **_dense_chain((7 * 7 * 64, 128, 10))}
    if model == "resnet":
        found = {"conv0/filter": (3, 3, 3, 32), "conv0/bias": (32,)}
        for index in range(1, 2 * RESNET_BLOCKS + 1):
            found |= {f"conv{index}/filter": (3, 3, 32, 32), f"conv{index}/bias": (32,)}
        return found | _dense_chain((8 * 8 * 32, 10))
    if model == "lstm":
        return {"inputs/weights": (LSTM_INPUTS, 4 * LSTM_UNITS), "outputs/weights": (LSTM_UNITS, 4 * LSTM_UNITS)}
    width, found = SEQUENCE_AND_WIDTH[model][1], {}
    for block in range(BLOCKS[model]):
        layers = {  # query, key and value lie side by side in one matrix, as peers' own layers have it
            "qkv/weights": (width, 3 * width), "qkv/bias": (3 * width,),
            "output/weights": (width, width), "output/bias": (width,),
            "norm0/scale": (width,), "norm0/bias": (width,),
            "up/weights": (width, 4 * width), "up/bias": (4 * width,),
            "down/weights": (4 * width, width), "down/bias": (width,),
            "norm1/scale": (width,), "norm1/bias": (width,)}
        found |= {f"block{block}/{name}": shape for name, shape in layers.items()}
    return found


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
    """Glorot-uniform weights, zero biases, scales of one. Every matrix and every filter has a stream of
    its own; query, key and value have three."""
    values, stream = {}, 0

    def glorot(shape):
        nonlocal stream
        stream += 1
        return even(stream, shape, math.sqrt(6 / (math.prod(shape[:-2]) * (shape[-2] + shape[-1]))))

    for name, shape in shapes(model).items():
        if name.endswith("bias"):
            values[name] = numpy.zeros(shape, numpy.float32)
        elif name.endswith("scale"):
            values[name] = numpy.ones(shape, numpy.float32)
        elif name.endswith("qkv/weights"):
            values[name] = numpy.concatenate([glorot((shape[0], shape[1] // 3)) for _ in range(3)], axis=1)
        else:
            values[name] = glorot(shape)
    return values


def data(model, batch, rank=0, workers=1):
    """One batch: x, and labels (None where the loss takes none); of several workers the one at
    `rank` gets its share of what a single one would get with a batch as large as all of theirs."""
    x, labels = _joined_data(model, batch * workers)
    if workers == 1:
        return x, labels
    share = slice(rank * batch, (rank + 1) * batch)
    return x[share], None if labels is None else labels[share]


def clicks(batch, seed):
    """Words [CLICK_BATCHES, batch, 26] and whether each sample was clicked on."""
    random = numpy.random.default_rng(seed)
    ranks = numpy.arange(1, CLICK_ROWS + 1, dtype=numpy.float64)
    chances = numpy.cumsum(ranks ** -CLICK_ZIPF)
    drawn = numpy.searchsorted(chances, random.random((CLICK_BATCHES, batch, CLICK_WORDS)) * chances[-1])
    # Neighbours in rank lie apart in the table, as the words of a dictionary do.
    words = (drawn * 7919 % CLICK_ROWS).astype(numpy.int64)
    return words, random.integers(0, 2, (CLICK_BATCHES, batch)).astype(numpy.float32)


def _joined_data(model, batch):
    model = base(model)
    limit = math.sqrt(3)  # of variance 1
    shape = {"lstm": (LSTM_STEPS, batch, LSTM_INPUTS), "cnn": (batch, 28, 28, 1), "resnet": (batch, 16, 16, 3),
             **{name: (batch, *sizes) for name, sizes in SEQUENCE_AND_WIDTH.items()}}
    x = even(DATA_STREAM, shape.get(model, (batch, 784)), limit)
    labelled = model in _DENSE or model == "cnn"
    return x, (mixed(DATA_STREAM + 1, batch) % numpy.uint32(10)).astype(numpy.int32) if labelled else None
