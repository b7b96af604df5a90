#!/usr/bin/env python3
"""Three netlab hosts, of which hosts 1 and 2 have a real sshd: for tests of `tutti run --hosts`.

    with SshLab() as lab:
        subprocess.run([*lab.on_host_0, *lab.ssh, "10.77.0.2", "true"])

Needs root, iproute2 and openssh-server. As a program it is what runs on each host: the sshd, until the lab is over.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

NETLAB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/netlab")
SSHD = "/usr/sbin/sshd"
ADDRESSES = ("10.77.0.2", "10.77.0.3")  # of hosts 1 and 2


def why_not():
    """Why this machine can have no such lab; empty if it can."""
    if not os.path.exists(SSHD) or shutil.which("ssh") is None:
        return "no ssh and sshd"
    if subprocess.run([NETLAB, "--check"], capture_output=True, check=False).returncode != 0:
        return "this machine allows no network namespaces"
    return ""


def prepare(folder):
    """Keys and configurations."""
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{key}"], check=True)
    shutil.copy(f"{folder}/user_key.pub", f"{folder}/authorized_keys")
    with open(f"{folder}/sshd_config", "w", encoding="utf-8") as config:
        config.write(f"HostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\n"
                     "StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
                     "UsePAM no\nPort 2200\nMaxStartups 100\n")
    with open(f"{folder}/ssh_config", "w", encoding="utf-8") as config:
        config.write(f"Host *\n  Port 2200\n  User root\n  IdentityFile {folder}/user_key\n"
                     f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n"
                     "  StrictHostKeyChecking no\n  LogLevel ERROR\n  ConnectTimeout 5\n")


def ssh_words(folder):
    return ["ssh", "-F", f"{folder}/ssh_config"]


def serve(folder):
    """On a host: its sshd until the lab is over; host 0 has none."""
    host = os.environ["NETLAB_HOST"]
    server = None
    if host != "0":
        os.makedirs("/run/sshd", exist_ok=True)
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", f"{folder}/sshd_config",
                                   "-o", f"ListenAddress={os.environ['NETLAB_ADDRESS']}:2200",
                                   "-o", f"PidFile={folder}/sshd-{host}.pid"], stderr=subprocess.DEVNULL)
    while not os.path.exists(f"{folder}/over"):
        time.sleep(0.05)
    if server is not None:
        server.terminate()
        server.wait()
    return 0


def wait_until_served(folder):
    ready = [f"{folder}/sshd-{host}.pid" for host in (1, 2)]
    deadline = time.monotonic() + 30
    while not all(map(os.path.exists, ready)):
        if time.monotonic() > deadline:
            raise RuntimeError("the sshds do not start")
        time.sleep(0.05)


def end(folder):
    """Tells the hosts that the lab is over."""
    with open(f"{folder}/over", "w", encoding="utf-8"):
        pass


class SshLab:
    """The hosts, until close(). The caller stays outside; what it runs behind `on_host_0` is on host 0."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="tutti-ssh-")
        self.network = None
        try:
            prepare(self.folder)
            self.network = subprocess.Popen([NETLAB, "--hosts", "3", "--timeout", "86400", "--", sys.executable,
                                             os.path.abspath(__file__), self.folder], stdout=subprocess.DEVNULL)
            wait_until_served(self.folder)
        except BaseException:
            self.close()
            raise
        self.on_host_0 = ["ip", "netns", "exec", f"netlab-{self.network.pid}-host0"]
        self.ssh = ssh_words(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        end(self.folder)
        if self.network is not None:
            try:
                self.network.wait(30)
            except subprocess.TimeoutExpired:
                self.network.terminate()
                self.network.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1]))
