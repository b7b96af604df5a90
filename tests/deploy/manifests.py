#!/usr/bin/env python3
"""Checks the files of deploy/ against the schemas that they are written for.

    tests/deploy/manifests.py --venv build/venv-deploy --bin build/bin

The Dockerfile must install what the programs of --bin are linked with. Kubernetes' own objects go
through kubernetes-validate, the TFJob through the types of kubeflow-training, both from PyPI,
installed into --venv at the first run. Exits with 77 where PyPI cannot be reached and nothing is
installed yet: CTest shows the test as skipped.
"""
import argparse
import glob
import os
import re
import subprocess
import sys

PACKAGES = ["kubernetes-validate==1.34.1", "kubeflow-training==1.9.3"]
SCHEMA = "1.34"
SKIPPED = 77
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
CODES_OF_TUTTI = {"usage": 2, "training error": 1}


def prepare(venv):
    """The interpreter of a virtual environment that has the packages."""
    python = os.path.join(venv, "bin/python")
    mark = os.path.join(venv, "installed.txt")
    wanted = "\n".join(PACKAGES)
    if os.path.exists(mark) and open(mark).read() == wanted:
        return python
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                           *PACKAGES], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"skipped: pip cannot install {' '.join(PACKAGES)}: {done.stderr.strip()[-300:]}")
        sys.exit(SKIPPED)
    with open(mark, "w") as file:
        file.write(wanted)
    return python


def type_errors(value, kind, models, where):
    """What in `value` does not fit the type of that name, as the client libraries write types."""
    if value is None:
        return []
    if match := re.fullmatch(r"list\[(.*)\]", kind):
        if not isinstance(value, list):
            return [f"{where}: expected a list"]
        return [error for i, one in enumerate(value)
                for error in type_errors(one, match[1], models, f"{where}[{i}]")]
    if match := re.fullmatch(r"dict\(str, (.*)\)", kind):
        if not isinstance(value, dict):
            return [f"{where}: expected an object"]
        return [error for key, one in value.items()
                for error in type_errors(one, match[1], models, f"{where}.{key}")]
    plain = {"str": str, "int": int, "bool": bool, "object": object}.get(kind)
    if plain is not None:
        return [] if isinstance(value, plain) else [f"{where}: expected {kind}, got {value!r}"]
    model = next((getattr(library, kind) for library in models if hasattr(library, kind)), None)
    if model is None:
        return []
    if not isinstance(value, dict):
        return [f"{where}: expected an object"]
    names = {written: attribute for attribute, written in model.attribute_map.items()}
    errors = [f"{where}.{key}: there is no such field in {kind}" for key in value if key not in names]
    for key, one in value.items():
        if key in names:
            errors += type_errors(one, model.openapi_types[names[key]], models, f"{where}.{key}")
    return errors


def check_tfjob(job):
    import kubeflow.training.models as kubeflow
    import kubernetes.client.models as kubernetes
    models = (kubeflow, kubernetes)
    errors = type_errors(job, "KubeflowOrgV1TFJob", models, "TFJob")
    replicas = job["spec"]["tfReplicaSpecs"]
    if set(replicas) != {"Chief", "Worker", "PS", "Evaluator"}:
        errors.append(f"tfReplicaSpecs: expected chief, workers, ps, evaluator, got {set(replicas)}")
    for role, replica in replicas.items():
        container = replica["template"]["spec"]["containers"][0]
        if container["name"] != "tensorflow":
            errors.append(f"{role}: the operator looks for a container called tensorflow")
        if "tfjob-port" not in [port["name"] for port in container["ports"]]:
            errors.append(f"{role}: the operator looks for a port called tfjob-port")
        if replica["restartPolicy"] != "ExitCode":
            errors.append(f"{role}: expected restartPolicy ExitCode")
    return errors


def check_pods(document):
    """What every pod of ours must have: a token from a Secret, probes, a place for checkpoints."""
    errors = []

    def visit(node, where):
        if isinstance(node, dict):
            if "containers" in node:
                for container in node["containers"]:
                    names = {port["name"] for port in container.get("ports", [])}
                    variables = {one["name"]: one for one in container.get("env", [])}
                    if "secretKeyRef" not in variables.get("TUTTI_JOB_TOKEN", {}).get("valueFrom", {}):
                        errors.append(f"{where}: TUTTI_JOB_TOKEN is not from a Secret")
                    for probe in ("startupProbe", "livenessProbe"):
                        target = container.get(probe, {}).get("httpGet", {})
                        if target.get("path") != "/healthz" or target.get("port") not in names:
                            errors.append(f"{where}: {probe} does not ask /healthz of a port here")
                    claimed = {mount["name"] for mount in container.get("volumeMounts", [])}
                    if claimed != {volume["name"] for volume in node.get("volumes", [])}:
                        errors.append(f"{where}: volumes and mounts differ")
                    flags = container.get("args", [])
                    kept = flags[flags.index("--model-dir") + 1] if "--model-dir" in flags else ""
                    if not any(kept.startswith(mount["mountPath"] + "/")
                               for mount in container.get("volumeMounts", [])):
                        errors.append(f"{where}: --model-dir '{kept}' is on no volume: nothing would be "
                                      "left after a restart")
            for key, one in node.items():
                visit(one, f"{where}.{key}")
        elif isinstance(node, list):
            for i, one in enumerate(node):
                visit(one, f"{where}[{i}]")

    visit(document, document["kind"])
    return errors


def check_job(job):
    codes = job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"]
    errors = []
    if sorted(codes) != sorted(CODES_OF_TUTTI.values()):
        errors.append(f"Job: codes that end it are {codes}, expected {CODES_OF_TUTTI}")
    size = next(one["value"] for one in job["spec"]["template"]["spec"]["containers"][0]["env"]
                if one["name"] == "WORLD_SIZE")
    if not str(job["spec"]["completions"]) == str(job["spec"]["parallelism"]) == size:
        errors.append("Job: completions, parallelism and WORLD_SIZE differ")
    return errors


def dependencies(packages):
    """These Debian packages and all that apt installs with them, as far as they are installed here."""
    found, waiting = set(), set(packages)
    while waiting:
        found |= waiting
        listed = subprocess.run(["dpkg-query", "-W", "-f", "${Depends}, ${Pre-Depends}\n", *sorted(waiting)],
                                capture_output=True, text=True, check=False).stdout
        waiting = set(re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", listed, re.M)) - found
    return found


def check_dockerfile(folder):
    """The packages of the libraries that the image's programs load, against what the image has."""
    with open(f"{ROOT}/deploy/kubernetes/Dockerfile") as file:
        image = file.read().rsplit("\nFROM ", 1)[1]
    listed = re.search(r"apt-get install -y --no-install-recommends(.*?)&&", image, re.S)[1]
    installed = dependencies(listed.replace("\\", " ").split())
    errors = []
    for program in re.findall(r"/src/build/bin/(\w+)", image):
        libraries = subprocess.run(["ldd", f"{folder}/{program}"], capture_output=True, text=True, check=True).stdout
        for path in re.findall(r"=> (/\S+)", libraries):
            # dpkg may know the file below /usr only, of which /lib is a part.
            owner = next((done.stdout for name in (path, "/usr" + path, os.path.realpath(path))
                          if (done := subprocess.run(["dpkg", "-S", name], capture_output=True, text=True,
                                                     check=False)).returncode == 0), "no package:")
            package = owner.split(":")[0]
            if package not in installed:
                errors.append(f"deploy/kubernetes/Dockerfile: {program} needs {os.path.basename(path)} of {package}, "
                              "which the image does not install")
    return errors


def check_all(folder):
    import kubernetes_validate
    import yaml
    errors, documents = check_dockerfile(folder), 0
    for path in sorted(glob.glob(f"{ROOT}/deploy/kubernetes/*.yaml")):
        with open(path) as file:
            for document in yaml.safe_load_all(file):
                documents += 1
                found = check_pods(document)
                if document["kind"] == "TFJob":
                    found += check_tfjob(document)
                else:
                    try:
                        kubernetes_validate.validate(document, SCHEMA, strict=True)
                    except kubernetes_validate.ValidationError as error:
                        found.append(f"{document['kind']}: {error.message}")
                if document["kind"] == "Job":
                    found += check_job(document)
                errors += [f"{os.path.relpath(path, ROOT)}: {one}" for one in found]
    scripts = glob.glob(f"{ROOT}/deploy/slurm/*.sbatch")
    for path in scripts:
        done = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
        if done.returncode != 0:
            errors.append(f"{os.path.relpath(path, ROOT)}: {done.stderr.strip()}")
    if documents < 5 or len(scripts) < 2:
        errors.append(f"only {documents} objects and {len(scripts)} scripts were found")
    for error in errors:
        print(error)
    print(f"{documents} objects, {len(scripts)} scripts, {len(errors)} mistakes")
    return 1 if errors else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--venv", required=True)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--check", action="store_true", help="inside the virtual environment")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(check_all(os.path.abspath(arguments.bin)))
    sys.exit(subprocess.run([prepare(os.path.abspath(arguments.venv)), os.path.abspath(__file__),
                             "--venv", arguments.venv, "--bin", arguments.bin, "--check"]).returncode)
