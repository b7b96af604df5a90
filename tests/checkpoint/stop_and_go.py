#!/usr/bin/env python3
"""Stops trainings by signals, gives them bad model directories, and looks at what they say and leave.

    tests/checkpoint/stop_and_go.py --bin build/bin
"""
import argparse
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile

SAVED_STEP = 20  # of a checkpoint whose size is looked at
COMMON = ["--model", "mlp", "--batch-size", "32", "--log-every", "5"]


def program(args, *flags):
    return [f"{args.bin}/fashion_mnist", *COMMON, *flags]


def workers(args, *flags):
    return [f"{args.bin}/tutti", "run", "--workers", "2", "--", *program(args, "--strategy", "allreduce", *flags)]


def towers(args, *flags):
    return program(args, "--strategy", "mirrored:2", *flags)


def with_servers(strategy):
    """Two workers and two servers; a step is long enough that signals come in the middle of one."""
    def command(args, *flags):
        return [f"{args.bin}/tutti", "run", "--workers", "2", "--ps", "2", "--grace", "60", "--", f"{args.bin}/fashion_mnist",
                "--model", "cnn", "--batch-size", "256", "--log-every", "1", "--strategy", strategy, *flags]
    return command


def small_with_servers(args, *flags):
    return [f"{args.bin}/tutti", "run", "--workers", "2", "--ps", "2", "--", *program(args, "--strategy", "ps-sync", *flags)]


def run(command, code, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
                          **more)
    assert done.returncode == code, f"exit code {done.returncode}, expected {code}:\n{done.stdout}"
    return done.stdout


def newest(model_dir):
    return max(int(name.split("-")[1]) for name in os.listdir(model_dir) if name.startswith("checkpoint-"))


def pid_of(launcher, job, index):
    """The process of a task of `tutti run`."""
    with open(f"/proc/{launcher.pid}/task/{launcher.pid}/children", encoding="utf-8") as children:
        for pid in children.read().split():
            with open(f"/proc/{pid}/environ", "rb") as environment:
                if b'"task":{"type":"%s","index":%d}' % (job.encode(), index) in environment.read():
                    return int(pid)
    raise AssertionError(f"no process of {job} {index}")


def check_stop(args, model_dir, command, first="step 20 ", signalled=lambda launcher: launcher.pid):
    """SIGTERM finishes the step, saves it, and ends with 143; the same command goes on there."""
    flags = ["--max-steps", "1000000", "--model-dir", model_dir, "--save-every", "0"]
    process = subprocess.Popen(command(args, *flags), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = ""
    for line in process.stdout:
        text += line
        if re.search(f"{first}loss", line):
            break
    os.kill(signalled(process), signal.SIGTERM)
    text += process.stdout.read()
    code = process.wait(timeout=60)
    assert code == 143, f"{code}:\n{text}"
    stopped = int(re.search(r"stopped after step (\d+) of 1000000 by signal 15", text).group(1))
    assert stopped == newest(model_dir), (stopped, os.listdir(model_dir))
    text = run(command(args, "--max-steps", str(stopped + 3), "--model-dir", model_dir), 0)
    assert f"goes on from step {stopped} of {stopped + 3}" in text, text
    assert newest(model_dir) == stopped + 3
    return text


def check_restart(args, model_dir, strategy, *tasks, steps, kill, every):
    """Under `tutti run --restarts 1` a job that lost a worker goes on from its last checkpoint by itself."""
    command = [f"{args.bin}/tutti", "run", "--workers", "2", *tasks, "--restarts", "1", "--",
               *program(args, "--strategy", strategy, "--max-steps", str(steps), "--model-dir", model_dir,
                        "--save-every", str(every))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = ""
    for line in process.stdout:
        text += line
        if f"step {kill} loss" in line:
            break
    os.kill(pid_of(process, "worker", 1), signal.SIGKILL)
    text += process.stdout.read()
    assert process.wait(timeout=60) == 0, text
    resumed = int(re.search(rf"goes on from step (\d+) of {steps}", text).group(1))
    assert resumed >= every and resumed % every == 0, text
    assert newest(model_dir) == steps and "test accuracy" in text, text


def check_no_space(args, folder, command):
    """A disk with room for one checkpoint and a half: the second fails, and the first is there."""
    model = f"{folder}/{SAVED_STEP}"
    if not os.path.exists(model):
        run(program(args, "--max-steps", str(SAVED_STEP), "--model-dir", model), 0)
    size = sum(entry.stat().st_size for entry in os.scandir(f"{model}/checkpoint-{SAVED_STEP:06}"))
    os.makedirs(f"{folder}/small", exist_ok=True)
    script = (f'mount -t tmpfs -o size={size * 3 // 2} none "{folder}/small" || exit 77; "$@"; code=$?; '
              f'ls "{folder}/small"; "{args.bin}/tutti" inspect "{folder}/small"; exit $code')
    text = run(["unshare", "-m", "sh", "-c", script, "-",
                *command(args, "--max-steps", str(2 * SAVED_STEP), "--model-dir", f"{folder}/small", "--save-every",
                         str(SAVED_STEP))], 1)
    assert f"the checkpoint of step {2 * SAVED_STEP} failed: " in text and "No space left on device" in text, text
    assert "test accuracy" in text, text
    assert "the training is done, but its last checkpoint could not be written" in text, text
    assert f"checkpoint-{SAVED_STEP:06}: step {SAVED_STEP}, " in text and "all checksums are right" in text, text
    assert f"checkpoint-{2 * SAVED_STEP:06}\n" not in text, text


def check_full_disk(args, model_dir):
    """A save that fails is told each time and costs neither the training nor its evaluation."""
    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
    text = run(program(args, "--max-steps", "40", "--model-dir", model_dir, "--save-every", "20"), 1,
               preexec_fn=small_files)
    for step in (20, 40):
        assert f"the checkpoint of step {step} failed: " in text, text
    assert "File too large" in text and "test accuracy" in text, text
    assert "the training is done, but its last checkpoint could not be written" in text, text
    left = [name for name in os.listdir(model_dir) if "checkpoint" in name]
    assert not left, left


def check_directories(args, folder):
    with open(f"{folder}/file", "w", encoding="utf-8"):
        pass
    text = run(program(args, "--max-steps", "5", "--model-dir", f"{folder}/file"), 1)
    assert "--model-dir: cannot open" in text and "Not a directory" in text, text
    text = run(program(args, "--max-steps", "5", "--model-dir", "/proc/nowhere/models"), 1)
    assert "--model-dir: cannot make the directory /proc/nowhere" in text, text
    text = run(program(args, "--save-every", "often"), 2)
    assert '--save-every is "often"; expected steps, as in 500, or seconds, as in 60s' in text, text
    # The error of the worker that leads reaches the other.
    text = run(workers(args, "--max-steps", "5", "--model-dir", f"{folder}/file"), 1)
    assert "worker 0 | fashion_mnist: --model-dir: cannot open" in text, text


def check_two_jobs(args, model_dir):
    first = subprocess.Popen(program(args, "--max-steps", "1000000", "--model-dir", model_dir), stderr=subprocess.PIPE,
                             text=True)
    try:
        for line in first.stderr:
            if "step 5 loss" in line:
                break
        text = run(program(args, "--max-steps", "5", "--model-dir", model_dir), 1)
        assert f"is in use by another job (fashion_mnist, process {first.pid} on " in text, text
    finally:
        first.kill()
        first.stderr.close()
        first.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", default="build/bin")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tutti-stop-") as folder:
        check_stop(args, f"{folder}/one", program)
        check_stop(args, f"{folder}/two", workers)
        check_stop(args, f"{folder}/towers", towers)
        for strategy in ("ps-sync", "ps-async", "ps-ssp:1"):
            check_stop(args, f"{folder}/{strategy}", with_servers(strategy), "step [0-9]+ ")
        # The signal comes to one server alone.
        check_stop(args, f"{folder}/server", with_servers("ps-sync"), "step [0-9]+ ", lambda job: pid_of(job, "ps", 1))
        check_restart(args, f"{folder}/again", "allreduce", steps=3000, kill=600, every=100)
        check_restart(args, f"{folder}/again-ps", "ps-sync", "--ps", "1", steps=600, kill=100, every=20)
        check_full_disk(args, f"{folder}/full")
        if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", folder], capture_output=True,
                          check=False).returncode == 0:
            check_no_space(args, folder, program)
            check_no_space(args, folder, small_with_servers)
        check_directories(args, folder)
        check_two_jobs(args, f"{folder}/shared")
    print("stops and bad directories went as they should")
    return 0


if __name__ == "__main__":
    sys.exit(main())
