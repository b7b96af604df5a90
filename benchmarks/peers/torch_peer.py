"""PyTorch: eager, channels-last (cnn, resnet), torch.compile, and both together; of the lstm also its
own operator.

The update is one call over all parameters: of SGD quicker than torch.optim.SGD, otherwise that of
torch.optim, fused where this PyTorch can. Peak memory
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
    image = models.IMAGE_BEFORE_DENSE.get(models.base(model))
    for name, value in models.parameters(model).items():
        if image and name == "dense0/weights":  # its rows follow the image: HWC to CHW
            value = value.reshape(*image, -1).transpose(2, 0, 1, 3).reshape(value.shape)
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
    if models.base(model) in models.IMAGE_BEFORE_DENSE:
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


def _resnet_loss(weights, x, labels):
    del labels
    x = F.relu(F.conv2d(x, weights[0], weights[1], padding=1))
    for index in range(2, 2 + 4 * models.RESNET_BLOCKS, 4):
        inner = F.relu(F.conv2d(x, weights[index], weights[index + 1], padding=1))
        x = F.relu(x + F.conv2d(inner, weights[index + 2], weights[index + 3], padding=1))
    return _dense_chain(F.max_pool2d(x, 2).flatten(1), weights[-2:]).square().mean()


def _lstm_loss(weights, x, labels):
    """The products with the inputs of all steps are one."""
    del labels
    inputs, recurrent = weights
    from_inputs = F.linear(x, inputs)
    output = state = x.new_zeros(x.shape[1], models.LSTM_UNITS)
    for step in from_inputs.unbind(0):
        forget, use, candidate, give = (step + F.linear(output, recurrent)).chunk(4, 1)
        state = torch.sigmoid(forget) * state + torch.sigmoid(use) * torch.tanh(candidate)
        output = torch.sigmoid(give) * torch.tanh(state)
    return output.square().mean()


def _lstm_operator_weights(weights):
    """In the order of gates that torch.lstm has: input, forget, candidate, output."""
    found = []
    for weight in weights:
        forget, use, candidate, give = weight.detach().chunk(4, 0)
        found.append(torch.cat([use, forget, candidate, give]).requires_grad_())
    return found


def _lstm_operator_loss(weights, x, labels):
    del labels
    first = x.new_zeros(1, x.shape[1], models.LSTM_UNITS)
    _, output, _ = torch.lstm(x, (first, first), weights, False, 1, 0.0, True, False, False)
    return output.square().mean()


def _encoder_loss(weights, x, labels):
    del labels
    for first in range(0, len(weights), models.BLOCK_PARAMETERS):
        x = _encoder_block(weights[first:first + models.BLOCK_PARAMETERS], x)
    return x.square().mean()


def _encoder_block(weights, x):
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
    return F.layer_norm(x + hidden, (width,), scale1, bias1, epsilon)


def loss_function(model):
    return {"cnn": _cnn_loss, "resnet": _resnet_loss, "lstm": _lstm_loss, "transformer": _encoder_loss,
            "transformer-4": _encoder_loss}.get(models.base(model), _mlp_loss)


def _fused(make, weights, **options):
    try:
        return make(weights, fused=True, **options)
    except (RuntimeError, TypeError):  # this PyTorch has it for other devices only
        return make(weights, foreach=True, **options)


def update_function(model, weights):
    """update(gradients) of all weights at once."""
    if models.optimizer(model) == "sgd":
        return lambda gradients: torch._foreach_add_(weights, gradients, alpha=-models.LEARNING_RATE)
    adam = models.ADAM
    if models.optimizer(model) == "momentum":
        optimizer = _fused(torch.optim.SGD, weights, lr=models.LEARNING_RATE, momentum=models.MOMENTUM)
    else:
        optimizer = _fused(torch.optim.Adam, weights, lr=adam["rate"], betas=(adam["beta1"], adam["beta2"]),
                           eps=adam["epsilon"])

    def update(gradients):
        for weight, gradient in zip(weights, gradients):
            if gradient.stride() != weight.stride():  # fused updates walk through memory
                gradient = torch.empty_like(weight).copy_(gradient)
            weight.grad = gradient
        optimizer.step()

    return update


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
        if mode == "torch.lstm":
            weights, loss_of = _lstm_operator_weights(weights), _lstm_operator_loss
        if "compile" in mode:
            loss_of = torch.compile(loss_of, dynamic=False)
        update = update_function(model, weights)

        def step():
            loss = loss_of(weights, x, labels)
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                update(gradients)
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
