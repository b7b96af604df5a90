"""TensorFlow's parameter servers, as its v1 programs use them: between-graph replication in a MonitoredTrainingSession.

    tensorflow_ps_peer.py --model mlp-small --batch 32 --mode async --workers 2 --seconds 5 --variables resource

starts one ps on all cores of this process and workers of one core each, lets them train, and prints one JSON object:
the samples a second of all workers over the timed seconds. --mode sync wraps the optimizer in SyncReplicasOptimizer.

Batches lie in the workers' graphs as constants, so that TensorFlow neither reads nor feeds any. Workers count their
steps in a small shared file; the rate is what was counted between two looks at it, so that neither the start nor the
end of a worker is in it.
"""

import argparse
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import models

START_SECONDS = 120  # until all workers train
WARM_UP_STEPS = 5    # of every worker, untimed


def free_ports(count):
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def image_loss(tf, model, batch, worker, workers, variable):
    x, labels = map(tf.constant, models.data(model, batch, worker, workers))
    weights = {name: variable(name.replace("/", "_"), value) for name, value in models.parameters(model).items()}
    h = x
    if model == "cnn":
        for layer in range(2):
            h = tf.nn.conv2d(h, weights[f"conv{layer}/filter"], 1, "SAME")
            h = tf.nn.max_pool2d(tf.nn.relu(tf.nn.bias_add(h, weights[f"conv{layer}/bias"])), 2, 2, "SAME")
        h = tf.reshape(h, [batch, -1])
    layers = models.dense_layers(model)
    for layer in range(layers):
        h = tf.nn.bias_add(tf.matmul(h, weights[f"dense{layer}/weights"]), weights[f"dense{layer}/bias"])
        if layer + 1 < layers:
            h = tf.nn.relu(h)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=h))


def click_loss(tf, batch, worker, variable, unique):
    """Batches come in a random order of their own for every worker. With `unique` each row travels once."""
    words, clicked = models.clicks(batch, seed=worker)
    number = tf.random.uniform([], 0, len(words), tf.int32)
    words, clicked = (tf.gather(tf.constant(all_of), number) for all_of in (words, clicked))
    table = variable("table", lambda: tf.random.uniform([models.CLICK_ROWS, models.CLICK_WIDTH], -0.01, 0.01))
    if unique:
        rows, places = tf.unique(tf.reshape(words, [-1]))
        looked_up = tf.gather(tf.nn.embedding_lookup(table, rows), places)
    else:
        looked_up = tf.nn.embedding_lookup(table, words)
    h = tf.reshape(looked_up, [batch, models.CLICK_WORDS * models.CLICK_WIDTH])
    weights = {name: variable(name.replace("/", "_"), value) for name, value in models.parameters("click").items()}
    for layer in range(3):
        h = tf.nn.bias_add(tf.matmul(h, weights[f"dense{layer}/weights"]), weights[f"dense{layer}/bias"])
        if layer < 2:
            h = tf.nn.relu(h)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=clicked, logits=tf.reshape(h, [batch])))


def train(tf, options, cluster, counts):
    server = tf.compat.v1.train.Server(cluster, job_name="worker", task_index=options.task)

    def variable(name, initial):
        return tf.compat.v1.get_variable(name, initializer=initial, use_resource=options.variables == "resource")

    chief = options.task == 0
    place = tf.compat.v1.train.replica_device_setter(worker_device=f"/job:worker/task:{options.task}",
                                                     cluster=cluster)
    with tf.Graph().as_default(), tf.compat.v1.device(place):
        if options.model == "click":
            loss = click_loss(tf, options.batch, options.task, variable, options.unique)
        else:
            loss = image_loss(tf, options.model, options.batch, options.task, options.workers, variable)
        step = tf.compat.v1.train.get_or_create_global_step()
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(models.LEARNING_RATE)
        hooks = []
        if options.mode == "sync":
            optimizer = tf.compat.v1.train.SyncReplicasOptimizer(optimizer, options.workers, options.workers)
        update = optimizer.minimize(loss, global_step=step)
        if options.mode == "sync":
            hooks.append(optimizer.make_session_run_hook(chief))
        with tf.compat.v1.train.MonitoredTrainingSession(
                master=server.target, is_chief=chief, hooks=hooks, log_step_count_steps=None) as session:
            done = 0
            while True:
                session.run(update)
                done += 1
                counts[8 * options.task:8 * options.task + 8] = struct.pack("q", done)


def measure(options, python, cores):
    """Samples a second of all workers."""
    ports = free_ports(1 + options.workers)
    cluster = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{port}" for port in ports[1:]]}
    with tempfile.NamedTemporaryFile(prefix="tutti-tensorflow-ps-") as file:
        file.write(bytes(8 * options.workers))
        file.flush()
        counts = mmap.mmap(file.fileno(), 8 * options.workers)
        roles = [("ps", 0, cores)] + [("worker", w, [cores[w % len(cores)]]) for w in range(options.workers)]
        started = [subprocess.Popen(["taskset", "-c", ",".join(map(str, of_role)), python, __file__, *sys.argv[1:],
                                     "--cluster", json.dumps(cluster), "--job", job, "--task", str(task),
                                     "--counts", file.name], stdout=sys.stderr)
                   for job, task, of_role in roles]
        try:
            def steps():
                ended = [process.returncode for process in started if process.poll() is not None]
                if ended:
                    raise RuntimeError(f"a task ended with {ended[0]}")
                return struct.unpack(f"{options.workers}q", counts[:])
            end = time.monotonic() + START_SECONDS
            while min(steps()) < WARM_UP_STEPS:
                if time.monotonic() > end:
                    raise RuntimeError(f"not all workers train after {START_SECONDS} s")
                time.sleep(0.05)
            first, begin = steps(), time.monotonic()
            time.sleep(options.seconds)
            last, seconds = steps(), time.monotonic() - begin
            return (sum(last) - sum(first)) * options.batch / seconds
        finally:
            for process in started:
                process.kill()
                process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default="mlp-small", choices=["mlp-small", "cnn", "mlp-97mb", "click"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--mode", default="async", choices=["async", "sync"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--variables", default="resource", choices=["resource", "reference"])
    parser.add_argument("--unique", action="store_true", help="of the click model: a batch's rows travel once each")
    parser.add_argument("--cluster", help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--task", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--counts", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.cluster:
        value = measure(options, sys.executable, sorted(os.sched_getaffinity(0)))
        print(json.dumps({"bench": "ps", "case": f"{options.model} {options.mode}", "value": value,
                          "unit": "samples/s"}))
        return 0
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    cluster = tf.train.ClusterSpec(json.loads(options.cluster))
    if options.job == "ps":
        tf.compat.v1.train.Server(cluster, job_name="ps", task_index=options.task).join()
    with open(options.counts, "r+b") as file:
        train(tf, options, cluster, mmap.mmap(file.fileno(), 8 * options.workers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
