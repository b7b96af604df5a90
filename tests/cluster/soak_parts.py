#!/usr/bin/env python3
"""The part "launchers" of scripts/soak, in a copy of the tree's skeleton whose tests only say how they ended.

    tests/cluster/soak_parts.py [--bin build/bin]
"""
import os
import shutil
import subprocess
import tempfile
import unittest

import tasks

SOAK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/soak")
NAMES = ("launchers", "slurm", "torchrun", "ssh_hosts")


class SoakParts(unittest.TestCase):
    def setUp(self):
        self.tree = tempfile.mkdtemp(prefix="tutti-soak-")
        self.addCleanup(shutil.rmtree, self.tree)
        for folder in ("scripts", "docs", "tests/cluster", "tests/fault", "path"):
            os.makedirs(f"{self.tree}/{folder}")
        shutil.copy(SOAK, f"{self.tree}/scripts/soak")
        for name in ("cmake", "git"):
            self.write(f"path/{name}", 0)
        self.write("tests/fault/launcher_faults.py", 0)

    def write(self, path, code):
        with open(f"{self.tree}/{path}", "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexit {code}\n")
        os.chmod(f"{self.tree}/{path}", 0o755)

    def soak(self, **codes):
        """The exit code and the report, where tests end with these codes and the others with 0."""
        for name in NAMES:
            self.write(f"tests/cluster/{name}.py", codes.get(name, 0))
        done = subprocess.run([f"{self.tree}/scripts/soak", "launchers"], text=True, capture_output=True, check=False,
                              timeout=60, env={**os.environ, "PATH": f"{self.tree}/path:{os.environ['PATH']}"})
        with open(f"{self.tree}/docs/soak.md", encoding="utf-8") as file:
            return done.returncode, file.read()

    def test_a_launcher_that_is_missing_is_left_out_and_named(self):
        code, report = self.soak(slurm=77, torchrun=77)
        self.assertEqual(code, 0, report)
        self.assertIn("launchers | passed", report)
        self.assertIn("left out: slurm torchrun", report)

    def test_a_launcher_that_fails_fails_the_part(self):
        for name in NAMES:
            code, report = self.soak(**{name: 1})
            self.assertEqual(code, 1, report)
            self.assertIn("launchers | **failed**", report)


if __name__ == "__main__":
    tasks.main(__doc__)
