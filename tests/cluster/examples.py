#!/usr/bin/env python3
"""The cluster examples as docs/cluster.md, docs/placement.md and docs/strategies.md start them: one client of
a bare cluster (in-graph), one program that is every task (between-graph), a model that no task can hold, towers
on several tasks, what a stale gradient does, and a model of clicks."""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from tasks import free_ports

TIMEOUT = 60


def documented():
    """The blocks of docs/cluster.md before "Between-graph", as (language, text)."""
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/cluster.md")
    with open(page, encoding="utf-8") as file:
        return re.findall(r"^```(\w*)\n(.*?)^```$", file.read().split("## Between-graph")[0], re.DOTALL | re.MULTILINE)


def in_graph(binaries):
    """The three tasks and the client of docs/cluster.md, by its own commands; only the ports are other ones."""
    blocks = documented()
    shown = sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", "".join(text for _, text in blocks))))
    others = dict(zip(shown, map(str, free_ports(len(shown)))))
    blocks = [(language, re.sub("|".join(shown), lambda port: others[port[0]], text)) for language, text in blocks]
    (config,) = [text for language, text in blocks if language == "toml"]
    start, client, status, end = [text for language, text in blocks if language == "sh"]
    (listens,) = [text for language, text in blocks if language == ""]
    environment = dict(os.environ, PATH=f"{binaries}:{os.environ['PATH']}")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "cluster.toml"), "w", encoding="utf-8") as file:
            file.write(config)

        def run(command):
            return subprocess.run(["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True,
                                  timeout=TIMEOUT)

        # Terminal 1 stays open until its jobs have ended, and then tells their codes.
        terminal = subprocess.Popen(
            ["bash", "-c", f'{start}\ntasks=$(jobs -p); read -r; {end}\nfor task in $tasks; do wait $task; echo "code $?"; done'],
            cwd=folder, env=environment, text=True, start_new_session=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        try:
            told = sorted(terminal.stdout.readline() for _ in range(3))
            assert listens in told, told
            assert all(" listens at " in line for line in told), told
            told = run(client)
            assert told.returncode == 0, told.stderr
            assert told.stdout.endswith("w is near 3 and b near -1\n"), told.stdout
            told = run(status)
            assert told.returncode == 0, told.stderr
            tasks = re.findall(r"^(/job\S+)", told.stdout, re.MULTILINE)
            assert tasks == ["/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"], told.stdout
            told = run(status.rstrip() + " --json")
            tasks = [json.loads(line)["task"] for line in told.stdout.splitlines()]
            assert tasks == ["/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"], tasks
            told, _ = terminal.communicate("\n", timeout=TIMEOUT)
            assert re.findall(r"^code (\d+)$", told, re.MULTILINE) == ["0", "0", "0"], told
        finally:
            for pid in subprocess.run(["ps", "-o", "pid=", "-s", str(terminal.pid)], text=True,
                                      capture_output=True).stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            terminal.wait()


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


def client_of_two(binaries, memory, command):
    """Runs a client of two tasks with so much memory; `command` is given the address of the first."""
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
            # A task that is not there yet gets no nodes.
            for server in servers:
                assert "listens at" in server.stdout.readline()
            client = subprocess.run(command(f"tutti://{addresses[0]}"), capture_output=True, text=True,
                                    timeout=TIMEOUT)
        finally:
            for server in servers:
                server.kill()
                server.wait()
    return client


def split(binaries, memory):
    """Where the layers of split_mlp live, on two tasks with so much memory."""
    return client_of_two(binaries, memory, lambda target: [f"{binaries}/split_mlp", target])


def model_parallel(binaries):
    client = split(binaries, "5MB")
    assert client.returncode == 0, client.stderr
    assert client.stdout.endswith("the layers live on 2 tasks\n"), client.stdout
    client = split(binaries, "1GB")
    assert "the layers live on " in client.stdout, client.stdout + client.stderr  # where it is faster
    client = split(binaries, "1MB")
    assert client.returncode == 1, client.stdout
    assert "does not fit into the memory of /job:worker/task:" in client.stderr, client.stderr


def estimator_over_tasks(binaries):
    """The Estimator trains a model that two tasks hold together, to what one process gets."""
    flags = ["--max-steps", "100", "--placement", "search"]
    here = subprocess.run([f"{binaries}/two_towers", *flags], capture_output=True, text=True, timeout=TIMEOUT)
    assert here.returncode == 0, here.stderr
    there = client_of_two(binaries, "6MB", lambda target: [f"{binaries}/two_towers", *flags, "--target", target])
    assert there.returncode == 0, there.stderr
    for task in (0, 1):
        busy = re.search(rf"/job:worker/task:{task}/cpu:0 busy ([0-9]+)%", there.stderr)
        assert busy and int(busy.group(1)) > 0, there.stderr
    accuracies = [float(re.search(r"accuracy ([0-9.]+)", run.stdout + run.stderr).group(1)) for run in (here, there)]
    assert abs(accuracies[0] - accuracies[1]) < 0.02, accuracies
    wrong = subprocess.run([f"{binaries}/two_towers", "--target", "tutti://127.0.0.1:1", "--devices", "2"],
                           capture_output=True, text=True, timeout=TIMEOUT)
    assert wrong.returncode == 2 and "give them to `tutti server`" in wrong.stderr, wrong.stderr


def towers_over_tasks(binaries):
    """mirrored:2 with a tower on each of two tasks learns what it learns on two devices of one process."""
    def command(*flags):
        return [f"{binaries}/fashion_mnist", "--model", "mlp", "--max-steps", "60", "--verbose",
                "--strategy", "mirrored:2", *flags]
    here = subprocess.run(command(), capture_output=True, text=True, timeout=TIMEOUT)
    assert here.returncode == 0, here.stderr
    there = client_of_two(binaries, "1GB", lambda target: command("--target", target))
    assert there.returncode == 0, there.stderr
    assert "2 towers on /job:worker/task:0/cpu:0, /job:worker/task:1/cpu:0" in there.stderr, there.stderr
    results = [re.search(r"test accuracy ([0-9.]+)%.*loss ([0-9.]+)", run.stdout + run.stderr) for run in (here, there)]
    assert all(results), here.stdout + here.stderr + there.stdout + there.stderr
    assert results[0].groups() == results[1].groups(), [result.group(0) for result in results]
    many = client_of_two(binaries, "1GB", lambda target: [
        f"{binaries}/fashion_mnist", "--strategy", "mirrored:3", "--target", target])
    assert many.returncode == 1, many.stderr
    assert "--strategy mirrored:3 needs 3 devices" in many.stderr and "has 2: /job:worker/task:0/cpu:0, " in many.stderr, \
        many.stderr
    wrong = subprocess.run([f"{binaries}/fashion_mnist", "--strategy", "allreduce", "--target", "tutti://127.0.0.1:1"],
                           capture_output=True, text=True, timeout=TIMEOUT)
    assert wrong.returncode == 2 and "--target needs --strategy local or mirrored:N" in wrong.stderr, wrong.stderr


def stale_gradient(binaries):
    """In step no update crosses the floor of the valley; on their own, two workers push past it. The
    second draws both paths."""
    with tempfile.TemporaryDirectory() as folder:
        def crossings(strategy, *flags):
            run = subprocess.run([f"{binaries}/tutti", "run", "--workers", "2", "--ps", "1", "--",
                                  f"{binaries}/stale_gradient", "--strategy", strategy,
                                  "--path", f"{folder}/{strategy}.txt", *flags],
                                 capture_output=True, text=True, timeout=TIMEOUT)
            assert run.returncode == 0, run.stdout + run.stderr
            found = re.search(rf"{strategy}: after 40 updates ([0-9.]+) from the minimum, crosses the floor ([0-9]+) times",
                              run.stdout)
            assert found, run.stdout + run.stderr
            return int(found.group(2))

        assert crossings("ps-sync") == 0
        # A worker that gets no core while the other makes its first steps meets no stale gradient.
        tries = [crossings("ps-async", "--beside", f"{folder}/ps-sync.txt", "--svg", f"{folder}/paths.svg")]
        while tries[-1] == 0 and len(tries) < 5:
            tries.append(crossings("ps-async", "--beside", f"{folder}/ps-sync.txt", "--svg", f"{folder}/paths.svg"))
        assert tries[-1] > 0, tries
        picture = xml.etree.ElementTree.parse(f"{folder}/paths.svg").getroot()
        paths = picture.findall("{http://www.w3.org/2000/svg}polyline")
        assert len(paths) == 2 and all(len(path.get("points").split()) == 41 for path in paths), paths


def click_model(binaries):
    """100 updates on a small table tell clicks as well with parameter servers as in one process: auc 0.78."""
    for strategy, batch in (("ps-async", 256), ("ps-sync", 128)):
        run = subprocess.run([f"{binaries}/tutti", "run", "--workers", "2", "--ps", "2", "--", f"{binaries}/click_model",
                              "--strategy", strategy, "--batch-size", str(batch), "--rows", "5000", "--samples", "20000",
                              "--max-steps", "100"], capture_output=True, text=True, timeout=TIMEOUT)
        assert run.returncode == 0, run.stdout + run.stderr
        found = re.search(r"auc (0\.[0-9]+)", run.stdout + run.stderr)
        assert found and float(found.group(1)) > 0.74, run.stdout + run.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    binaries = parser.parse_args().bin
    in_graph(binaries)
    between_graph(binaries)
    model_parallel(binaries)
    estimator_over_tasks(binaries)
    towers_over_tasks(binaries)
    stale_gradient(binaries)
    click_model(binaries)
    print("the examples ran as they say")


if __name__ == "__main__":
    sys.exit(main())
