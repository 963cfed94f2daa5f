"""What a host's first process is: SageMaker's `train`, AWS's toolkit, or the sandbox's own launcher."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from airflow_smd.sandbox.jobs.hosts import Isolation
from airflow_smd.sandbox.runtime import Image, Runtime

STAND_INS = Path(__file__).parent / "stand_ins"
LAUNCHER = Path(__file__).parent / "launcher.py"
INSIDE = Path("/opt/sandbox")
"""Where a namespace host sees the stand-ins and the launcher."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROBE = """
import importlib.machinery as m, json, sys
def there(name):
    path = None  # find_spec of importlib.util would import the parents, torch among them
    for part in name.split("."):
        spec = m.PathFinder.find_spec(part, path)
        if spec is None: return False
        path = spec.submodule_search_locations
    return True
names = ["sagemaker_training", "sagemaker_pytorch_container", "torch", "mpi4py",
         "smdistributed.modelparallel", "torch.sagemaker"]
print(json.dumps({"modules": [n for n in names if there(n)],
                  "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix]}))
"""
_MPI, _SMDDP, _TORCHRUN = (
    "sagemaker_mpi_enabled",
    "sagemaker_distributed_dataparallel_enabled",
    "sagemaker_torch_distributed_enabled",
)
_PYTORCH_FLAGS = (_SMDDP, _TORCHRUN, "sagemaker_pytorch_ddp_enabled")
_DEGREES = (
    "pipeline_parallel_degree", "partitions", "tensor_parallel_degree", "sharded_data_parallel_degree",
    "hybrid_shard_degree", "context_parallel_degree", "expert_parallel_degree",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the hosts of a job start."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    note: str
    """One line for the log: what was chosen and why."""


@dataclass(frozen=True, slots=True)
class ContainerPython:
    """What the Python that stands for the image's offers."""

    executable: Path
    modules: frozenset[str]
    prefixes: tuple[Path, ...]


@cache
def inspect(executable: Path) -> ContainerPython:
    """Ask a Python what it can import and where it lives; FileNotFoundError if it is not there."""
    answer = subprocess.run(
        [executable, "-c", _PROBE], capture_output=True, text=True, check=True, timeout=120
    )
    found = json.loads(answer.stdout)
    prefixes = dict.fromkeys([executable.parent.parent, *map(Path, found["prefixes"])])
    return ContainerPython(executable, frozenset(found["modules"]), tuple(prefixes))


def decode(value: str) -> Any:
    """Return a hyperparameter's value: JSON as the SageMaker SDK encodes it, else the text itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def plan(runtime: Runtime, request: Mapping[str, Any], image: Image | None, isolation: Isolation) -> Launch:
    """Choose the first process of a training job's hosts."""
    algorithm = request["AlgorithmSpecification"]
    if entrypoint := algorithm.get("ContainerEntrypoint"):
        argv = [*entrypoint, *algorithm.get("ContainerArguments", [])]
        return Launch(argv=argv, environment={}, note="running the request's ContainerEntrypoint")
    if train := image and _own_train(image):
        argv = [train, *algorithm.get("ContainerArguments", ["train"] if train != "train" else [])]
        return Launch(argv=argv, environment={}, note=f"running the image's {train}")
    if image and not image.on_host_root:
        return Launch(argv=["train"], environment={}, note="running the image's train")
    python = inspect(runtime.settings.container_python)
    hyperparameters = {key: decode(value) for key, value in (request.get("HyperParameters") or {}).items()}
    missing = _what_the_toolkit_lacks(python, hyperparameters, request, isolation)
    if missing:
        return Launch(
            argv=[str(python.executable), str(launcher_path(isolation))],
            environment={"SMD_LAUNCH_ONLY": reason}
            if (reason := _launch_only(python, hyperparameters))
            else {},
            note=f"the sandbox's own launcher stands in for sagemaker-training: {missing}",
        )
    pytorch = "sagemaker_pytorch_container" in python.modules and (
        "pytorch" in algorithm.get("TrainingImage", "") or any(hyperparameters.get(f) for f in _PYTORCH_FLAGS)
    )
    module = {"SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container.training:main"} if pytorch else {}
    start = "import sys; from sagemaker_training.cli.train import main; sys.exit(main())"
    return Launch(
        argv=[str(python.executable), "-c", start],
        environment=module,
        note="running AWS's sagemaker-training toolkit",
    )


def _own_train(image: Image) -> str | None:
    """Return the `train` that an image brings along in its layers."""
    for layer in reversed(image.layers):
        for directory in ("opt/ml/code", "opt/program", "usr/local/bin", "usr/bin", "bin"):
            if (layer / directory / "train").is_file():
                return f"/{directory}/train"
    return None


def _what_the_toolkit_lacks(
    python: ContainerPython,
    hyperparameters: Mapping[str, Any],
    request: Mapping[str, Any],
    isolation: Isolation,
) -> str:
    """Return why AWS's toolkit cannot run this job here, empty if it can."""
    if "sagemaker_training" not in python.modules:
        return "it is not installed in the container Python"
    if _launch_only(python, hyperparameters):
        return "the model parallel library is missing"
    several = request["ResourceConfig"].get("InstanceCount", 2) > 1
    mpi = hyperparameters.get(_MPI) or hyperparameters.get(_SMDDP)
    if not isolation.namespaces and (several or mpi or hyperparameters.get(_TORCHRUN)):
        return "hosts are plain processes, which share one network and have no /opt/ml"
    if mpi and (
        isolation is not Isolation.NAMESPACE
        or not shutil.which("mpirun")
        or not Path("/usr/sbin/sshd").exists()
    ):
        return "mpirun and sshd need root and Debian's openmpi-bin and openssh-server"
    if mpi and "mpi4py" not in python.modules:
        return "mpi4py is not installed in the container Python"
    return ""


def _launch_only(python: ContainerPython, hyperparameters: Mapping[str, Any]) -> str:
    """Return why a job can be launched but not run, empty if it can: SMP needs a closed library."""
    parameters = hyperparameters.get("mp_parameters")
    if (
        not isinstance(parameters, Mapping)
        or {"smdistributed.modelparallel", "torch.sagemaker"} & python.modules
    ):
        return ""
    above = [f"{name}={parameters[name]}" for name in _DEGREES if _number(parameters.get(name)) > 1]
    if not above:
        return ""
    return (
        f"Launch only: {', '.join(above)} needs SageMaker's model parallel library, a closed binary that"
        " exists only in AWS's images. The sandbox logged the launch and did not run the training script"
    )


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0


def launcher_path(isolation: Isolation) -> Path:
    """Return where a host finds the launcher."""
    return INSIDE / "launcher.py" if isolation.namespaces else LAUNCHER


def base_environment(
    runtime: Runtime, image: Image | None, isolation: Isolation, ml: Path, gpus: int
) -> dict[str, str]:
    """Return the environment that every host has, image and user variables not yet applied."""
    stand_ins = INSIDE / "stand_ins" if isolation.namespaces else STAND_INS
    its_path = (image.environment if image else {}).get("PATH", _SYSTEM_PATH)
    python_first = (
        [str(runtime.settings.container_python.parent)] if image is None or image.on_host_root else []
    )
    region = runtime.settings.region
    environment = {
        **(image.environment if image else {}),
        "PATH": ":".join([*python_first, str(stand_ins / "bin"), its_path]),
        "PYTHONPATH": str(stand_ins),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "HOME": "/root",
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": "sandbox",
        "AWS_SECRET_ACCESS_KEY": "sandbox",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": runtime.endpoint_url,
        "S3_ENDPOINT_URL": runtime.endpoint_url,
        "SMD_SANDBOX_GPUS": str(gpus),
    }
    if isolation.namespaces:
        return environment
    home = ml.parent / "home"
    home.mkdir(parents=True, exist_ok=True)
    return environment | {"SAGEMAKER_BASE_DIR": str(ml), "SM_STUDIO_LOCAL_MODE": "true", "HOME": str(home)}
