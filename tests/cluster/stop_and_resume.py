"""What a job under another launcher does when it is stopped, and with what codes it ends: for tests of each launcher."""
import os
import re
import tempfile


def training(folder, *flags, steps):
    return [f"{folder}/fashion_mnist", "--model", "mlp", "--batch-size", "16", "--strategy", "allreduce",
            "--start-timeout", "30", "--log-every", "1", "--max-steps", str(steps), *flags]


def newest(model_dir):
    return max(int(name.split("-")[1]) for name in os.listdir(model_dir) if name.startswith("checkpoint-"))


STEPS = 4000  # far more than are made before the stop


def check(test, launcher, folder):
    """SIGTERM to the whole job: the step that is under way is saved, and the same command goes on behind it.

    The result is that of a training without a stop, to the bit.
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
        ended, without = launcher.run(2, training(folder, steps=STEPS))
        test.assertEqual(ended, 0, without)
        result = re.search(r"test accuracy .*", without).group(0)
        test.assertIn(result, text)


def check_codes(test, launcher, folder):
    """1 to 127 for what another start does not cure."""
    ended, text = launcher.run(2, training(folder, "--no-such-flag", steps=5))
    test.assertEqual(ended, 2, text)
    with tempfile.NamedTemporaryFile() as file:
        ended, text = launcher.run(2, training(folder, "--model-dir", file.name, steps=5))
    test.assertEqual(ended, 1, text)
    test.assertIn("--model-dir: cannot open", text)
