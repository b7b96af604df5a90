#!/usr/bin/env python3
"""The cluster examples as docs/cluster.md and docs/placement.md start them: one client of a bare cluster
(in-graph), one program that is every task (between-graph), and a model that no task can hold."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from tasks import free_ports

TIMEOUT = 60


def in_graph(binaries):
    ports = free_ports(3)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "cluster.toml")
        with open(config, "w") as file:
            file.write(f'[cluster]\nps = ["{addresses[0]}"]\nworker = ["{addresses[1]}", "{addresses[2]}"]\n')
        servers = []
        try:
            for job, task in (("ps", 0), ("worker", 0), ("worker", 1)):
                servers.append(subprocess.Popen(
                    [f"{binaries}/tutti", "server", "--config", config, "--job", job, "--task", str(task)],
                    stdout=subprocess.PIPE, text=True))
            client = subprocess.run([f"{binaries}/cluster_in_graph", f"tutti://{addresses[1]}", "2"],
                                    capture_output=True, text=True, timeout=TIMEOUT)
            assert client.returncode == 0, client.stderr
            assert client.stdout.endswith("w is near 3 and b near -1\n"), client.stdout
            status = subprocess.run([f"{binaries}/tutti", "status", addresses[2], "--json"],
                                    capture_output=True, text=True, timeout=TIMEOUT)
            assert status.returncode == 0, status.stderr
            tasks = [json.loads(line)["task"] for line in status.stdout.splitlines()]
            assert tasks == ["/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"], tasks
            for server in servers:
                server.terminate()
            for server in servers:
                assert server.wait(timeout=TIMEOUT) == 0, "a server ends with 0"
        finally:
            for server in servers:
                server.kill()
                server.wait()


def between_graph(binaries):
    ports = free_ports(3)
    cluster = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{port}" for port in ports[1:]]}
    tasks = []
    try:
        for job, index in (("ps", 0), ("worker", 0), ("worker", 1)):
            config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
            tasks.append(subprocess.Popen([f"{binaries}/cluster_between_graph"], text=True,
                                          env={**os.environ, "TF_CONFIG": config},
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        outputs = [task.communicate(timeout=TIMEOUT) for task in tasks]
        assert [task.returncode for task in tasks] == [0, 0, 0], outputs
        assert outputs[1][0] == "worker 0 has counted to 100\nall: 200\n", outputs
        assert outputs[2][0] == "worker 1 has counted to 100\n", outputs
    finally:
        for task in tasks:
            task.kill()
            task.wait()


def split(binaries, memory):
    """Where the layers of split_mlp live, on two tasks with so much memory."""
    ports = free_ports(2)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "cluster.toml")
        with open(config, "w") as file:
            file.write(f'[cluster]\nworker = ["{addresses[0]}", "{addresses[1]}"]\n')
        servers = []
        try:
            for task in (0, 1):
                servers.append(subprocess.Popen(
                    [f"{binaries}/tutti", "server", "--config", config, "--job", "worker", "--task", str(task),
                     "--device-memory", memory], stdout=subprocess.PIPE, text=True))
            client = subprocess.run([f"{binaries}/split_mlp", f"tutti://{addresses[0]}"],
                                    capture_output=True, text=True, timeout=TIMEOUT)
        finally:
            for server in servers:
                server.kill()
                server.wait()
    return client


def model_parallel(binaries):
    client = split(binaries, "5MB")
    assert client.returncode == 0, client.stderr
    assert client.stdout.endswith("the layers live on 2 tasks\n"), client.stdout
    client = split(binaries, "1GB")
    assert client.stdout.endswith("the layers live on 1 task\n"), client.stdout + client.stderr
    client = split(binaries, "1MB")
    assert client.returncode == 1, client.stdout
    assert "does not fit into the memory of /job:worker/task:" in client.stderr, client.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    binaries = parser.parse_args().bin
    in_graph(binaries)
    between_graph(binaries)
    model_parallel(binaries)
    print("the examples ran as they say")


if __name__ == "__main__":
    sys.exit(main())
