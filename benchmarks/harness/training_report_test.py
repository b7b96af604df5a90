"""Tests of the section on training: made-up figures in, text out; and of its jobs. Run by CTest."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.dont_write_bytecode = True

from harness import training_jobs as jobs  # noqa: E402
from harness import training_network as network  # noqa: E402
from harness import training_plan as plan  # noqa: E402
from harness import training_report as report  # noqa: E402
from harness.comparison import unlike  # noqa: E402
from harness.processes import BenchError  # noqa: E402
from harness.training_comparison import Contender  # noqa: E402

CNN = next(model for model in plan.MODELS if model.name == "cnn")


def figure(contender, rates, mode="", way=plan.TOGETHER, model="cnn"):
    return {"model": model, "contender": contender, "way": way, "mode": mode, "rates": rates}


def result(figures, **more):
    return {"commit": "abc1234", "rounds": 3, "seconds": 2, "run_seconds": 60, "failures": [],
            "machine": {"cores": "2 (x)", "SIMD": "AVX2", "memory": "8 GB", "libraries": "l",
                        "system": "Linux", "date": "d", "load": "0.1"},
            "peers": {"torch": {"name": "PyTorch", "version": "2.15.0"}}, "figures": figures,
            "machine_limits": {}, **more}


class SpeedTest(unittest.TestCase):
    def test_the_median_of_the_best_mode_counts(self):
        figures = [figure("tutti", [4000.0, 5000.0, 1000.0]),
                   figure("torch", [2000.0, 2500.0, 1000.0], "eager"),
                   figure("torch", [2400.0, 100.0, 50.0], "compile"),
                   figure("tensorflow", [1500.0, 1600.0, 1700.0], "function")]
        self.assertIn("| 4,000 | 2,000 (PyTorch eager) | **2.00** (1.00 to 2.00) | 1.4 | met |",
                      report.speed_section(result(figures)))

    def test_alone_and_independent_are_no_opponents(self):
        figures = [figure("tutti", [3000.0]), figure("torch", [1000.0], "eager"),
                   figure("torch", [9000.0], "eager", way=plan.ALONE),
                   figure("tutti", [9000.0], way=plan.INDEPENDENT)]
        self.assertIn("| 3,000 | 1,000 (PyTorch eager) | **3.00** |",
                      report.speed_section(result(figures)))

    def test_a_tuned_peer_is_a_peer(self):
        figures = [figure("tutti", [2000.0]), figure("torch", [1000.0], "eager"),
                   figure("tensorflow-onednn", [4000.0], "function, oneDNN")]
        self.assertIn("| 4,000 (TensorFlow function, oneDNN) | **0.50** | 1.4 | **missed** |",
                      report.speed_section(result(figures)))
        self.assertIn("cnn: 0.50 times TensorFlow function, oneDNN, short of 1.4",
                      report.misses_section(result(figures)))

    def test_a_miss_is_said(self):
        figures = [figure("tutti", [1300.0]), figure("torch", [1000.0], "eager")]
        self.assertIn("**missed**", report.speed_section(result(figures)))
        self.assertIn("cnn: 1.30 times PyTorch eager, short of 1.4",
                      report.misses_section(result(figures)))


class WaysTest(unittest.TestCase):
    WAYS = {"ways": [{"title": "towers", "target": 0.95, "rates": [1900.0, 1880.0], "against": [2000.0, 2000.0]}],
            "start": {plan.TOGETHER: [3.0], plan.ALONE: [2.0]}}

    def test_each_way_has_its_verdict(self):
        text = report.ways_section(result([], **self.WAYS))
        self.assertIn("| towers | 1,890 samples/s | 2,000 samples/s | **0.94** (0.94 to 0.95) | at least 0.95 | "
                      "**missed** |", text)
        self.assertIn("| 3.00 s | 2.00 s | **1.50** | at most 2 | met |", text)
        self.assertIn("towers: **0.94** (0.94 to 0.95), not at least 0.95", report.misses_section(
            result([], **self.WAYS)))

    def test_nothing_where_it_was_not_measured(self):
        self.assertEqual(report.ways_section(result([])), "")


class EfficiencyTest(unittest.TestCase):
    def test_against_independent_workers(self):
        figures = [figure("tutti", [1800.0, 1700.0]),
                   figure("tutti", [2000.0, 2000.0], way=plan.INDEPENDENT)]
        text = report.efficiency_section(result(figures))
        self.assertIn("| cnn | 1,750 | 2,000 | **88%** (85% to 90%) | 90% | **missed** |", text)
        self.assertIn("88% of independent workers, short of 90%",
                      report.misses_section(result(figures)))

    def test_nothing_was_promised_of_the_small_model(self):
        figures = [figure("tutti", [100.0], model="mlp-small"),
                   figure("tutti", [200.0], way=plan.INDEPENDENT, model="mlp-small")]
        self.assertIn("| **50%** |  |  |", report.efficiency_section(result(figures)))
        self.assertIn("Nowhere", report.misses_section(result(figures)))

    def test_the_gain_is_that_of_the_same_mode(self):
        figures = [figure("torch", [340.0, 344.0], "eager"),
                   figure("torch", [171.0], "eager", way=plan.ALONE),
                   figure("torch", [999.0], "compile", way=plan.ALONE)]
        self.assertIn("| cnn | PyTorch eager | 342 | 340 to 344 | 171 | 2.00 |",
                      report.gain_section(result(figures)))


class SectionTest(unittest.TestCase):
    def test_every_part_is_there(self):
        figures = [figure("tutti", [3000.0]), figure("torch", [1000.0], "eager")]
        text = report.section(result(figures, failures=["PyTorch compile: no compiler"],
                                     machine_limits={"gemm 2": [100.0, 50.0]}))
        for part in ("abc1234", "PyTorch 2.15.0", "PyTorch DistributedDataParallel, Gloo",
                     "In 1 of 2 rounds (number 2)", "- PyTorch compile: no compiler",
                     "benchmarks/compare-training --out docs/benchmarks.md"):
            self.assertIn(part, text)

    def test_without_figures_of_tutti(self):
        text = report.section(result([figure("torch", [1000.0], "eager"), figure("tutti", [])]))
        self.assertIn("cnn: Tutti has no figure", text)


class NetworkTest(unittest.TestCase):
    def figures(self, **seconds):
        """A run in which cases took so long; communication is all of it."""
        cases = {key.replace("_", " "): [{"seconds": value, "communication": value,
                                          "gradients": f"by {key}"}]
                 for key, value in seconds.items()}
        return {"stream": [0.1], "cases": cases}

    def test_communication_is_held_against_the_stream(self):
        # 1.5 * 50 MB / 100 MB/s = 0.751 s
        rows = network.rows(self.figures(one_sample=0.8))
        self.assertEqual(len(rows), 1)
        self.assertEqual(rows[0][2:], ["2(N-1)/N K/B = 0.751 s", "1.07", "at most 1.15", "met"])

    def test_a_step_may_hide_the_shorter_of_backward_and_communication(self):
        hidden = self.figures(one_sample=0.8, forward=0.2, local=0.5, step=1.05)
        self.assertIn("= 1.000 s", network.rows(hidden)[1][2])
        self.assertEqual(network.rows(hidden)[1][3:], ["1.05", "at most 1.1", "met"])
        computing = self.figures(one_sample=0.8, forward=0.2, local=2.2, step=2.6)
        self.assertIn("= 2.200 s", network.rows(computing)[1][2])
        self.assertEqual(network.rows(computing)[1][5], "**missed**")

    def test_rivals_are_compared(self):
        rows = network.rows(self.figures(one_sample=0.8, bfloat16=0.4, flat=0.9, auto=0.5))
        self.assertEqual([row[3] for row in rows[1:]], ["0.50", "0.56"])

    def test_the_section_says_how_gradients_travelled(self):
        text = network.section(self.figures(one_sample=0.8, auto=0.5), "2 (x)")
        for part in ("100.0 MB/s", "- 4 hosts: by one_sample", "of 2 hosts: by auto",
                     "the cores of this machine, 2 (x), so", "forward (not measured)"):
            self.assertIn(part, text)
        self.assertEqual(network.section(None, "2"), "")

    def test_every_rank_gets_its_place(self):
        case = next(case for case in network.CASES if case.key == "auto")
        config = json.loads(network.tf_config(case).replace("{rank}", "3"))
        self.assertEqual(config["task"], {"type": "worker", "index": 3})
        self.assertEqual(config["cluster"]["worker"],
                         ["10.77.0.1:4711", "10.77.0.1:4712", "10.77.0.2:4711", "10.77.0.2:4712"])

    def test_ranks_share_the_cores(self):
        case = network.CASES[0]
        bind = network.command("train_bench", case, [4, 7])
        script = bind[bind.index("-c") + 1].replace("exec taskset -c", "echo").replace('"$@"', "")
        for rank, core in ((0, "4"), (1, "7"), (2, "4")):
            done = subprocess.run(["sh", "-c", script, "sh", "program"], text=True,
                                  capture_output=True, env={**os.environ, "NETLAB_RANK": str(rank)})
            self.assertEqual(done.stdout.strip(), core)


class JobTest(unittest.TestCase):
    def program(self, name, script):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = pathlib.Path(folder.name) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return program

    def reporting(self, script):
        """A program in place of train_bench; $REPORT is where its report goes."""
        return self.program("train_bench", f"for REPORT; do :; done\n{script}")

    def peer_job(self, script):
        """A job of two workers, each of which is the script in place of a peer's Python."""
        python = self.program("torch/bin/python", script)
        with mock.patch.dict(os.environ, TUTTI_PEERS=str(python.parents[2])):
            job = jobs.PeerJob(plan.PEERS[0], CNN, plan.TOGETHER, subprocess.DEVNULL)
        self.addCleanup(job.close)
        return job

    def test_independent_workers_add_up(self):
        program = self.reporting("""echo '{"samples_per_second": 50.5}' > "$REPORT" """)
        alone = jobs.TuttiJob(None, program, CNN, plan.ALONE)
        self.assertEqual(alone.measure("", 10), 50.5)
        independent = jobs.TuttiJob(None, program, CNN, plan.INDEPENDENT)
        self.assertEqual(independent.measure("", 10), 50.5 * plan.WORKERS)

    def test_a_worker_without_a_report_is_an_error(self):
        with self.assertRaisesRegex(BenchError, "gave no report"):
            jobs.TuttiJob(None, self.reporting("exit 0"), CNN, plan.ALONE).measure("", 10)

    def test_the_slowest_worker_of_a_peer_counts(self):
        job = self.peer_job("""while read line; do echo "{\\"seconds\\": 1$RANK}"; done""")
        self.assertAlmostEqual(job.measure("eager", 10), 10 * 2 * 64 / 11)

    def test_a_job_ends_with_its_first_worker_that_fails(self):
        job = self.peer_job("""while read line; do
            [ $RANK = 0 ] && echo '{"name": "PyTorch"}' || echo '{"error": "broken"}'; done""")
        with self.assertRaisesRegex(BenchError, "broken"):
            job.info()
        with self.assertRaisesRegex(BenchError, "its process ended with -9"):
            job.info()

    def test_workers_have_places_of_their_own(self):
        first, second = jobs.places(2)
        self.assertEqual((first["RANK"], second["RANK"]), ("0", "1"))
        self.assertEqual(first["MASTER_PORT"], second["MASTER_PORT"])
        clusters = [json.loads(place["TF_CONFIG"]) for place in (first, second)]
        self.assertEqual(clusters[0]["cluster"], clusters[1]["cluster"])
        self.assertEqual(len(set(clusters[0]["cluster"]["worker"])), 2)
        self.assertEqual([c["task"]["index"] for c in clusters], [0, 1])

    def test_steps_fill_the_time(self):
        class Job:
            asked = []

            def measure(self, mode, steps):
                self.asked.append(steps)
                return 1280.0

        contender = Contender(Job(), "torch", "PyTorch", plan.TOGETHER, "eager", CNN)
        contender.measure(seconds=2.0)
        contender.measure(seconds=0.001)
        contender.measure(seconds=2.0)
        self.assertEqual(Job.asked[1:], [2 * 1280 / (2 * 64), 5])  # 5: the least

    def test_another_model_is_noticed(self):
        self.assertEqual(unlike({}), [])
        self.assertEqual(unlike({"a": [2.0, 1.9], "b": [2.0001, 1.9]}), [])
        found = unlike({"a": [2.0, 1.9], "b": [2.0, 1.9], "c": [2.0, 1.8]})
        self.assertEqual(len(found), 1)
        self.assertIn("c: losses [2.0, 1.8]", found[0])


if __name__ == "__main__":
    unittest.main()
