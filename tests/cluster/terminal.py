#!/usr/bin/env python3
"""Runs `tutti run` in a terminal of a given width, and looks at the bar that it draws.

    tests/cluster/terminal.py --bin build/bin
"""
import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import unittest

BIN = "build/bin"


def run_in_terminal(columns, *command):
    """What the command writes to a terminal so wide, and its exit code."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
                               env=dict(os.environ, TERM="xterm", NO_COLOR="1"))
    os.close(slave)
    written = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the last process has closed the terminal
            break
        if not piece:
            break
        written += piece
    os.close(master)
    return written.decode().replace("\r\n", "\n"), process.wait()


class Terminal(unittest.TestCase):
    def train(self, columns):
        text, code = run_in_terminal(
            columns, f"{BIN}/tutti", "run", "--workers", "1", "--cores-per-worker", "1", "--", f"{BIN}/fashion_mnist",
            "--model", "mlp", "--strategy", "allreduce", "--max-steps", "1500")
        self.assertEqual(code, 0, text)
        return text

    def bars(self, text):
        return re.findall(r"(?:^|\r)(step [^\r\n]+)", text, re.MULTILINE)

    def test_a_narrow_terminal_keeps_rate_and_loss(self):
        bars = self.bars(self.train(40))
        self.assertTrue(bars)
        for bar in bars:
            self.assertLess(len(bar), 40)
            self.assertRegex(bar, r"^step +\d+/1500  [\d.]+/s  loss \d\.\d{4}$")

    def test_a_wide_terminal_has_a_bar(self):
        bars = self.bars(self.train(100))
        self.assertTrue(bars)
        for bar in bars:
            self.assertRegex(bar, r"^step +\d+/1500 \[[=> ]{10,}\]  .*/s  loss .* left$")

    def test_no_bar_is_left_below_the_result(self):
        text = self.train(80)
        self.assertNotRegex(text[text.index("test accuracy"):], r"step +\d+/1500")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=BIN)
    arguments, rest = parser.parse_known_args()
    BIN = arguments.bin
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
