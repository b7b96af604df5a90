"""Where and of what a figure was measured."""

import datetime
import os
import pathlib
import subprocess


def commit(program):
    """The commit of the tree in which `program` lies, with + when the tree was changed since or the
    program is older than it: then the program need not be what the commit builds."""
    program = pathlib.Path(program).resolve()

    def git(*words):
        return subprocess.run(["git", "-C", str(program.parent), *words], capture_output=True,
                              text=True).stdout.strip()
    name = git("rev-parse", "--short", "HEAD")
    if not name:
        return "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no", ":/", ":(exclude,top)docs")
    older = program.stat().st_mtime < float(git("log", "-1", "--format=%ct"))
    return name + ("+" if changed or older else "")


def describe(tutti):
    """A dictionary of strings; `tutti doctor`, where there is one, knows the most of it."""
    doctor = tutti.doctor() if tutti else ""
    lines = (line.split(None, 1) for line in doctor.splitlines())
    known = dict(words for words in lines if len(words) == 2)
    kernel = os.uname()
    return {
        "cores": known.get("cores", str(os.cpu_count())),
        "SIMD": known.get("SIMD", "unknown"),
        "memory": known.get("memory", "unknown").split(",")[0],
        "libraries": known.get("libraries", "unknown"),
        "system": f"{kernel.sysname} {kernel.release}",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "load": f"{os.getloadavg()[0]:.1f}",
    }
