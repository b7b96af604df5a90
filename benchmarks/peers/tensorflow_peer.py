"""TensorFlow: tf.function with and without XLA, and its executor on nodes that do nothing."""

import platform

import tensorflow as tf

import models
import worker

NULL_NODES = 10000


def _dense_chain(x, weights):
    for index in range(0, len(weights), 2):
        if index > 0:
            x = tf.nn.relu(x)
        x = tf.nn.bias_add(tf.matmul(x, weights[index]), weights[index + 1])
    return x


def _cross_entropy(logits, labels):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses)


def _mlp_loss(weights, x, labels):
    return _cross_entropy(_dense_chain(x, weights), labels)


def _cnn_loss(weights, x, labels):
    for index in (0, 2):
        x = tf.nn.conv2d(x, weights[index], strides=1, padding="SAME")
        x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.bias_add(x, weights[index + 1])), 2, 2, "VALID")
    return _cross_entropy(_dense_chain(tf.reshape(x, [x.shape[0], -1]), weights[4:]), labels)


def _layer_norm(x, scale, bias):
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, bias, scale, models.LAYER_NORM_EPSILON)


def _conv(x, weights):
    return tf.nn.bias_add(tf.nn.conv2d(x, weights[0], strides=1, padding="SAME"), weights[1])


def _resnet_loss(weights, x, labels):
    del labels
    x = tf.nn.relu(_conv(x, weights[:2]))
    for index in range(2, 2 + 4 * models.RESNET_BLOCKS, 4):
        inner = tf.nn.relu(_conv(x, weights[index:index + 2]))
        x = tf.nn.relu(x + _conv(inner, weights[index + 2:index + 4]))
    x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    return tf.reduce_mean(tf.square(_dense_chain(tf.reshape(x, [x.shape[0], -1]), weights[-2:])))


def _lstm_loss(weights, x, labels):
    """The products with the inputs of all steps are one."""
    del labels
    first, recurrent = weights
    steps, batch, inputs = x.shape
    from_inputs = tf.matmul(tf.reshape(x, [steps * batch, inputs]), first)
    output = state = tf.zeros([batch, models.LSTM_UNITS])
    for step in tf.unstack(tf.reshape(from_inputs, [steps, batch, -1])):
        forget, use, candidate, give = tf.split(step + tf.matmul(output, recurrent), 4, axis=1)
        state = tf.sigmoid(forget) * state + tf.sigmoid(use) * tf.tanh(candidate)
        output = tf.sigmoid(give) * tf.tanh(state)
    return tf.reduce_mean(tf.square(output))


def _encoder_loss(weights, x, labels):
    del labels
    batch, length, width = x.shape
    x = tf.reshape(x, [batch * length, width])
    for first in range(0, len(weights), models.BLOCK_PARAMETERS):
        x = _encoder_block(weights[first:first + models.BLOCK_PARAMETERS], x, batch, length, width)
    return tf.reduce_mean(tf.square(x))


def _encoder_block(weights, x, batch, length, width):
    (qkv, qkv_bias, out, out_bias, scale0, bias0, up, up_bias, down, down_bias, scale1,
     bias1) = weights
    size = width // models.HEADS
    heads = tf.nn.bias_add(tf.matmul(x, qkv), qkv_bias)
    heads = tf.reshape(heads, [batch, length, 3, models.HEADS, size])
    query, key, value = tf.unstack(tf.transpose(heads, [2, 0, 3, 1, 4]))
    scores = tf.nn.softmax(tf.matmul(query * size ** -0.5, key, transpose_b=True))
    context = tf.transpose(tf.matmul(scores, value), [0, 2, 1, 3])
    context = tf.reshape(context, [batch * length, width])
    x = _layer_norm(x + tf.nn.bias_add(tf.matmul(context, out), out_bias), scale0, bias0)
    hidden = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, up), up_bias))
    hidden = tf.nn.bias_add(tf.matmul(hidden, down), down_bias)
    return _layer_norm(x + hidden, scale1, bias1)


def loss_function(model):
    return {"cnn": _cnn_loss, "resnet": _resnet_loss, "lstm": _lstm_loss, "transformer": _encoder_loss,
            "transformer-4": _encoder_loss}.get(models.base(model), _mlp_loss)


def update_function(model, weights):
    """update(gradients), by the operators that tf.keras.optimizers' predecessors use."""
    def slots():
        return [tf.Variable(tf.zeros_like(weight)) for weight in weights]

    if models.optimizer(model) == "momentum":
        sums = slots()

        def update(gradients):
            for weight, total, gradient in zip(weights, sums, gradients):
                tf.raw_ops.ResourceApplyMomentum(var=weight.handle, accum=total.handle, grad=gradient,
                                                 lr=models.LEARNING_RATE, momentum=models.MOMENTUM)
    elif models.optimizer(model) == "adam":
        means, squares, adam = slots(), slots(), models.ADAM
        powers = [tf.Variable(adam["beta1"]), tf.Variable(adam["beta2"])]

        def update(gradients):
            for weight, mean, square, gradient in zip(weights, means, squares, gradients):
                tf.raw_ops.ResourceApplyAdam(
                    var=weight.handle, m=mean.handle, v=square.handle, beta1_power=powers[0],
                    beta2_power=powers[1], lr=adam["rate"], beta1=adam["beta1"], beta2=adam["beta2"],
                    epsilon=adam["epsilon"], grad=gradient)
            powers[0].assign(powers[0] * adam["beta1"])
            powers[1].assign(powers[1] * adam["beta2"])
    else:
        def update(gradients):
            for weight, gradient in zip(weights, gradients):
                weight.assign_sub(models.LEARNING_RATE * gradient)
    return update


class TensorFlowPeer:
    def __init__(self, threads):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)

    def info(self):
        return {"name": "TensorFlow", "version": tf.__version__, "python": platform.python_version()}

    def prepare(self, model, mode, batch):
        weights = [tf.Variable(value) for value in models.parameters(model).values()]
        x, labels = models.data(model, batch)
        x = tf.constant(x)
        labels = None if labels is None else tf.constant(labels)
        loss_of, update = loss_function(model), update_function(model, weights)

        @tf.function(jit_compile=mode == "xla")
        def train(x, labels):
            with tf.GradientTape() as tape:
                loss = loss_of(weights, x, labels)
            update(tape.gradient(loss, weights))
            return loss

        # A concrete function skips the look-up by argument types.
        concrete = train.get_concrete_function(x, labels)
        arguments = (x,) if labels is None else (x, labels)
        return lambda: concrete(*arguments).numpy()

    def null(self, seconds):
        """Nodes a second through a v1 session, in a chain and side by side; without the time of a
        run of one node, which is mostly Python's. There are many of them, so that what is left of
        that time does not count."""
        with tf.Graph().as_default():
            last = tf.no_op()
            single = last
            for _ in range(NULL_NODES):
                with tf.control_dependencies([last]):
                    last = tf.no_op()
            with tf.control_dependencies([tf.no_op() for _ in range(NULL_NODES)]):
                join = tf.no_op()
            config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1,
                                              inter_op_parallelism_threads=1)
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            config.graph_options.optimizer_options.opt_level = (
                tf.compat.v1.OptimizerOptions.L0)
            with tf.compat.v1.Session(config=config) as session:
                times = {}
                for name, node in {"single": single, "chain": last, "side": join}.items():
                    times[name] = worker.median_seconds(session.make_callable(node), seconds)[0]
        return {"chain": NULL_NODES / (times["chain"] - times["single"]),
                "side_by_side": NULL_NODES / (times["side"] - times["single"]),
                "run_us": times["single"] * 1e6}


if __name__ == "__main__":
    worker.serve(TensorFlowPeer(worker.threads()))
