"""TensorFlow's local servers through its v1 Session: the steps of `tutti bench cluster`, timed in the same way.

    tensorflow_cluster_peer.py --seconds 1     # starts two ps tasks, is worker 0, prints one JSON object a figure
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def median_micros(seconds, run, before=lambda: None):
    """`before` runs before each timed run."""
    for _ in range(3):
        before()
        run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        before()
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def report(case, value, unit):
    print(json.dumps({"bench": "cluster", "case": case, "value": value, "unit": unit}), flush=True)


def measure(tf, target, seconds):
    mega = 1_000_000

    def on_ps(index):
        return tf.device(f"/job:ps/task:{index}")

    def variable(index, shape, name):
        with on_ps(index):
            return tf.compat.v1.get_variable(name, initializer=tf.ones(shape), use_resource=True)

    def timed(fetch, feeds=lambda: None):
        with tf.compat.v1.Session(target) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            call = session.make_callable(fetch, feed_list=None if feeds() is None else [placeholder])
            return median_micros(seconds, lambda: call() if feeds() is None else call(feeds()))

    with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
        total = variable(0, [], "a") + variable(1, [], "b")
        report("null step over 2 ps", timed(total), "us")

    with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
        rows, next_row = 2_000_000, [0]
        placeholder = tf.compat.v1.placeholder(tf.int64, [16])
        tables = [variable(ps, [rows, 64], f"table{ps}") for ps in range(2)]
        parts = []
        for ps, table in enumerate(tables):
            with on_ps(ps):
                parts.append(tf.gather(table, placeholder))
        both = tf.concat(parts, 0)

        def wanted():
            next_row[0] += 1
            return [(next_row[0] * 16 + i) * 7919 % rows for i in range(16)]

        report("32 rows of a table of 1 GB on 2 ps", timed(both, wanted), "us")

    with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
        # Written by their tasks before each timed step: 1 and 2 in turn, whose sums are exact.
        variables = [variable(i % 2, [5 * mega // 4], f"v{i}") for i in range(20)]
        total = tf.add_n([tf.reduce_sum(v) for v in variables])
        change = tf.compat.v1.placeholder(tf.float32, [])
        updates = []
        for i, v in enumerate(variables):
            with on_ps(i % 2):
                updates.append(v.assign(v + change, read_value=False))
        with tf.compat.v1.Session(target) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            update = session.make_callable(tf.group(updates), feed_list=[change])
            call, value = session.make_callable(total), [1]

            def write():
                update(3 - 2 * value[0])
                value[0] = 3 - value[0]

            def sum_all():
                if call() != 25 * mega * value[0]:
                    raise SystemExit("a step gave a wrong sum")

            report("100 MB of parameters on 2 ps, summed by the worker", median_micros(seconds, sum_all, write) / 1e3,
                   "ms")

    with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
        placeholder = tf.compat.v1.placeholder(tf.float32, [])
        value = variable(0, [128 * mega // 4], "v")
        with on_ps(0):
            written = value + placeholder
        report("128 MB, written on ps 0, summed on the worker",
               timed(tf.reduce_sum(written), lambda: 1.0) / 1e3, "ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--serve", help=argparse.SUPPRESS)  # the cluster, for a ps task
    parser.add_argument("--task", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    if options.serve:
        tf.compat.v1.train.Server(json.loads(options.serve), job_name="ps",
                                  task_index=options.task).join()
        return 0
    cluster = {"ps": [f"127.0.0.1:{free_port()}" for _ in range(2)],
               "worker": [f"127.0.0.1:{free_port()}"]}
    tasks = [subprocess.Popen([sys.executable, __file__, "--serve", json.dumps(cluster), "--task",
                               str(task)]) for task in range(2)]
    try:
        server = tf.compat.v1.train.Server(cluster, job_name="worker", task_index=0)
        measure(tf, server.target, options.seconds)
    finally:
        for task in tasks:
            task.kill()
            task.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
