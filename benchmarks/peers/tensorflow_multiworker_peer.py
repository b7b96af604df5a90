"""TensorFlow's MultiWorkerMirroredStrategy: a tf.function of one step.

TF_CONFIG tells which worker this is, and where the others are.
"""

import json
import os

import tensorflow as tf

import models
import tensorflow_peer
import worker


class TensorFlowMultiWorkerPeer(tensorflow_peer.TensorFlowPeer):
    def __init__(self, threads):
        super().__init__(threads)
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        task = json.loads(os.environ["TF_CONFIG"])
        self._place = (task["task"]["index"], len(task["cluster"]["worker"]))

    def prepare(self, model, mode, batch):
        strategy = self._strategy
        with strategy.scope():
            weights = [tf.Variable(value) for value in models.parameters(model).values()]
        x, labels = map(tf.constant, models.data(model, batch, *self._place))
        loss_of = tensorflow_peer.loss_function(model)

        def update(variable, gradient):
            variable.assign_sub(models.LEARNING_RATE * gradient, read_value=False)

        def update_all(strategy, gradients):
            means = strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.MEAN,
                                                      list(zip(gradients, weights)))
            for variable, mean in zip(weights, means):
                strategy.extended.update(variable, update, args=(mean,))

        def replica_step(x, labels):
            with tf.GradientTape() as tape:
                loss = loss_of(weights, x, labels)
            gradients = tape.gradient(loss, weights)
            tf.distribute.get_replica_context().merge_call(update_all, args=(gradients,))
            return loss

        train = tf.function(lambda x, labels: strategy.run(replica_step, args=(x, labels)))
        concrete = train.get_concrete_function(x, labels)
        return lambda: concrete(x, labels).numpy()


if __name__ == "__main__":
    worker.serve(TensorFlowMultiWorkerPeer(worker.threads()))
