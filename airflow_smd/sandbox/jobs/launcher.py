"""Run a SageMaker training script where AWS's sagemaker-training toolkit is not installed.

Runs inside a host, by the Python that stands for the image's, with the standard library only. Reads what
SageMaker writes to /opt/ml, gives the script the same arguments and SM_ variables as the toolkit, and starts
it as one process, through torchrun, or, for MPI and SMDDP, as ranks that find each other through MASTER_ADDR.
It installs nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

BASE = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
TORCHRUN_PORT = "7777"
_SIGNATURE = (
    "AWS4-HMAC-SHA256 Credential=sandbox/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
)
"""The sandbox wants to be told who asks, and believes it."""
_FAILURE_CHARACTERS = 700
"""How much of the script's last words go into the failure file; AWS keeps 1,024 of the whole reason."""
_GRACE_SECONDS = 5


class LaunchError(Exception):
    """The job cannot be started; the text goes to the failure file."""


@dataclass(frozen=True)
class Environment:
    """What /opt/ml says about this host and its job."""

    host: str
    hosts: list[str]
    """The hosts that run the distributed part, sorted; the first is the master."""
    group: str
    resources: dict[str, Any]
    channels: dict[str, Any]
    hyperparameters: dict[str, Any]
    """The user's own."""
    framework: dict[str, Any]
    """Those that begin with `sagemaker_`."""
    gpus: int

    @property
    def processes_per_host(self) -> int:
        """Return P: as asked, else one per GPU, else one."""
        return int(self.framework.get("sagemaker_mpi_num_of_processes_per_host") or self.gpus or 1)

    @property
    def runner(self) -> str:
        """Return how the script is started; the order is that of AWS's PyTorch containers."""
        flags = {key for key, value in self.framework.items() if value is True}
        if self.host not in self.hosts:
            return "process"
        for flag, runner in (
            ("sagemaker_mpi_enabled", "ranks"),
            ("sagemaker_pytorch_ddp_enabled", "ranks"),
            ("sagemaker_torch_distributed_enabled", "torchrun"),
            ("sagemaker_distributed_dataparallel_enabled", "ranks"),
        ):
            if flag in flags:
                return runner
        return "process"


def read_environment(base: Path = BASE) -> Environment:
    """Read the three configuration files."""
    config = base / "input" / "config"
    raw, resources, channels = (
        json.loads((config / f"{name}.json").read_text())
        for name in ("hyperparameters", "resourceconfig", "inputdataconfig")
    )
    decoded = {key: _decoded(value) for key, value in raw.items()}
    framework = {key: value for key, value in decoded.items() if key.startswith("sagemaker_")}
    group = resources["current_group_name"]
    chosen = framework.get("sagemaker_distribution_instance_groups") or [group]
    members = {
        h for g in resources["instance_groups"] if g["instance_group_name"] in chosen for h in g["hosts"]
    }
    return Environment(
        host=resources["current_host"],
        hosts=sorted(members, key=lambda name: (len(name), name)),
        group=group,
        resources=resources,
        channels=channels,
        hyperparameters={key: value for key, value in decoded.items() if key not in framework},
        framework=framework,
        gpus=int(os.environ.get("SMD_SANDBOX_GPUS", "0")),
    )


def _decoded(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items())
    return "" if value is None else str(value)


def arguments(hyperparameters: dict[str, Any]) -> list[str]:
    """Return the command line arguments of the script: `--name value`, `-n value`, sorted by name."""
    return [
        text
        for name, value in sorted(hyperparameters.items())
        for text in (f"-{name}" if len(name) == 1 else f"--{name}", _as_text(value))
    ]


def script_variables(env: Environment, program: str) -> dict[str, str]:
    """Return the SM_ variables."""
    resources, code = env.resources, BASE / "code"
    directories = {name: str(BASE / "input" / "data" / name) for name in env.channels}
    values: dict[str, Any] = {
        "channels": sorted(env.channels),
        "channel_input_dirs": directories,
        "current_host": env.host,
        "current_instance_group": env.group,
        "current_instance_type": resources["current_instance_type"],
        "distribution_instance_groups": env.framework.get("sagemaker_distribution_instance_groups") or [],
        "framework_params": env.framework,
        "hosts": resources["hosts"],
        "hps": env.hyperparameters,
        "input_config_dir": str(BASE / "input" / "config"),
        "input_data_config": env.channels,
        "input_dir": str(BASE / "input"),
        "instance_groups": [group["instance_group_name"] for group in resources["instance_groups"]],
        "is_hetero": len(resources["instance_groups"]) > 1,
        "is_master": env.host == env.hosts[0] if env.hosts else False,
        "log_level": env.framework.get("sagemaker_container_log_level", 20),
        "master_hostname": env.hosts[0] if env.hosts else env.host,
        "model_dir": str(BASE / "model"),
        "module_dir": str(env.framework.get("sagemaker_submit_directory", code)),
        "module_name": Path(program).stem,
        "network_interface_name": resources["network_interface_name"],
        "num_cpus": os.cpu_count() or 1,
        "num_gpus": env.gpus,
        "num_neurons": 0,
        "output_data_dir": str(BASE / "output" / "data"),
        "output_dir": str(BASE / "output"),
        "output_intermediate_dir": str(BASE / "output" / "intermediate"),
        "resource_config": resources,
        "user_args": arguments(env.hyperparameters),
        "user_entry_point": program,
    }
    training = {**values, "hyperparameters": values["hps"], "additional_framework_parameters": env.framework}
    values |= {f"channel_{name}": path for name, path in directories.items()}
    values |= {f"hp_{name.replace('-', '_')}": value for name, value in env.hyperparameters.items()}
    values["training_env"] = training
    return {
        f"SM_{name.upper()}": value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in values.items()
    }


def fetch_code(env: Environment) -> str:
    """Unpack the submitted code into /opt/ml/code and return the program's name in it."""
    program = env.framework.get("sagemaker_program") or os.environ.get("SAGEMAKER_PROGRAM")
    if not program:
        raise LaunchError(
            "Nothing to run: neither the hyperparameter sagemaker_program nor SAGEMAKER_PROGRAM is set, and"
            " the request has no ContainerEntrypoint"
        )
    source, code = env.framework.get("sagemaker_submit_directory"), BASE / "code"
    code.mkdir(parents=True, exist_ok=True)
    if source and str(source).startswith("s3://"):
        archive = BASE / "input" / "sourcedir.tar.gz"
        archive.write_bytes(_from_s3(source))
        _unpack(archive, code)
    elif source and Path(source).is_file():
        _unpack(Path(source), code)
    elif source and Path(source).is_dir():
        code = Path(source)
    if not (code / program).is_file():
        raise LaunchError(f"The entry point {program!r} is not in {source or code}")
    if (code / "requirements.txt").is_file():
        _say("requirements.txt is left alone: the sandbox's launcher installs nothing")
    os.chdir(code)
    return str(program)


def _from_s3(uri: str) -> bytes:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    url = f"{os.environ['S3_ENDPOINT_URL']}/{bucket}/{urllib.parse.quote(key)}"
    for pause in (0.5, 1, 2, None):
        try:
            request = urllib.request.Request(url, headers={"Authorization": _SIGNATURE})
            with urllib.request.urlopen(request, timeout=60) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            if error.code in (403, 404) or pause is None:
                raise LaunchError(f"The code at {uri} cannot be read: HTTP {error.code}") from error
        except OSError as error:
            if pause is None:
                raise LaunchError(f"The code at {uri} cannot be read: {error}") from error
        time.sleep(pause)
    raise AssertionError("the last pause is None")


def _unpack(archive: Path, code: Path) -> None:
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(code, filter="data")
        else:
            tar.extractall(code)


def program_command(program: str) -> list[str]:
    """Return how an entry point is run: Python file, shell script or executable."""
    if program.endswith(".py"):
        return [sys.executable, program]
    return ["/bin/bash", program] if program.endswith(".sh") else [f"./{program}"]


def torchrun_command(env: Environment, program: str, master: str, port: str) -> list[str]:
    """Return the torchrun command line of this host, as the toolkit builds it."""
    several = len(env.hosts) > 1
    rendezvous = [
        "--master_addr",
        master,
        "--master_port",
        port,
        "--node_rank",
        str(env.hosts.index(env.host)),
    ]
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", str(len(env.hosts)), "--nproc_per_node", str(env.processes_per_host)),
        *(rendezvous if several else ["--master_addr", "127.0.0.1", "--master_port", port]),
        program,
    ]


def mpirun_command(env: Environment, program: str) -> list[str]:
    """Return the mpirun command line that SageMaker's containers would use on the master."""
    count = env.processes_per_host
    hosts = ",".join(host if count == 1 else f"{host}:{count}" for host in env.hosts)
    options = str(env.framework.get("sagemaker_mpi_custom_mpi_options") or "").split()
    return [
        *(
            "mpirun",
            "--host",
            hosts,
            "-np",
            str(count * len(env.hosts)),
            "--allow-run-as-root",
            "--tag-output",
        ),
        *("-mca", "btl_tcp_if_include", "eth0", "-mca", "oob_tcp_if_include", "eth0", "-bind-to", "none"),
        *(
            "-map-by",
            "slot",
            "-mca",
            "pml",
            "ob1",
            "-mca",
            "btl",
            "^openib",
            "-x",
            "PATH",
            "-x",
            "LD_LIBRARY_PATH",
        ),
        *options,
        *("smddpmprun", "-i", str(env.resources["current_instance_type"]), "--allow-bypass"),
        *("python", "-m", "mpi4py", program),
    ]


def run(env: Environment, program: str) -> tuple[int, str, list[str]]:
    """Run the script and return exit code, last words and command."""
    own = os.environ.get("SMD_SANDBOX_MASTER_PORT")
    master, port = ("127.0.0.1", own) if own else (env.hosts[0] if env.hosts else env.host, TORCHRUN_PORT)
    variables = {**os.environ, **script_variables(env, program)}
    variables["PYTHONPATH"] = ":".join([str(Path.cwd()), variables.get("PYTHONPATH", "")])
    own_arguments = arguments(env.hyperparameters)
    if env.runner == "torchrun":
        command = [*torchrun_command(env, program, master, port), *own_arguments]
        return (*_follow([(command, variables, "")]), command)
    command = [*program_command(program), *own_arguments]
    if env.runner == "process":
        return (*_follow([(command, variables, "")]), command)
    count, first = env.processes_per_host, env.hosts.index(env.host) * env.processes_per_host
    size = count * len(env.hosts)
    ranks = []
    for local in range(count):
        place = {"RANK": first + local, "WORLD_SIZE": size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": count}
        own_variables = {name: str(value) for name, value in place.items()}
        own_variables |= {"MASTER_ADDR": master, "MASTER_PORT": port}
        ranks.append((command, variables | own_variables, f"[1,mpirank:{first + local},{env.host}]"))
    return (*_follow(ranks), command)


def _follow(processes: list[tuple[list[str], dict[str, str], str]]) -> tuple[int, str]:
    """Start processes, pass their lines on, and end all when one fails; return its code and last words."""
    last_words: list[deque[str]] = [deque(maxlen=40) for _ in processes]
    started, readers, lock = [], [], threading.Lock()
    for number, (command, variables, prefix) in enumerate(processes):
        piped = subprocess.PIPE if prefix else None
        process = subprocess.Popen(command, env=variables, stdout=piped, stderr=subprocess.PIPE)
        started.append(process)
        streams = [(process.stdout, "<stdout>:", None), (process.stderr, "<stderr>:", last_words[number])]
        for stream, kind, words in streams:
            if stream is not None:
                mark = prefix + kind if prefix else ""
                reader = threading.Thread(target=_pass_on, args=(stream, mark, words, lock), daemon=True)
                reader.start()
                readers.append(reader)
    failed = _first_failure(started)
    for reader in readers:
        reader.join(timeout=_GRACE_SECONDS)
    if failed is None:
        return 0, ""
    code = started[failed].returncode
    return (code if code > 0 else 128 - code), "".join(last_words[failed])


def _first_failure(started: list[subprocess.Popen[bytes]]) -> int | None:
    running = dict(enumerate(started))
    failed = None
    while running:
        for number, process in list(running.items()):
            if process.poll() is not None:
                del running[number]
                if process.returncode != 0 and failed is None:
                    failed = number
                    _end(list(running.values()))
        time.sleep(0.05)
    return failed


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def _pass_on(stream: IO[bytes], mark: str, words: deque[str] | None, lock: threading.Lock) -> None:
    for line in stream:
        text = line.decode(errors="replace")
        with lock:
            sys.stdout.write(mark + text if text.endswith("\n") else mark + text + "\n")
            sys.stdout.flush()
        if words is not None:
            words.append(text)


def _say(text: str) -> None:
    sys.stdout.write(f"[launcher] {text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the job's script on this host and leave `success` or `failure` behind."""
    output = BASE / "output"
    output.mkdir(parents=True, exist_ok=True)
    try:
        env = read_environment()
        program = fetch_code(env)
        if reason := os.environ.get("SMD_LAUNCH_ONLY"):
            smp_v2 = env.framework.get("sagemaker_torch_distributed_enabled") is True
            master = env.hosts[0]
            command = (
                torchrun_command(env, program, master, TORCHRUN_PORT)
                if smp_v2
                else mpirun_command(env, program)
            )
            _say(shlex.join([*command, *arguments(env.hyperparameters)]))
            raise LaunchError(reason)
        code, words, command = run(env, program)
    except LaunchError as error:
        (output / "failure").write_text(str(error))
        _say(str(error))
        return 1
    if code == 0:
        (output / "success").touch()
        return 0
    tail = words[-_FAILURE_CHARACTERS:].strip()
    (output / "failure").write_text(
        f'ExecuteUserScriptError:\nExitCode {code}\nErrorMessage "{tail}"\nCommand "{shlex.join(command)}"'
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
