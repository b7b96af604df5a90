"""Where and of what a figure was measured, and whether the machine was quiet."""

import datetime
import os
import pathlib
import subprocess
import sys
import time

QUIET_LOAD = 0.5     # below this load figures may be published
WAIT_SECONDS = 600   # for other work to end
LOOK_SECONDS = 5


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


def add_arguments(parser):
    parser.add_argument("--no-wait", action="store_true",
                        help=f"start at once, whatever the load (wait up to {WAIT_SECONDS // 60} "
                             f"minutes for one below {QUIET_LOAD})")


def wait_for_quiet(options, load=lambda: os.getloadavg()[0], sleep=time.sleep):
    """Waits until the load is below QUIET_LOAD, for at most WAIT_SECONDS; returns the load."""
    found = load()
    if options.no_wait or found < QUIET_LOAD:
        return found
    print(f"waiting for the load to fall below {QUIET_LOAD} (it is {found:.1f}), at most "
          f"{WAIT_SECONDS // 60} minutes; --no-wait starts at once", file=sys.stderr, flush=True)
    for _ in range(WAIT_SECONDS // LOOK_SECONDS):
        sleep(LOOK_SECONDS)
        found = load()
        if found < QUIET_LOAD:
            break
    else:
        print(f"the load is still {found:.1f}; the figures will be marked", file=sys.stderr,
              flush=True)
    return found


def describe(tutti, options):
    """Waits for a quiet machine, then describes it: a dictionary of strings. `tutti doctor`, where
    there is one, knows the most of it. Every comparison calls this before it measures."""
    load = wait_for_quiet(options)
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
        "load": f"{load:.2f}",
    }


def cautions(place, name):
    """Why figures measured at this place, with programs of this commit, are not for publication."""
    found = []
    if float(place["load"]) >= QUIET_LOAD:
        found.append(f"other work ran on the machine (load {place['load']} before the run; expected below {QUIET_LOAD})")
    if name.endswith("+"):
        found.append("the programs are not those of the commit: the tree was changed, or they are older")
    return found


def line(place, name, *more):
    """What stands above the figures of a section: commit, machine, date, load, and cautions."""
    parts = [f"Commit {name}", f"{place['cores']} cores, {place['system']}", *more,
             f"{place['date']}, load before it: {place['load']}"]
    warned = cautions(place, name)
    return "; ".join(parts) + "." + (f" **Not for publication: {'; '.join(warned)}.**" if warned else "")
