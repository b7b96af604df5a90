"""Tests of what every comparison does around its figures: waiting for a quiet machine, cautions, and marked sections.
Run by CTest, or: python3 -m unittest."""

import argparse
import contextlib
import io
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.dont_write_bytecode = True

from harness import machine, sections  # noqa: E402

PLACE = {"cores": "2", "system": "Linux", "date": "d", "load": "0.10"}


class Loads:
    """Gives one load after the other, then the last one for ever; counts the seconds that were waited."""

    def __init__(self, *loads):
        self._loads, self.waited = list(loads), 0

    def wait(self, no_wait=False):
        """(the load that was returned, what was said)"""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            found = machine.wait_for_quiet(argparse.Namespace(no_wait=no_wait), self._load, self._sleep)
        return found, said.getvalue()

    def _load(self):
        return self._loads.pop(0) if len(self._loads) > 1 else self._loads[0]

    def _sleep(self, seconds):
        self.waited += seconds


class WaitTest(unittest.TestCase):
    def test_a_quiet_machine_starts_at_once(self):
        loads = Loads(0.4)
        self.assertEqual(loads.wait(), (0.4, ""))
        self.assertEqual(loads.waited, 0)

    def test_waits_until_the_load_is_low_and_says_so(self):
        loads = Loads(2.0, 1.0, 0.3)
        found, said = loads.wait()
        self.assertEqual(found, 0.3)
        self.assertEqual(loads.waited, 2 * machine.LOOK_SECONDS)
        self.assertIn("waiting for the load to fall below 0.5 (it is 2.0), at most 10 minutes", said)

    def test_gives_up_after_ten_minutes(self):
        loads = Loads(1.5)
        found, said = loads.wait()
        self.assertEqual((found, loads.waited), (1.5, 600))
        self.assertIn("the load is still 1.5; the figures will be marked", said)

    def test_no_wait(self):
        loads = Loads(3.0)
        self.assertEqual(loads.wait(no_wait=True), (3.0, ""))
        self.assertEqual(loads.waited, 0)


class CautionTest(unittest.TestCase):
    def test_a_quiet_run_of_a_commit_has_none(self):
        self.assertEqual(machine.cautions(PLACE, "abc1234"), [])
        self.assertEqual(machine.line(PLACE, "abc1234"), "Commit abc1234; 2 cores, Linux; d, load before it: 0.10.")

    def test_load_and_changed_tree_are_said(self):
        text = machine.line(dict(PLACE, load="0.50"), "abc1234+", "torch 2")
        self.assertIn("; torch 2; d, load before it: 0.50. **Not for publication: other work ran", text)
        self.assertIn("the programs are not those of the commit", text)


class SectionsTest(unittest.TestCase):
    PAGE = ("# Page\n\nold text\n\n<!-- ps: written by benchmarks/compare-ps; do not edit -->\nps figures\n<!-- /ps -->\n\n"
            "<!-- ps-network: written by another program -->\nnetwork figures\n<!-- /ps-network -->\n")

    def test_a_new_page_keeps_every_section(self):
        text = sections.keep_all(self.PAGE, "# Page\n\nnew text\n")
        self.assertNotIn("old text", text)
        self.assertEqual(text, self.PAGE.replace("old text", "new text"))
        self.assertEqual(sections.keep_all(text, "# Page\n\nnew text\n"), text)

    def test_a_page_without_sections_is_the_new_one(self):
        self.assertEqual(sections.keep_all("# Page\n", "# Other\n"), "# Other\n")

    def test_replacing_one_section_keeps_the_others(self):
        text = sections.replace(self.PAGE, "ps", "new\n")
        self.assertIn("edit -->\nnew\n<!-- /ps -->", text)
        self.assertIn("network figures", text)
        self.assertNotIn("ps figures", text)


if __name__ == "__main__":
    unittest.main()
