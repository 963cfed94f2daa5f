"""Run AWS's `train` up to the command that it would start, for many hosts in one process.

Runs in the Python of a training container: toolkit_driver.py CASES ANSWERS. CASES is a JSON list of hosts:
ml         the host's /opt/ml, with its configuration files and its code
variables  of the container
torch      the version of PyTorch in the image
ANSWERS gets a JSON list: the runner's class, its command and the variables that it sets; or the error.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

found = {}
"""What the host at hand would start."""


class Started(BaseException):
    """Ends the toolkit's run where the command would start; no `except Exception` of AWS's holds it up."""


def prepared(runner):
    """Return a runner of the toolkit that stops where it would start its command."""
    kind = type(runner)
    found["class"] = f"{kind.__module__}.{kind.__name__}"
    if "TF_CONFIG" in os.environ:
        found["TF_CONFIG"] = os.environ["TF_CONFIG"]
    if kind.__name__ == "WorkerRunner":  # starts nothing: it serves ssh, and waits for the master
        runner.run = lambda wait, capture_error: started({})(None, capture_error=capture_error)
    elif kind.__name__ != "TorchDistributedRunner":
        runner._setup = lambda: None  # starts sshd and waits for the workers' or wants torch_xla
    return runner


def started(before):
    """Return what is called instead of starting a command."""

    def start(command, *_, capture_error, **__):
        added = {key: text for key, text in os.environ.items() if command and before.get(key) != text}
        found.update(cmd=command, capture_error=capture_error, env_added=added)
        raise Started

    return start


def launch(case, train):
    """Return what one host starts."""
    found.clear()
    sys.modules["torch"] = module("torch", __version__=case["torch"])
    try:
        train()
    except SystemExit as left:  # train always exits
        if "cmd" not in found:
            failure = Path(case["ml"], "output", "failure")
            found["error"] = failure.read_text() if failure.exists() else f"exit {left.code}"
    return dict(found)


def module(name, **content):
    """Return a module with this content."""
    made = ModuleType(name)
    made.__dict__.update(content)
    return made


def tensorflow():
    """Return as much of TensorFlow as the launch of parameter servers touches."""

    def server(cluster, **_):
        found["ps_cluster"] = cluster
        return SimpleNamespace(join=lambda: None)

    return module(
        "tensorflow",
        train=SimpleNamespace(ClusterSpec=lambda cluster: cluster),
        compat=SimpleNamespace(v1=SimpleNamespace(ConfigProto=lambda **_: None)),
        distribute=SimpleNamespace(Server=server),
    )


def toolkit():
    """Return AWS's `train`, taught to stop short of starting anything."""
    from sagemaker_training import entry_point, process, runner
    from sagemaker_training.cli.train import main

    def get(*arguments):
        chosen = prepared(runner.get(*arguments))
        process.check_error = started(dict(os.environ))
        return chosen

    entry_point.runner = SimpleNamespace(get=get)
    sys.modules["tensorflow"] = tensorflow()
    try:
        from sagemaker_tensorflow_container import s3_utils
    except ImportError:
        return main
    s3_utils._s3_region = lambda region, _model_dir: region  # asks S3 where the model's bucket is
    return main


def main(cases, answers):
    """Answer all cases."""
    ml = Path(tempfile.mkdtemp(), "ml")
    ground = {
        "SAGEMAKER_BASE_DIR": str(ml),
        "SM_STUDIO_LOCAL_MODE": "true",
    }  # which looks up no host's address
    path, train, told = list(sys.path), None, []
    for case in json.loads(Path(cases).read_text()):
        ml.unlink(missing_ok=True)
        ml.symlink_to(case["ml"])  # the toolkit reads its base directory once, on import
        os.environ.clear()
        os.environ.update(ground | case["variables"])
        train = train or toolkit()
        told.append(launch(case, train))
        sys.path[:] = path
    Path(answers).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
