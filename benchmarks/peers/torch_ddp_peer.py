"""PyTorch's DistributedDataParallel over Gloo: eager, channels-last (cnn), and torch.compile.

Set up as its documentation advises for speed: gradients live in the buckets, the graph is static,
and the update is one fused call. Where it is, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT tell.
"""

import datetime

import torch
import torch.distributed

import models
import torch_peer
import worker

TIMEOUT = datetime.timedelta(seconds=60)


class LossModule(torch.nn.Module):
    def __init__(self, model, channels_last):
        super().__init__()
        self._loss = torch_peer.loss_function(model)
        weights = torch_peer.weights_of(model, channels_last)
        self.weights = torch.nn.ParameterList(weight.detach() for weight in weights)

    def forward(self, x, labels):
        return self._loss(list(self.weights), x, labels)


class TorchDdpPeer(torch_peer.TorchPeer):
    def __init__(self, threads):
        super().__init__(threads)
        torch.distributed.init_process_group("gloo", timeout=TIMEOUT)

    def prepare(self, model, mode, batch):
        channels_last = "channels-last" in mode
        module = torch.nn.parallel.DistributedDataParallel(
            LossModule(model, channels_last), gradient_as_bucket_view=True,
            static_graph="compile" not in mode)
        x, labels = torch_peer.batch_of(model, batch, channels_last, torch.distributed.get_rank(),
                                        torch.distributed.get_world_size())
        optimizer = torch.optim.SGD(module.parameters(), lr=models.LEARNING_RATE, fused=True)
        run = torch.compile(module, dynamic=False) if "compile" in mode else module

        def step():
            optimizer.zero_grad()
            loss = run(x, labels)
            loss.backward()
            optimizer.step()
            return loss.detach().item()

        return step


if __name__ == "__main__":
    worker.serve(TorchDdpPeer(worker.threads()))
