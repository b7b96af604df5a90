"""PyTorch: eager, channels-last (cnn), torch.compile, and both together.

The update is one fused call over all parameters, which is quicker than torch.optim.SGD. Peak memory
is what the profiler saw allocated and freed during one step in the steady state: the highest sum of
live bytes, plus parameters and data, which lived before. What oneDNN allocates by itself inside an
operator (weights in its own layouts, scratch) is not seen, so the figure is a lower bound.

Debian's python3-torch (1.13) works too, without torch.compile.
"""

import platform

import torch
import torch.nn.functional as F

import models
import worker


def weights_of(model, channels_last):
    """Parameters in PyTorch's layouts: dense [out, in], filters OIHW."""
    found = []
    for name, value in models.parameters(model).items():
        if model == "cnn" and name == "dense0/weights":  # its rows follow the image: HWC to CHW
            value = value.reshape(7, 7, 64, 128).transpose(2, 0, 1, 3).reshape(value.shape)
        tensor = torch.from_numpy(value)
        if name.endswith("weights"):
            tensor = tensor.T.contiguous()
        elif name.endswith("filter"):
            tensor = tensor.permute(3, 2, 0, 1).contiguous()
            if channels_last:
                tensor = tensor.contiguous(memory_format=torch.channels_last)
        found.append(tensor.clone(memory_format=torch.preserve_format).requires_grad_())
    return found


def batch_of(model, batch, channels_last, rank=0, workers=1):
    x, labels = models.data(model, batch, rank, workers)
    x = torch.from_numpy(x)
    if model == "cnn":
        x = x.permute(0, 3, 1, 2).contiguous()
        if channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
    return x, None if labels is None else torch.from_numpy(labels).long()


def _dense_chain(x, weights):
    for index in range(0, len(weights), 2):
        if index > 0:
            x = F.relu(x)
        x = F.linear(x, weights[index], weights[index + 1])
    return x


def _mlp_loss(weights, x, labels):
    return F.cross_entropy(_dense_chain(x, weights), labels)


def _cnn_loss(weights, x, labels):
    for index in (0, 2):
        x = F.max_pool2d(F.relu(F.conv2d(x, weights[index], weights[index + 1], padding=1)), 2)
    return F.cross_entropy(_dense_chain(x.flatten(1), weights[4:]), labels)


def _attention(query, key, value):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(query, key, value)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    return torch.softmax(scores, -1) @ value


def _encoder_loss(weights, x, labels):
    del labels
    (qkv, qkv_bias, out, out_bias, scale0, bias0, up, up_bias, down, down_bias, scale1,
     bias1) = weights
    batch, length, width = x.shape
    heads = F.linear(x, qkv, qkv_bias).view(batch, length, 3, models.HEADS, width // models.HEADS)
    query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
    context = _attention(query, key, value)
    context = context.transpose(1, 2).reshape(batch, length, width)
    epsilon = models.LAYER_NORM_EPSILON
    x = F.layer_norm(x + F.linear(context, out, out_bias), (width,), scale0, bias0, epsilon)
    hidden = F.linear(F.relu(F.linear(x, up, up_bias)), down, down_bias)
    return F.layer_norm(x + hidden, (width,), scale1, bias1, epsilon).square().mean()


def loss_function(model):
    return {"cnn": _cnn_loss, "transformer": _encoder_loss}.get(model, _mlp_loss)


class TorchPeer:
    def __init__(self, threads):
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)

    def info(self):
        return {"name": "PyTorch", "version": torch.__version__, "python": platform.python_version(),
                "from_debian": torch.__file__.startswith("/usr/lib/python3/")}

    def prepare(self, model, mode, batch):
        return self._step(model, mode, batch)[0]

    def _step(self, model, mode, batch):
        """The step, and what it keeps alive from one step to the next."""
        channels_last = "channels-last" in mode
        weights = weights_of(model, channels_last)
        x, labels = batch_of(model, batch, channels_last)
        loss_of = loss_function(model)
        if "compile" in mode:
            loss_of = torch.compile(loss_of, dynamic=False)

        def step():
            loss = loss_of(weights, x, labels)
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                torch._foreach_add_(weights, gradients, alpha=-models.LEARNING_RATE)
            return loss.detach().item()

        return step, [*weights, x, *([] if labels is None else [labels])]

    def peak(self, model, mode, batch):
        step, kept = self._step(model, mode, batch)
        for _ in range(3):
            step()
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            step()
        live = highest = 0
        for event in profile.profiler.kineto_results.events():
            if event.name() == "[memory]":
                live += event.nbytes()
                highest = max(highest, live)
        return highest + sum(tensor.numel() * tensor.element_size() for tensor in kept)


if __name__ == "__main__":
    worker.serve(TorchPeer(worker.threads()))
