#!/usr/bin/env python3
"""A thousand connections that say nothing, or garbage, while steps run: no step may be disturbed.

    tests/fault/crowd.py --bin build/bin [--connections 1000]

A client (tests/fault/cluster_client.cc) runs steps on a cluster. Strangers connect to the ports of all its tasks: a third
says nothing, a third sends random bytes, a third begins a real handshake and stops in the middle of it. Meanwhile the
client's steps must go on and be right, new clients must be served, and when the strangers have gone the tasks must have
closed what they had opened for them. Then as many strangers connect to the one port that the clients use.
"""
import argparse
import os
import random
import resource
import socket
import sys
import time

import cluster_faults
import rounds

PATIENCE = 60


def descriptors(task):
    return len(os.listdir(f"/proc/{task.process.pid}/fd"))


def stranger(address, number, generator, beginning):
    """A connection that stays open, whatever the task says."""
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
    try:
        if number % 3 == 1:
            connection.sendall(generator.randbytes(generator.randrange(1, 2000)))
        if number % 3 == 2:
            connection.sendall(beginning[:generator.randrange(1, len(beginning))])
    except OSError:
        pass  # the task has closed it already: its right
    return connection


def first_bytes(bin_folder):
    """What a client says first on a connection: recorded at a listener that answers nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(PATIENCE)
        port = listener.getsockname()[1]
        args = argparse.Namespace(bin=bin_folder)
        client = cluster_faults.Client(args, f"127.0.0.1:{port}", "read", "recorded", [cluster_faults.SPARE])
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(PATIENCE)
                return connection.recv(4096)
        finally:
            client.close()


def steps_of_new_client(cluster, args, number):
    """A client that comes while the strangers are there makes its steps, too."""
    client = cluster_faults.Client(args, cluster.tasks[cluster_faults.WORKER].address, "between", f"new{number}",
                                   cluster_faults.USED)
    try:
        client.await_running()
        return client.finish()["steps"]
    finally:
        client.close()


def crowd(cluster, args, generator, crowded, name):
    """The strangers connect to the tasks `crowded`. Gives the steps of the client that was there and of those that came."""
    tasks = list(cluster.tasks.values())
    beginning = first_bytes(args.bin)
    client = cluster_faults.Client(args, cluster.tasks[cluster_faults.WORKER].address, "step", f"steady{name}",
                                   cluster_faults.USED)
    strangers = []
    try:
        client.await_running()
        before = [descriptors(task) for task in tasks]
        made = 0
        for number in range(args.connections):
            strangers.append(stranger(crowded[number % len(crowded)].address, number, generator, beginning))
            if number % (args.connections // 4 + 1) == args.connections // 4:
                made += steps_of_new_client(cluster, args, f"{name}{number}")
        made += steps_of_new_client(cluster, args, f"{name}full")
        for each in strangers:
            each.close()
        strangers.clear()
        made += steps_of_new_client(cluster, args, f"{name}after")
        end = client.finish()
        cluster.check_alive(None)
        deadline = time.monotonic() + PATIENCE
        # The client's connections are gone as well.
        while any(descriptors(task) > was for task, was in zip(tasks, before)):
            if time.monotonic() > deadline:
                raise rounds.Wrong(f"descriptors before and after: {before}, {[descriptors(task) for task in tasks]}")
            time.sleep(0.05)
        return end["steps"], made
    finally:
        for each in strangers:
            each.close()
        client.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", default="build/bin", help="folder of the programs (default build/bin)")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    cluster = cluster_faults.Cluster(args)
    try:
        generator = random.Random(args.seed)
        for name, crowded in (("all ports", list(cluster.tasks.values())),
                              ("one port", [cluster.tasks[cluster_faults.WORKER]])):
            steps, made = crowd(cluster, args, generator, crowded, name.replace(" ", ""))
            print(f"{args.connections} strangers at {name}; {steps} steps of the client that was there, {made} of those "
                  "that came later", flush=True)
    except rounds.Wrong as wrong:
        print(f"FAILED: {wrong}")
        return 1
    finally:
        cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
