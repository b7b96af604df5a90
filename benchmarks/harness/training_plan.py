"""What is compared in training with several workers: models, contenders, and the targets."""

import dataclasses

from harness.plan import Peer

WORKERS = 2  # each on a core of its own


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    title: str
    batch: int         # samples a worker
    target: float      # at least this many times the rate of the best peer
    efficiency: float  # at least this share of what independent workers reach; 0: nothing promised


MODELS = (
    Model("mlp-small", "MLP 784-100-10, batch 32 a worker", 32, 8, 0),
    Model("cnn", "CNN conv32-pool-conv64-pool-dense128-10 on 28x28, batch 64 a worker", 64, 1.4,
          0.9),
    Model("mlp-97mb", "MLP 784-4096-4096-1024-10 (97 MB), batch 64 a worker", 64, 2, 0.85),
)


PEERS = (
    Peer("torch", "PyTorch", "torch", ("eager", "compile"),
         (("cnn", ("channels-last",)),),
         strategy="DistributedDataParallel, Gloo", script="torch_ddp_peer.py"),
    Peer("tensorflow", "TensorFlow", "tensorflow", ("function",),
         strategy="MultiWorkerMirroredStrategy", script="tensorflow_multiworker_peer.py"),
    Peer("tensorflow-onednn", "TensorFlow", "tensorflow", ("function, oneDNN",),
         strategy="MultiWorkerMirroredStrategy", script="tensorflow_multiworker_peer.py",
         environment=(("TF_ENABLE_ONEDNN_OPTS", "1"),)),
)

# How a contender works: with others, alone beside an idle core, or alone beside others like it.
TOGETHER, ALONE, INDEPENDENT = "together", "alone", "independent"
# And Tutti besides: towers on devices of one process, or workers that were started by hand and find each
# other through TF_CONFIG, each free to use all cores.
TOWERS, BY_HAND = "towers", "by hand"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One way of Tutti against another one, of the same model."""
    title: str
    model: Model
    way: str
    against: str
    target: float  # at least this many times the rate of the other one


_BY_NAME = {model.name: model for model in MODELS}
_TABLES = Model("tables", "26 look-up tables of 10,000 rows, batch 256 a worker", 256, 0, 0)
COMPARISONS = (
    Comparison("`mirrored:2`, CNN: 2 devices of one core, to 2 independent processes", _BY_NAME["cnn"], TOWERS,
               INDEPENDENT, 0.95),
    Comparison("26 embedding tables with sparse gradients: 2 workers, to one", _TABLES, TOGETHER, ALONE, 1.0),
    Comparison("small MLP: 2 workers started by hand and not pinned, to pinned ones", _BY_NAME["mlp-small"], BY_HAND,
               TOGETHER, 0.9),
    Comparison("CNN: 2 workers started by hand and not pinned, to pinned ones", _BY_NAME["cnn"], BY_HAND, TOGETHER,
               0.9),
)
# Start, one step and end of a training of 83 million parameters.
START_MODEL = Model("mlp-330mb", "MLP 784-8192-8192-1024-10, batch 8 a worker", 8, 0, 0)
START_TARGET = 2.0  # two workers may take this many times one's time
