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


def _encoder_loss(weights, x, labels):
    del labels
    (qkv, qkv_bias, out, out_bias, scale0, bias0, up, up_bias, down, down_bias, scale1,
     bias1) = weights
    batch, length, width = x.shape
    size = width // models.HEADS
    x = x.reshape(batch * length, width)
    heads = (x @ qkv + qkv_bias).reshape(batch, length, 3, models.HEADS, size)
    query, key, value = heads.transpose(2, 0, 3, 1, 4)
    scores = jax.nn.softmax((query * size ** -0.5) @ key.swapaxes(-1, -2))
    context = (scores @ value).transpose(0, 2, 1, 3).reshape(batch * length, width)
    x = _layer_norm(x + context @ out + out_bias, scale0, bias0)
    hidden = jax.nn.relu(x @ up + up_bias) @ down + down_bias
    return jnp.square(_layer_norm(x + hidden, scale1, bias1)).mean()


_LOSS = {"cnn": _cnn_loss, "transformer": _encoder_loss}


class JaxPeer:
    def info(self):
        return {"name": "JAX", "version": jax.__version__, "python": platform.python_version()}

    def prepare(self, model, mode, batch):
        weights = [jnp.array(value) for value in models.parameters(model).values()]
        x, labels = models.data(model, batch)
        x = jnp.array(x)
        labels = None if labels is None else jnp.array(labels)
        loss_of = _LOSS.get(model, _mlp_loss)

        def train(weights, x, labels):
            loss, gradients = jax.value_and_grad(loss_of)(weights, x, labels)
            return [w - models.LEARNING_RATE * g for w, g in zip(weights, gradients)], loss

        compiled = jax.jit(train, donate_argnums=0)

        def step():
            nonlocal weights
            weights, loss = compiled(weights, x, labels)
            jax.block_until_ready(weights)
            return float(loss)

        return step


if __name__ == "__main__":
    worker.serve(JaxPeer())
