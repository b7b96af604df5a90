"""What a job under another launcher does when it is stopped, and with what codes it ends: for tests of each launcher."""
import filecmp
import os
import tempfile


def training(folder, *flags, steps):
    return [f"{folder}/fashion_mnist", "--model", "mlp", "--batch-size", "16", "--strategy", "allreduce",
            "--start-timeout", "30", "--log-every", "1", "--max-steps", str(steps), *flags]


def newest(model_dir):
    """The step of the newest checkpoint; 0 where there is none."""
    return max((int(name.split("-")[1]) for name in os.listdir(model_dir) if name.startswith("checkpoint-")), default=0)


def check_same(test, model_dir, expected, text=""):
    """The newest checkpoints of both directories are of the same step and have the same tensors, byte by byte. (Their
    manifests also name the algorithm of the sums, which the hosts decide on.)"""
    step = newest(expected)
    test.assertEqual(newest(model_dir), step, text)
    made, wanted = (f"{place}/checkpoint-{step:06}" for place in (model_dir, expected))
    test.assertEqual(sorted(os.listdir(made)), sorted(os.listdir(wanted)), text)
    shards = [name for name in sorted(os.listdir(wanted)) if name.endswith(".safetensors")]
    test.assertTrue(shards)
    same, others, failed = filecmp.cmpfiles(made, wanted, shards, shallow=False)
    test.assertEqual((sorted(same), others, failed), (shards, [], []), text)


STEPS = 4000  # far more than are made before the stop


def check(test, launcher, folder):
    """SIGTERM to the whole job: the step that is under way is saved, and the same command goes on behind it.

    The last checkpoint is that of a training without a stop, to the bit.
    """
    with tempfile.TemporaryDirectory(prefix="tutti-stop-") as place:
        model_dir = f"{place}/stopped"
        command = training(folder, "--model-dir", model_dir, "--save-every", "0", steps=STEPS)
        job = launcher.start(2, command)
        test.assertTrue(job.wait_for_step(5), job.text)
        launcher.terminate(job)
        ended, text = job.finish()
        test.assertIn(ended, launcher.stop_codes, text)
        test.assertRegex(text, r"stopped after step \d+ of \d+ by signal 15")
        test.assertFalse(job.processes(), text)
        stopped = newest(model_dir)
        test.assertIn(stopped, range(5, STEPS), text)
        ended, text = launcher.run(2, command)
        test.assertEqual(ended, 0, text)
        test.assertIn(f"goes on from step {stopped} of {STEPS}", text)
        unbroken = f"{place}/unbroken"
        ended, without = launcher.run(2, training(folder, "--model-dir", unbroken, "--save-every", "0", steps=STEPS))
        test.assertEqual(ended, 0, without)
        check_same(test, model_dir, unbroken, text)


def check_hasty(test, launcher, folder):
    """A launcher that kills its processes soon after SIGTERM: the checkpoint of the stop may be lost, but not those that
    --save-every has made. The same command goes on from the newest, to the same bits."""
    every = 10
    flags = ["--save-every", str(every)]
    with tempfile.TemporaryDirectory(prefix="tutti-stop-") as place:
        model_dir, unbroken = f"{place}/stopped", f"{place}/unbroken"
        command = training(folder, "--model-dir", model_dir, *flags, steps=STEPS)
        job = launcher.start(2, command)
        test.assertTrue(job.wait_for_step(3 * every), job.text)
        launcher.terminate(job)
        ended, text = job.finish()
        test.assertIn(ended, launcher.stop_codes, text)
        test.assertFalse(job.processes(), text)
        stopped = newest(model_dir)
        # Of the interval that was under way, the checkpoint may not have been finished.
        test.assertIn(stopped, range(every, STEPS), text)
        ended, text = launcher.run(2, command)
        test.assertEqual(ended, 0, text)
        test.assertIn(f"goes on from step {stopped} of {STEPS}", text)
        ended, without = launcher.run(2, training(folder, "--model-dir", unbroken, *flags, steps=STEPS))
        test.assertEqual(ended, 0, without)
        check_same(test, model_dir, unbroken, text)


def check_codes(test, launcher, folder):
    """1 to 127 for what another start does not cure."""
    ended, text = launcher.run(2, training(folder, "--no-such-flag", steps=5))
    test.assertEqual(ended, 2, text)
    with tempfile.NamedTemporaryFile() as file:
        ended, text = launcher.run(2, training(folder, "--model-dir", file.name, steps=5))
    test.assertEqual(ended, 1, text)
    test.assertIn("--model-dir: cannot open", text)
