#!/usr/bin/env python3
"""`tutti explain placement` with a graph from a file, on a described cluster, as text, JSON and SVG."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

CLUSTER = """
[cluster]
worker = ["10.0.0.1:2222", "10.0.0.2:2222"]
[device]
count = 1
cores = 2
[device.worker.1]
memory = "16GiB"
speed = 3.0
[network]
bandwidth = "25Gbit/s"
latency = "20us"
"""
ARGUMENTS = None


def explain(*arguments):
    return subprocess.run([f"{ARGUMENTS.bin}/tutti", "explain", "placement", *arguments],
                          capture_output=True, text=True, timeout=120, check=False)


class PlacementFiles(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.cluster = os.path.join(self.folder.name, "cluster.toml")
        with open(self.cluster, "w", encoding="utf-8") as file:
            file.write(CLUSTER)

    def report(self, *arguments):
        done = explain(ARGUMENTS.graph, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_text(self):
        done = explain(ARGUMENTS.graph, "--cluster", self.cluster)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("/job:worker/task:1/cpu:0", done.stdout)
        self.assertIn('MatMul "rows"', done.stdout)

    def test_json_on_a_cluster(self):
        report = self.report("--cluster", self.cluster)
        self.assertEqual([device["name"] for device in report["devices"]],
                         ["/job:worker/task:0/cpu:0", "/job:worker/task:1/cpu:0"])
        self.assertEqual([device["cores"] for device in report["devices"]], [2, 2])
        self.assertEqual(report["devices"][1]["limit_bytes"], 16 << 30)
        devices = {node["name"]: node["device"] for node in report["nodes"]}
        self.assertIn("update", devices)
        # An update is where its variable is, and nothing is worth leaving the faster task.
        self.assertEqual(devices["update"], devices["bias"])
        self.assertEqual(devices["rows"], "/job:worker/task:1/cpu:0")
        self.assertGreater(report["predicted_seconds"], 0)
        self.assertIsNone(report["measured_seconds"])
        self.assertIn("rows", report["critical_path"])

    def test_the_batch_counts(self):
        few = self.report("--devices", "1", "--batch", "8")["predicted_seconds"]
        many = self.report("--devices", "1", "--batch", "4096")["predicted_seconds"]
        self.assertGreater(many, 2 * few)

    def test_svg(self):
        picture = os.path.join(self.folder.name, "step.svg")
        done = explain(ARGUMENTS.graph, "--cluster", self.cluster, "--svg", picture)
        self.assertEqual(done.returncode, 0, done.stderr)
        root = xml.etree.ElementTree.parse(picture).getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        texts = " ".join(text for element in root.iter() for text in [element.text] if text)
        self.assertIn("/job:worker/task:1/cpu:0", texts)
        self.assertIn("rows", texts)

    def test_mistakes(self):
        with open(self.cluster, "w", encoding="utf-8") as file:
            file.write("[cluster\n")
        done = explain(ARGUMENTS.graph, "--cluster", self.cluster)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn(self.cluster, done.stderr)
        broken = os.path.join(self.folder.name, "graph.txt")
        with open(broken, "w", encoding="utf-8") as file:
            file.write("x = Fly()\n")
        done = explain(broken)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn(broken, done.stderr)
        self.assertIn("Fly", done.stderr)
        done = explain(ARGUMENTS.graph, "--svg", "/no/such/folder/step.svg")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("/no/such/folder/step.svg", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--graph", required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
