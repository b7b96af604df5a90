"""Launchers as the tests use them: mpirun of Open MPI and of MPICH, Slurm, torchrun, and `tutti run --hosts` over ssh.

    with make_launcher("slurm") as launcher:
        job = launcher.start(2, ["build/bin/fashion_mnist", ...])
        ranks = launcher.ranks(job)         # {0: pid, 1: pid}
        code, text = launcher.finish(job)

A launcher has a home of its own, in which jobs leave what they leave. Every process of a job has MARK in its
environment, so that all of them are found, whoever their parents are.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid

import ssh_lab
from tasks import free_ports

MARK = "TUTTI_TEST_MARK"  # `tutti run --hosts` takes what begins with TUTTI_ along
OURS = re.compile(r"^(TF_CONFIG|RANK|WORLD_SIZE|MASTER_|LOCAL_|PMI|OMPI|MPI_|SLURM_|TUTTI_)")
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")

PEERS = os.environ.get("TUTTI_PEERS", os.path.expanduser("~/.cache/tutti/peers"))
DEBIAN_TORCH = "/usr/lib/python3/dist-packages/torch"
# What the command torchrun runs; Debian has the module but not the command. Its version of PyTorch
# cannot read "leave the output alone" under Python 3.11, where a flag without a bit is no member.
TORCHRUN = """
from torch.distributed.elastic.multiprocessing import api
api.Std.from_str = classmethod(lambda kind, text: kind(0))
from torch.distributed.run import main
main()
"""

SLURM_CONFIG = """
ClusterName=tutti
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


def torchrun_words():
    """PyPI's torchrun of benchmarks/install-peers, or one on the path, or what stands in for it with Debian's PyTorch;
    empty where there is no PyTorch."""
    command = f"{PEERS}/torch/bin/torchrun"
    command = command if os.path.exists(command) else shutil.which("torchrun")
    if command is not None:
        return [command]
    return ["/usr/bin/python3", "-c", TORCHRUN] if os.path.exists(DEBIAN_TORCH) else []


def without_roles(program):
    """The command without `--ps N`, by which processes that are only numbered divide the roles."""
    at = program.index("--ps") if "--ps" in program else len(program)
    return program[:at] + program[at + 2:]


def servers_of(program):
    return int(program[program.index("--ps") + 1]) if "--ps" in program else 0


def rank_of_task(config):
    """The position of a task of TF_CONFIG in the order in which numbered processes take their roles."""
    cluster, task = config["cluster"], config["task"]
    before = ("chief", "worker", "ps", "evaluator")
    before = before[:before.index(task["type"])]
    return sum(len(cluster.get(job, [])) for job in before) + task["index"]


class Job:
    """A launcher's process, whose output is read as it comes."""

    def __init__(self, command, environment):
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(command, env={**environment, MARK: self.mark}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.text = ""
        self.step = 0  # that the chief told last
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.text += line
                if found := re.search(r"step +(\d+) loss", line):
                    self.step = int(found.group(1))
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def wait_for_step(self, step, seconds=60):
        """Whether that step was reached; of an asynchronous training the chief tells some steps only."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while self.step < step and self.reader.is_alive() and time.monotonic() < deadline:
                self.changed.wait(1)
            return self.step >= step

    def finish(self, seconds=120):
        """Its exit code and all that it said."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.reader.join(seconds)
        self.process.stdout.close()
        return code, self.text

    def processes(self):
        """{pid: variables} of all processes of the job that are left, the launcher's own included."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    variables = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    state = file.read().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if variables.get(MARK.encode()) == self.mark.encode() and state != "Z":
                found[int(pid)] = {name.decode(): value.decode() for name, value in variables.items()}
        return found

    def ranks(self, program="fashion_mnist"):
        """{rank: pid} of the processes that run the program."""
        found = {}
        for pid, variables in self.processes().items():
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    if file.read().strip() != program[:15]:
                        continue
            except OSError:
                continue
            rank = next((variables[name] for name in RANK_VARIABLES if name in variables), None)
            if "TF_CONFIG" in variables:
                rank = rank_of_task(json.loads(variables["TF_CONFIG"]))
            if rank is not None:
                found[int(rank)] = pid
        return found


class Launcher:
    """Open MPI's or MPICH's mpirun; others differ in what they override."""

    stop_codes = (143,)  # with which it ends a job that was terminated
    outlives_workers = False  # does it let the others go on without a lost worker, where the strategy allows it?

    def __init__(self, words):
        self.words = words
        self.home = tempfile.mkdtemp(prefix="tutti-launcher-")
        self.environment = {name: value for name, value in os.environ.items() if not OURS.match(name)}
        self.environment.update(HOME=self.home, TMPDIR=self.home)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def command(self, processes, program):
        return [*self.words, "-n", str(processes), *program]

    def start(self, processes, program, **variables):
        return Job(self.command(processes, program), {**self.environment, **variables})

    def run(self, processes, program, seconds=120, **variables):
        return self.start(processes, program, **variables).finish(seconds)

    def terminate(self, job):
        """What a user, or the system around the launcher, does to end a job with grace."""
        job.process.send_signal(signal.SIGTERM)

    def left_files(self):
        """Of Tutti's, in the launcher's home."""
        folder = f"{self.home}/.tutti"
        return os.listdir(folder) if os.path.exists(folder) else []

    def close(self):
        shutil.rmtree(self.home, ignore_errors=True)


class OpenMpi(Launcher):
    stop_codes = (1,)  # whatever the processes end with

    def __init__(self):
        super().__init__(["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"])


class Mpich(Launcher):
    # Version 4.0.2 loses the codes of its processes now and then, whatever program they run.
    stop_codes = (143, 0)

    def __init__(self):
        super().__init__(["mpirun.mpich"])


class Torchrun(Launcher):
    stop_codes = (1,)  # as for every failure

    def __init__(self):
        super().__init__([*torchrun_words(), "--no_python", "--standalone"])

    def command(self, processes, program):
        return [*self.words, "--nproc_per_node", str(processes), *program]


class Slurm(Launcher):
    """A real Slurm of one node, with keys, state and ports of its own. Needs root, slurm-wlm and munge."""

    def __init__(self):
        super().__init__(["srun", "--overcommit"])
        self.daemons = []
        os.chmod(self.home, 0o755)
        for name in ("state", "spool"):
            os.mkdir(f"{self.home}/{name}")
        host = socket.gethostname().split(".")[0]
        with open(f"{self.home}/munge.key", "wb") as key:
            key.write(os.urandom(128))
        os.chmod(f"{self.home}/munge.key", 0o400)
        controller, daemon = free_ports(2)
        with open(f"{self.home}/slurm.conf", "w", encoding="utf-8") as config:
            config.write(SLURM_CONFIG.format(host=host, folder=self.home, controller=controller, daemon=daemon,
                                             cores=os.cpu_count()))
        self.environment["SLURM_CONF"] = f"{self.home}/slurm.conf"
        self.start_daemon("munged", "--force", "--foreground", f"--key-file={self.home}/munge.key",
                          f"--socket={self.home}/munge.socket", f"--pid-file={self.home}/munged.pid",
                          f"--log-file={self.home}/munged.log", f"--seed-file={self.home}/munged.seed")
        self.start_daemon("slurmctld", "-D", "-i")
        self.start_daemon("slurmd", "-D", "-N", host)
        deadline = time.monotonic() + 60
        while subprocess.run(["srun", "-n", "1", "-t", "1", "true"], env=self.environment, capture_output=True,
                             timeout=60, check=False).returncode != 0:
            if time.monotonic() > deadline:
                self.close()
                raise RuntimeError("Slurm does not start")
            time.sleep(0.2)

    def start_daemon(self, *command):
        path = shutil.which(command[0]) or f"/usr/sbin/{command[0]}"
        self.daemons.append(subprocess.Popen([path, *command[1:]], env=self.environment,
                                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def terminate(self, job):
        """What Slurm sends before its time limit, and with --signal: to all processes of the step."""
        jobs = subprocess.run(["squeue", "-h", "-o", "%i"], env=self.environment, text=True, capture_output=True,
                              check=True).stdout.split()
        subprocess.run(["scancel", "--signal=TERM", jobs[-1]], env=self.environment, check=True)

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        super().close()


class Ssh(Launcher):
    """`tutti run --hosts`, with the real sshd of netlab hosts; `tutti` lies beside the program. Needs root.

    `folder`: the caller is on host 0 of a lab whose files are there; else the launcher has a lab of its own.
    """

    outlives_workers = True

    def __init__(self, hosts=",".join(f"{address}:2" for address in ssh_lab.ADDRESSES), folder=None):
        super().__init__([])
        self.hosts = hosts
        self.lab = None if folder else ssh_lab.SshLab()
        self.ssh = ssh_lab.ssh_words(folder) if folder else self.lab.ssh

    def command(self, processes, program):
        servers = servers_of(program)
        return [*(self.lab.on_host_0 if self.lab else []), f"{os.path.dirname(program[0])}/tutti", "run", "--hosts",
                self.hosts, "--ssh", " ".join(self.ssh), "--workers", str(processes - servers),
                *(["--ps", str(servers)] if servers else []), "--", *without_roles(program)]

    def close(self):
        if self.lab:
            self.lab.close()
        super().close()


LAUNCHERS = {"openmpi": OpenMpi, "mpich": Mpich, "slurm": Slurm, "torchrun": Torchrun, "ssh": Ssh}
COMMANDS = {"openmpi": "mpirun.openmpi", "mpich": "mpirun.mpich", "slurm": "slurmctld"}


def why_not(name):
    """Why this machine cannot use a launcher; empty if it can."""
    if name == "ssh":
        return ssh_lab.why_not()
    if name == "torchrun":
        return "" if torchrun_words() else "no PyTorch; benchmarks/install-peers torch installs it"
    there = shutil.which(COMMANDS[name], path=os.environ["PATH"] + ":/usr/sbin")
    return "" if there else f"no {COMMANDS[name]}"


def present_launchers():
    """The names of those that this machine can use; says which it leaves out."""
    present = []
    for name in LAUNCHERS:
        reason = why_not(name)
        if reason:
            print(f"left out: {name}: {reason}", flush=True)
        else:
            present.append(name)
    return present


def make_launcher(name):
    return LAUNCHERS[name]()
