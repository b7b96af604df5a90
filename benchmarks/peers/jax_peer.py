"""JAX: jit, with the parameters donated so that the update is in place.

The number of threads is that of the cores to which the process is bound before it starts.
"""

import os
import platform

import worker

if worker.threads() == 1:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import jax  # the flags above have to be set before
import jax.numpy as jnp

import models


def _dense_chain(x, weights):
    for index in range(0, len(weights), 2):
        if index > 0:
            x = jax.nn.relu(x)
        x = x @ weights[index] + weights[index + 1]
    return x


def _cross_entropy(logits, labels):
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -picked.mean()


def _mlp_loss(weights, x, labels):
    return _cross_entropy(_dense_chain(x, weights), labels)


def _cnn_loss(weights, x, labels):
    for index in (0, 2):
        x = jax.lax.conv_general_dilated(x, weights[index], (1, 1), "SAME",
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + weights[index + 1])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return _cross_entropy(_dense_chain(x.reshape(x.shape[0], -1), weights[4:]), labels)


def _layer_norm(x, scale, bias):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + models.LAYER_NORM_EPSILON) * scale + bias


def _conv(x, weights):
    return weights[1] + jax.lax.conv_general_dilated(x, weights[0], (1, 1), "SAME",
                                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _max_pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _resnet_loss(weights, x, labels):
    del labels
    x = jax.nn.relu(_conv(x, weights[:2]))
    for index in range(2, 2 + 4 * models.RESNET_BLOCKS, 4):
        inner = jax.nn.relu(_conv(x, weights[index:index + 2]))
        x = jax.nn.relu(x + _conv(inner, weights[index + 2:index + 4]))
    x = _max_pool(x)
    return jnp.square(_dense_chain(x.reshape(x.shape[0], -1), weights[-2:])).mean()


def _lstm_loss(weights, x, labels):
    """The products with the inputs of all steps are one."""
    del labels
    first, recurrent = weights
    steps, batch, inputs = x.shape
    from_inputs = (x.reshape(steps * batch, inputs) @ first).reshape(steps, batch, -1)
    output = state = jnp.zeros((batch, models.LSTM_UNITS))
    for step in from_inputs:
        forget, use, candidate, give = jnp.split(step + output @ recurrent, 4, axis=1)
        state = jax.nn.sigmoid(forget) * state + jax.nn.sigmoid(use) * jnp.tanh(candidate)
        output = jax.nn.sigmoid(give) * jnp.tanh(state)
    return jnp.square(output).mean()


def _encoder_loss(weights, x, labels):
    del labels
    batch, length, width = x.shape
    x = x.reshape(batch * length, width)
    for first in range(0, len(weights), models.BLOCK_PARAMETERS):
        x = _encoder_block(weights[first:first + models.BLOCK_PARAMETERS], x, batch, length, width)
    return jnp.square(x).mean()


def _encoder_block(weights, x, batch, length, width):
    (qkv, qkv_bias, out, out_bias, scale0, bias0, up, up_bias, down, down_bias, scale1,
     bias1) = weights
    size = width // models.HEADS
    heads = (x @ qkv + qkv_bias).reshape(batch, length, 3, models.HEADS, size)
    query, key, value = heads.transpose(2, 0, 3, 1, 4)
    scores = jax.nn.softmax((query * size ** -0.5) @ key.swapaxes(-1, -2))
    context = (scores @ value).transpose(0, 2, 1, 3).reshape(batch * length, width)
    x = _layer_norm(x + context @ out + out_bias, scale0, bias0)
    hidden = jax.nn.relu(x @ up + up_bias) @ down + down_bias
    return _layer_norm(x + hidden, scale1, bias1)


_LOSS = {"cnn": _cnn_loss, "resnet": _resnet_loss, "lstm": _lstm_loss, "transformer": _encoder_loss,
         "transformer-4": _encoder_loss}


def _update_function(model, weights):
    """(what the optimizer keeps, update(kept, weights, gradients) -> (kept, weights))"""
    def zeros():
        return [jnp.zeros_like(weight) for weight in weights]

    def momentum(kept, weights, gradients):
        kept = [models.MOMENTUM * k + g for k, g in zip(kept, gradients)]
        return kept, [w - models.LEARNING_RATE * k for w, k in zip(weights, kept)]

    def adam(kept, weights, gradients):
        beta1, beta2, epsilon = (models.ADAM[key] for key in ("beta1", "beta2", "epsilon"))
        means, squares, powers = kept
        powers = powers * jnp.array([beta1, beta2])
        means = [beta1 * m + (1 - beta1) * g for m, g in zip(means, gradients)]
        squares = [beta2 * s + (1 - beta2) * g * g for s, g in zip(squares, gradients)]
        rate = models.ADAM["rate"] * jnp.sqrt(1 - powers[1]) / (1 - powers[0])
        scaled = epsilon * jnp.sqrt(1 - powers[1])
        weights = [w - rate * m / (jnp.sqrt(s) + scaled) for w, m, s in zip(weights, means, squares)]
        return (means, squares, powers), weights

    def descend(kept, weights, gradients):
        return kept, [w - models.LEARNING_RATE * g for w, g in zip(weights, gradients)]

    return {"momentum": lambda: (zeros(), momentum),
            "adam": lambda: ((zeros(), zeros(), jnp.ones(2)), adam),
            "sgd": lambda: ((), descend)}[models.optimizer(model)]()


class JaxPeer:
    def info(self):
        return {"name": "JAX", "version": jax.__version__, "python": platform.python_version()}

    def prepare(self, model, mode, batch):
        weights = [jnp.array(value) for value in models.parameters(model).values()]
        x, labels = models.data(model, batch)
        x = jnp.array(x)
        labels = None if labels is None else jnp.array(labels)
        loss_of = _LOSS.get(models.base(model), _mlp_loss)
        kept, update = _update_function(model, weights)

        def train(state, x, labels):
            kept, weights = state
            loss, gradients = jax.value_and_grad(loss_of)(weights, x, labels)
            return update(kept, weights, gradients), loss

        compiled = jax.jit(train, donate_argnums=0)
        state = (kept, weights)

        def step():
            nonlocal state
            state, loss = compiled(state, x, labels)
            jax.block_until_ready(state)
            return float(loss)

        return step


if __name__ == "__main__":
    worker.serve(JaxPeer())
