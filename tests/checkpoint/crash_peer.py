"""Saves a model with torch.save or TensorFlow, and says what a directory has. Used by crash_peers.py.

    crash_peer.py torch|torch-replace|tensorflow save DIRECTORY STEP
    crash_peer.py torch|torch-replace|tensorflow judge     reads directories, one a line; answers new, old, lost or wrong
"""
import os
import sys

TENSORS, ELEMENTS = 4, 20_000


def outcome_of(values):
    """Of the first and last element and the sum of each tensor."""
    for step, outcome in ((20, "new"), (10, "old")):
        if len(values) == TENSORS and all(value == [step + i, step + i, (step + i) * ELEMENTS]
                                          for i, value in enumerate(values)):
            return outcome
    return "wrong"


class Torch:
    def __init__(self, replaces):
        import torch
        self.torch, self.replaces = torch, replaces

    def save(self, directory, step):
        os.makedirs(directory, exist_ok=True)
        state = {f"tensor_{i}": self.torch.full((ELEMENTS,), float(step + i)) for i in range(TENSORS)}
        if not self.replaces:
            self.torch.save(state, f"{directory}/model.pt")
            return
        self.torch.save(state, f"{directory}/model.pt.tmp")
        os.replace(f"{directory}/model.pt.tmp", f"{directory}/model.pt")

    def load(self, directory):
        state = self.torch.load(f"{directory}/model.pt")
        return [[float(tensor[0]), float(tensor[-1]), float(tensor.double().sum())] for tensor in state.values()]

    def version(self):
        return f"PyTorch {self.torch.__version__}"


class TensorFlow:
    def __init__(self):
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import tensorflow
        self.tf = tensorflow

    def save(self, directory, step):
        tensors = {f"tensor_{i}": self.tf.Variable(self.tf.zeros([ELEMENTS])) for i in range(TENSORS)}
        checkpoint = self.tf.train.Checkpoint(**tensors)
        manager = self.tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)
        checkpoint.restore(manager.latest_checkpoint)
        for i in range(TENSORS):
            tensors[f"tensor_{i}"].assign(self.tf.fill([ELEMENTS], float(step + i)))
        manager.save(checkpoint_number=step)

    def load(self, directory):
        reader = self.tf.train.load_checkpoint(self.tf.train.latest_checkpoint(directory))
        values = [reader.get_tensor(f"tensor_{i}/.ATTRIBUTES/VARIABLE_VALUE") for i in range(TENSORS)]
        return [[float(value[0]), float(value[-1]), float(value.astype("float64").sum())] for value in values]

    def version(self):
        return f"TensorFlow {self.tf.__version__}"


def judge(system, directory):
    try:
        return outcome_of(system.load(directory))
    except Exception:  # whatever the reader says no with
        return "lost"


def main():
    mode, command = sys.argv[1:3]
    system = TensorFlow() if mode == "tensorflow" else Torch(mode == "torch-replace")
    if command == "save":
        system.save(sys.argv[3], int(sys.argv[4]))
        return
    for line in sys.stdin:
        word = line.strip()
        print(system.version() if word == "version" else judge(system, word), flush=True)


if __name__ == "__main__":
    main()
