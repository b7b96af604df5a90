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
    Model("cnn", "CNN conv32-pool-conv64-pool-dense128-10 on 28x28, batch 64 a worker", 64, 1.6,
          0.9),
    Model("mlp-97mb", "MLP 784-4096-4096-1024-10 (97 MB), batch 64 a worker", 64, 2, 0.85),
)


PEERS = (
    Peer("torch", "PyTorch", "torch", ("eager", "compile"), ("channels-last",),
         strategy="DistributedDataParallel, Gloo", script="torch_ddp_peer.py"),
    Peer("tensorflow", "TensorFlow", "tensorflow", ("function",),
         strategy="MultiWorkerMirroredStrategy", script="tensorflow_multiworker_peer.py"),
    Peer("tensorflow-onednn", "TensorFlow", "tensorflow", ("function, oneDNN",),
         strategy="MultiWorkerMirroredStrategy", script="tensorflow_multiworker_peer.py",
         environment=(("TF_ENABLE_ONEDNN_OPTS", "1"),), tuned=True),
)

# How a contender works: with others, alone beside an idle core, or alone beside others like it.
TOGETHER, ALONE, INDEPENDENT = "together", "alone", "independent"
