"""Tests of the page: made-up figures in, text out. Run by CTest, or: python3 -m unittest."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.dont_write_bytecode = True

from harness import comparison, plan, report  # noqa: E402


def figure(peer, mode, ms, model="mlp-small", threads=1):
    return {"model": model, "threads": threads, "peer": peer, "mode": mode, "ms": ms}


def result(steps, **more):
    return {"commit": "abc1234", "rounds": 3, "seconds": 1, "run_seconds": 60, "failures": [],
            "machine": {"cores": "2 (x)", "SIMD": "AVX2", "memory": "8 GB", "libraries": "l",
                        "system": "Linux", "date": "d", "load": "0.1"},
            "peers": {"torch": {"name": "PyTorch", "version": "2.15.0"}}, "steps": steps,
            "machine_limits": {}, "null": {}, "startup": [], "peak": {}, **more}


class StepTest(unittest.TestCase):
    def test_the_median_of_the_best_mode_counts(self):
        steps = [figure("tutti", "", [2.0, 1.0, 9.0]), figure("torch", "eager", [5.0, 9.0, 4.0]),
                 figure("jax", "jit", [3.0, 1.0, 30.0])]
        text = report.step_section(result(steps))
        self.assertIn("| 2.00 ms | 3.00 ms (JAX jit) | **1.50** (1.00 to 3.33) | 1.4 | met |", text)

    def test_a_missed_target_and_a_loss_are_said(self):
        missed = result([figure("tutti", "", [1.0]), figure("jax", "jit", [1.2])])
        self.assertIn("**missed**", report.step_section(missed))
        self.assertIn("1.20 times JAX jit, short of 1.4", report.losses_section(missed))
        lost = result([figure("tutti", "", [2.0]), figure("jax", "jit", [1.0])])
        self.assertIn("JAX jit is 2.00 times as fast", report.losses_section(lost))

    def test_a_tuned_peer_is_a_peer(self):
        steps = [figure("tutti", "", [1.0]), figure("jax", "jit", [2.0]),
                 figure("tensorflow-onednn", "function, oneDNN", [0.5])]
        text = report.step_section(result(steps))
        self.assertIn("| 0.500 ms (TensorFlow function, oneDNN) | **0.50**", text)
        self.assertIn("TensorFlow function, oneDNN is 2.00 times as fast", report.losses_section(result(steps)))

    def test_a_peer_that_failed_has_no_figure(self):
        steps = [figure("tutti", "", [1.0]), figure("torch", "compile", []),
                 figure("jax", "jit", [2.0])]
        self.assertNotIn("compile", report.modes_section(result(steps)))


class MachineTest(unittest.TestCase):
    def test_flops_of_a_step(self):
        flops = {model.name: model.flops for model in plan.MODELS}
        # 2 * 32 * (784 * 100 forward and into weights, 100 * 10 into inputs too)
        self.assertEqual(flops["mlp-small"], 2 * 32 * (2 * 78400 + 3 * 1000))
        self.assertAlmostEqual(flops["mlp-large"], 1.2242e9, delta=1e6)

    def test_share_of_the_gemm_rate(self):
        flops = next(m.flops for m in plan.MODELS if m.name == "mlp-large")
        ms = flops / 90e9 * 1e3
        steps = [figure("tutti", "", [ms], "mlp-large"), figure("jax", "jit", [ms], "mlp-large")]
        text = report.rate_section(result(steps, machine_limits={"gemm 1": [100.0]}))
        self.assertIn("| 90.0 GFLOP/s | 90% | 85% | met |", text)

    def test_missed_shares_and_engine_targets_are_losses(self):
        flops = next(m.flops for m in plan.MODELS if m.name == "mlp-large")
        ms = flops / 73e9 * 1e3
        steps = [figure("tutti", "", [ms], "mlp-large"),
                 figure("jax", "jit", [2 * ms], "mlp-large")]
        text = report.losses_section(result(
            steps, machine_limits={"gemm 1": [100.0]}, startup=[60.0],
            null={"chain of 1000": [20e6], "run of one node": [3.0], "more for a step cut over 2 devices": [6.0]},
            peak={"tutti": {"cnn, tensors": 70.0}, "eager": 100.0, "compile": 70.0}))
        for part in ("mlp-large, 1 thread: 73% of the MatMul rate, short of 85%",
                     "peak memory: 1.00 of PyTorch compile's, above 0.8",
                     "null nodes, chain of 1000: 20 million/s, short of 30 million/s",
                     "run of one node: 3.00 us, above 2 us",
                     "more for a step cut over 2 devices: 6.00 us, above 5 us",
                     "process start: 60.0 ms, not under 50 ms"):
            self.assertIn(part, text)
        self.assertNotIn("eager", text)

    def test_disturbed_rounds_are_counted(self):
        limits = {"gemm 1": [40.0, 80.0, 78.0], "gemm 2": [160.0, 158.0, 90.0]}
        text = report.disturbance(result([], machine_limits=limits))
        self.assertIn("In 2 of 3 rounds (number 1, 3)", text)
        quiet = report.disturbance(result([], machine_limits={"gemm 1": [80.0, 79.0]}))
        self.assertIn("at least 85%", quiet)


class LossTest(unittest.TestCase):
    def test_a_contender_with_other_losses_is_named(self):
        losses = {"Tutti": [2.0, 1.0], "a": [2.0, 1.0], "b": [2.0, 1.01]}
        self.assertEqual([text.split(":")[0] for text in comparison.unlike(losses)], ["b"])
        self.assertEqual(comparison.unlike({"Tutti": [2.0, 1.0], "a": [2.001, 1.0]}), [])

    def test_a_loss_that_is_gone_may_differ_a_little(self):
        self.assertEqual(comparison.unlike({"Tutti": [2.0, 1e-6], "a": [2.0, 2e-6], "b": [2.0, 1e-6]}), [])


class KernelsTest(unittest.TestCase):
    def test_each_kernel_has_a_row_below_the_best(self):
        text = report.limits_section(result([], machine_limits={"gemm 1": [90.0]},
                                            gemm_kernels={"1": {"oneDNN": [90.0], "OpenBLAS 0.3": [80.0]}}))
        self.assertIn("the best below | 1 | 90.0 GFLOP/s", text)
        self.assertIn("| by OpenBLAS 0.3 | 1 | 80.0 GFLOP/s", text)


class PageTest(unittest.TestCase):
    def test_cautions_stand_in_the_head(self):
        busy = result([figure("tutti", "", [1.0]), figure("torch", "eager", [2.0])])
        busy["machine"]["load"], busy["commit"] = "1.50", "abc1234+"
        text = report.head(busy, "")
        self.assertEqual(text.count("| **not for publication** |"), 2)

    def test_every_part_is_there(self):
        full = result([figure("tutti", "", [1.0]), figure("torch", "eager", [2.0])],
                      null={"chain of 1000": [50e6], "run of one node": [3.0]}, startup=[40.0],
                      peak={"tutti": {"cnn, tensors": 60.0}, "eager": 100.0, "compile": 70.0})
        full["failures"].append("PyTorch compile: no compiler")
        text = report.page(full)
        for part in ("abc1234", "PyTorch 2.15.0", "50 million/s", "| 3.00 us | at most 2 us | "
                     "**missed** |", "| 40.0 ms | under 50 ms | met |",
                     "| PyTorch eager | 100.0 MB | 0.60 | at most 0.8 | met |",
                     "| PyTorch compile | 70.0 MB | 0.86 | at most 0.8 | **missed** |",
                     "PyTorch compile: no compiler"):
            self.assertIn(part, text)

    def test_debian_torch_is_named(self):
        info = {"torch": {"name": "PyTorch", "version": "1.13.0", "from_debian": True}}
        self.assertIn("1.13.0 (Debian's python3-torch, standing in for 2.15)",
                      report.versions(result([], peers=info)))


if __name__ == "__main__":
    unittest.main()
