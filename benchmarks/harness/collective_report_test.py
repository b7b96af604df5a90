"""Tests of the section on collectives: made-up figures in, text out. Run by CTest."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.dont_write_bytecode = True

from harness import collective_jobs as jobs  # noqa: E402
from harness import collective_network as network  # noqa: E402
from harness import collective_plan as plan  # noqa: E402
from harness import collective_report as report  # noqa: E402
from harness import sections  # noqa: E402
from harness.processes import BenchError  # noqa: E402

MB = plan.M


def figure(contender, size, us, ranks=2, mode="", back_to_back=(), bound=()):
    return {"ranks": ranks, "contender": contender, "mode": mode, "bytes": size, "us": us,
            "back_to_back_us": list(back_to_back), "bound": list(bound)}


def result(figures, **more):
    return {"commit": "abc1234", "rounds": 3, "seconds": 0.2, "run_seconds": 60, "failures": [],
            "machine": {"cores": "2 (x)", "SIMD": "AVX2", "memory": "8 GB", "libraries": "l",
                        "system": "Linux", "date": "d", "load": "0.1"},
            "versions": {"openmpi": "4.1.4"}, "figures": figures, "bound": {}, **more}


class RatesTest(unittest.TestCase):
    def test_the_best_mode_of_the_best_library_counts(self):
        figures = [figure("tutti", 64 * MB, [10e3, 8e3, 9e3]),
                   figure("openmpi", 64 * MB, [50e3, 60e3, 70e3], mode="ring"),
                   figure("mpich", 64 * MB, [30e3, 1e3, 90e3], mode="as it comes"),
                   figure("mpich", 64 * MB, [20e3, 18e3, 19e3], mode="two arrays")]
        text = report.rates_section(result(figures))
        self.assertIn("| 2 | 64 MB | 7.46 |  | 3.53 (MPICH, two arrays) | "
                      "**2.11** (2.00 to 2.25) | 2.5 | **missed** |", text)

    def test_short_of_the_target_and_of_the_bound(self):
        figures = [figure("tutti", 16 * MB, [2e3], bound=[50.0]),
                   figure("tutti-ordinary", 16 * MB, [4e3]),
                   figure("oneccl", 16 * MB, [3e3], mode="direct")]
        text = report.rates_section(result(figures))
        self.assertIn("**1.50** | 2.0 | **missed** | 0.75, **missed** | 12.5 | 67%, **missed** |",
                      text)

    def test_the_bound_is_a_promise_for_two_ranks_only(self):
        figures = [figure("tutti", 16 * MB, [9e3], ranks=4, bound=[40.0]),
                   figure("gloo", 16 * MB, [60e3], ranks=4)]
        text = report.rates_section(result(figures))
        self.assertIn("| 5.0 | 37% |", text)

    def test_the_share_of_the_bound_is_taken_round_by_round(self):
        # 80% of the bound in every round, while memory itself was slow, quick and slow.
        rates = [8.0, 16.0, 8.8]
        figures = [figure("tutti", 16 * MB, [16 * MB / r * 1e-3 for r in rates],
                          bound=[r / 0.8 * 4 for r in rates])]
        text = report.rates_section(result(figures))
        self.assertIn("| 11.0 | 80%, met |", text)
        figures[0]["bound"] = [r / 0.7 * 4 for r in rates[:2]] + [r / 0.9 * 4 for r in rates[2:]]
        self.assertIn("| 70%, **missed** |", report.rates_section(result(figures)))

    def test_more_than_the_bound_is_no_success(self):
        figures = [figure("tutti", 16 * MB, [1e3], bound=[50.0])]
        self.assertIn("| 134%, disturbed |", report.rates_section(result(figures)))

    def test_disturbed_rounds_are_counted(self):
        text = report.disturbance(result([], bound={str(16 * MB): [9.0], str(64 * MB): [40.0, 30.0]}))
        self.assertIn("At 64 MB B was 30.0 to 40.0 GB/s", text)
        self.assertIn("in 1 of 2 rounds", text)
        quiet = report.disturbance(result([], bound={str(64 * MB): [40.0, 39.0]}))
        self.assertNotIn("other work", quiet)

    def test_targets_are_those_of_size_and_ranks(self):
        self.assertEqual([plan.rate_target(2, s) for s in plan.SIZES],
                         [None, None, 2.0, 2.0, 2.0, 1.6, 2.0, 2.5, 2.5])
        self.assertEqual([plan.rate_target(4, s) for s in plan.SIZES],
                         [None, None, 1.3, 1.3, 1.3, 1.5, 2.0, 2.0, 2.0])


class SmallTest(unittest.TestCase):
    def test_two_ranks_back_to_back_have_600_nanoseconds(self):
        figures = [figure("tutti", 4, [2.0], back_to_back=[0.5]),
                   figure("intelmpi", 4, [0.5], mode="m", back_to_back=[0.3])]
        text = report.small_section(result(figures))
        self.assertIn("| back to back | 0.50 us | 0.30 us (Intel MPI, m) | at most 0.60 us | met |",
                      text)
        self.assertIn("| after a barrier | 2.00 us | 0.50 us (Intel MPI, m) |  |  |", text)

    def test_four_ranks_may_take_twice_the_best(self):
        figures = [figure("tutti", 1024, [30.0], ranks=4),
                   figure("intelmpi", 1024, [13.0], ranks=4, mode="m")]
        self.assertIn("| after a barrier | 30 us | 13 us (Intel MPI, m) | at most 26 us | "
                      "**missed** |", report.small_section(result(figures)))


class BusyTest(unittest.TestCase):
    def test_the_limit_and_the_best_peer(self):
        busy = {"Tutti": [50.0, 30.0, 45.0], "Open MPI, as it comes": [90.0], "Open MPI, yielding": [15.0]}
        self.assertIn("| 2 | 64 KB | 45 us (30 us to 50 us) | 15 us (Open MPI, yielding) | at most 40 us | **missed** |",
                      report.busy_section(result([], busy=busy)))

    def test_not_measured(self):
        self.assertEqual(report.busy_section(result([])), "Not measured in this run.\n")


class TcpTest(unittest.TestCase):
    def test_only_gloo_and_only_large(self):
        figures = [figure("tutti-tcp", MB, [1e3]), figure("gloo", MB, [1.5e3], mode="ring"),
                   figure("gloo", 4, [100.0], mode="ring"), figure("mpich", MB, [1.0])]
        text = report.tcp_section(result(figures))
        self.assertIn("| 2 | 1 MB | 1.05 | 0.70 (ring) | **1.50** | 1.3 | met |", text)
        self.assertNotIn("4 B", text)


class NetworkTest(unittest.TestCase):
    def test_times_stand_against_their_predictions(self):
        # 64 MB at 0.1 GB/s take 0.671 s; the ring moves 1.5 times that.
        second = 64 * MB / 0.1 * 1e-3
        found = {"stream": [0.1, 0.09, 0.11],
                 "cases": {"ring": [1.5 * second * 1.02], "central 1": [2 * second * 1.2],
                           "flat": [2e6], "hierarchical": [1e6, 9e6, 1.5e6]}}
        text = network.section(found)
        self.assertIn("2(N-1)/N K/B = 1.007 s | 1.020 | at most 1.05 | met |", text)
        self.assertIn("2NK/(S B) = 1.342 s | 1.200 | 0.9 to 1.1 | **missed** |", text)
        self.assertIn("| the ring: 2.000 s | 0.750 | below 1 | met |", text)
        self.assertNotIn("own: 2", text)

    def test_only_rank_0_is_read(self):
        output = '[1] {"us": 1}\n[0] [info] hello\n[0] {"us": 2}\n'
        self.assertEqual(network.first_rank_lines(output), [{"us": 2}])


class SectionTest(unittest.TestCase):
    def test_every_part_is_there_without_tutti_too(self):
        figures = [figure("openmpi", 4, [1.0], mode="as it comes", back_to_back=[1.0]),
                   figure("openmpi", MB, [100.0], mode="ring"), figure("gloo", MB, [900.0])]
        text = report.section(result(figures, failures=["oneCCL: no"]))
        for part in ("abc1234", "Open MPI 4.1.4", "10.5 (ring)", "1.00 us (as it comes)",
                     "- oneCCL: no"):
            self.assertIn(part, text)

    def test_a_section_replaces_itself_and_survives_the_rest(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text("# Page\n")
            sections.write(page, "collectives", "first\n")
            sections.write(page, "collectives", "second\n")
            self.assertNotIn("first", page.read_text())
            sections.write(page, "training", "third\n")
            sections.write_keeping(page, "# Another page\n")
            self.assertEqual(page.read_text().count("second"), 1)
            self.assertEqual(page.read_text().count("third"), 1)
            self.assertTrue(page.read_text().startswith("# Another page\n"))


class JobTest(unittest.TestCase):
    def test_a_failing_job_ends_the_others_and_says_why(self):
        with self.assertRaisesRegex(BenchError, "exits with 3: broken"):
            jobs.run_together([["sh", "-c", "echo broken >&2; exit 3"], ["sleep", "1000"]])

    def test_the_first_rank_speaks(self):
        self.assertEqual(jobs.run_together([["echo", "a"], ["echo", "b"]]), "a\n")


if __name__ == "__main__":
    unittest.main()
