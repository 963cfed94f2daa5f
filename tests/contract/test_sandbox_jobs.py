"""Jobs of the sandbox, asked for through boto3 and carried out for real, in both kinds of hosts."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import tarfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError

from airflow_smd.sandbox.jobs.record import Secondary, Status
from tests.conftest import Sandbox, start_sandbox, stop_sandbox

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.3.0-gpu-py311"
BUCKET = "jobs-bucket"
MODES = [
    pytest.param("process", id="hosts as plain processes"),
    pytest.param(
        "namespace",
        id="hosts as namespaces",
        marks=pytest.mark.skipif(
            os.name != "posix" or os.geteuid() != 0 or not shutil.which("ip"),
            reason="needs root and iproute2",
        ),
    ),
]


class Bench:
    """A sandbox with a bucket, and short ways to run jobs in it."""

    def __init__(self, sandbox: Sandbox, mode: str = "auto") -> None:
        self.sandbox = sandbox
        self.mode = mode
        self.sagemaker = sandbox.client("sagemaker")
        self.s3 = sandbox.client("s3")

    def put(self, prefix: str, **files: str) -> str:
        """Put small objects under a prefix; underscores in a name become slashes."""
        for name, text in files.items():
            self.s3.put_object(Bucket=BUCKET, Key=f"{prefix}/{name.replace('__', '/')}", Body=text.encode())
        return f"s3://{BUCKET}/{prefix}"

    def code(self, **files: str) -> str:
        """Upload a sourcedir.tar.gz of Python files."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as tar:
            for name, text in files.items():
                member = tarfile.TarInfo(f"{name}.py")
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
        key = f"code/{uuid.uuid4().hex}/sourcedir.tar.gz"
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=content.getvalue())
        return f"s3://{BUCKET}/{key}"

    def request(self, script: str = "", **changes: Any) -> dict[str, Any]:
        """Return a CreateTrainingJob request that runs `script` with Python in one host."""
        algorithm: dict[str, Any] = {"TrainingImage": IMAGE, "TrainingInputMode": "File"}
        if script:
            algorithm |= {"ContainerEntrypoint": ["python3", "/opt/ml/input/data/script/script.py"]}
            changes["InputDataConfig"] = [
                *changes.get("InputDataConfig", []),
                self._script_channel(script, changes),
            ]
        return {
            "TrainingJobName": f"job-{uuid.uuid4().hex[:8]}",
            "RoleArn": self.sandbox.role_arn,
            "AlgorithmSpecification": algorithm,
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        } | changes

    def _script(self, script: str) -> str:
        return self.put(f"scripts/{uuid.uuid4().hex}", **{"script.py": script})

    def _script_channel(self, script: str, changes: dict[str, Any]) -> dict[str, Any]:
        groups = changes.get("ResourceConfig", {}).get("InstanceGroups", [])
        names = {"InstanceGroupNames": [group["InstanceGroupName"] for group in groups]} if groups else {}
        return channel("script", self._script(script), **names)

    def start(self, script: str = "", **changes: Any) -> str:
        """Create a training job and return its name."""
        request = self.request(script, **changes)
        self.sagemaker.create_training_job(**request)
        return str(request["TrainingJobName"])

    def run(self, script: str = "", **changes: Any) -> dict[str, Any]:
        """Create a training job, wait for its end and return its description."""
        return self.end(self.start(script, **changes))

    def end(self, name: str) -> dict[str, Any]:
        """Wait for a training job's end."""
        return self._wait(
            lambda: self.sagemaker.describe_training_job(TrainingJobName=name), "TrainingJobStatus"
        )

    def reach(self, name: str, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a training job's description is as wanted."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
            if what(found):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{name} did not get there: {found}")

    def printed(self, name: str, line: str) -> None:
        """Wait until a job has printed a line."""
        self.reach(name, lambda _: any(line in text for text in itertools.chain(*self.logs(name).values())))

    def process(self, script: str, *arguments: str, **changes: Any) -> dict[str, Any]:
        """Create a processing job that runs a script, wait for its end and return its description."""
        local = "/opt/ml/processing/input/script"
        application = {"ImageUri": IMAGE, "ContainerEntrypoint": ["python3", f"{local}/script.py"]}
        if arguments:
            application["ContainerArguments"] = list(arguments)
        script_input = {
            "S3Uri": self._script(script),
            "LocalPath": local,
            "S3DataType": "S3Prefix",
            "S3InputMode": "File",
        }
        inputs = [{"InputName": "script", "S3Input": script_input}, *changes.pop("ProcessingInputs", [])]
        request = {
            "ProcessingJobName": f"job-{uuid.uuid4().hex[:8]}",
            "RoleArn": self.sandbox.role_arn,
            "AppSpecification": application,
            "ProcessingInputs": inputs,
            "ProcessingResources": {
                "ClusterConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30}
            },
        } | changes
        self.sagemaker.create_processing_job(**request)
        name = request["ProcessingJobName"]
        return self._wait(
            lambda: self.sagemaker.describe_processing_job(ProcessingJobName=name), "ProcessingJobStatus"
        )

    def _wait(self, look: Callable[[], dict[str, Any]], status: str) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = look()
            if Status(found[status]).final:
                return found
            time.sleep(0.05)
        raise AssertionError(f"the job does not end: {found}")

    def logs(self, name: str, kind: str = "Training") -> dict[str, list[str]]:
        """Return host -> lines of a job so far."""
        logs = self.sandbox.client("logs")
        group = f"/aws/sagemaker/{kind}Jobs"
        try:
            streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{name}/")[
                "logStreams"
            ]
        except logs.exceptions.ResourceNotFoundException:
            return {}
        return {
            stream["logStreamName"].split("/")[1].rpartition("-")[0]: [
                event["message"]
                for event in logs.get_log_events(
                    logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
                )["events"]
            ]
            for stream in streams
        }

    def text(self, key: str) -> str:
        """Return an object of the bucket."""
        return str(self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode())

    def artifact(self, job: str, member: str, archive: str = "model") -> str:
        """Return a file of a job's model.tar.gz or output.tar.gz."""
        body = self.s3.get_object(Bucket=BUCKET, Key=f"out/{job}/output/{archive}.tar.gz")["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            found = tar.extractfile(member)
            assert found
            return found.read().decode()


def _bench(home: Path, mode: str, *options: str) -> Bench:
    options = (f"--hosts={mode}", "--stop-grace-seconds=2", "--file-system-seconds=0.2", *options)
    sandbox = start_sandbox(home, *options)
    bench = Bench(sandbox, mode)
    bench.s3.create_bucket(Bucket=BUCKET)
    return bench


@pytest.fixture(scope="module", params=MODES)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    home = tmp_path_factory.mktemp("jobs")
    yield _bench(home, request.param)
    stop_sandbox(home)
    assert not list((home / "jobs" / "work").glob("*")), "an ended job left files behind"
    assert str(home) not in Path("/proc/mounts").read_text(), "an ended job left a mount behind"


@pytest.fixture
def own_bench(tmp_path: Path) -> Iterator[Bench]:
    """A sandbox for a test that brings it down."""
    yield _bench(tmp_path, "process")
    stop_sandbox(tmp_path)


def distributed(code: str, program: str, processes: int, **more: str) -> dict[str, Any]:
    """Return what the SageMaker SDK writes for `distribution={"mpi": ...}`."""
    return {
        "sagemaker_program": json.dumps(program),
        "sagemaker_submit_directory": json.dumps(code),
        "sagemaker_mpi_enabled": "true",
        "sagemaker_mpi_num_of_processes_per_host": str(processes),
        "sagemaker_mpi_custom_mpi_options": '""',
        **more,
    }


def channel(name: str, uri: str, **changes: Any) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, **changes}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


ALL_REDUCE = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("", address[1])) as server:
        peers = [server.accept()[0] for _ in range(size - 1)]
        total = sum(int(peer.recv(9)) for peer in peers)
        for peer in peers:
            peer.sendall(str(total).encode())
    with open(os.environ["SM_MODEL_DIR"] + "/sum", "w") as model:
        model.write(str(total))
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.05)
    peer.sendall(str(rank).encode())
    total = int(peer.recv(9))
print(f"rank {rank} of {size} local {os.environ['LOCAL_RANK']} sum {total} on {os.environ['SM_CURRENT_HOST']}"
      f" with {' '.join(sys.argv[1:])}", flush=True)
"""


def test_two_hosts_with_two_processes_each_find_each_other(bench: Bench) -> None:
    """Every rank meets the others through MASTER_ADDR, also while another job does the same."""
    code = bench.code(train=ALL_REDUCE)
    two = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 30}
    hyperparameters = distributed(code, "train.py", 2, lr="0.1")
    names = [bench.start(ResourceConfig=two, HyperParameters=hyperparameters) for _ in range(2)]

    for name in names:
        assert bench.end(name)["TrainingJobStatus"] == "Completed", bench.logs(name)
        assert bench.artifact(name, "sum") == "6"
        logs = bench.logs(name)
        assert "rank 3 of 4 local 1 sum 6 on algo-2 with --lr 0.1" in [
            line.partition("<stdout>:")[2] for line in logs["algo-2"]
        ]


def test_completed_job_tells_its_phases_in_order(bench: Bench) -> None:
    found = bench.run("print('hello')")

    phases = [transition["Status"] for transition in found["SecondaryStatusTransitions"]]
    assert phases == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert all("EndTime" in transition for transition in found["SecondaryStatusTransitions"])
    assert found["TrainingStartTime"] < found["TrainingEndTime"]
    assert found["BillableTimeInSeconds"] == found["TrainingTimeInSeconds"] >= 1


def test_describe_returns_what_was_asked_for(bench: Bench) -> None:
    asked = bench.request(
        "pass",
        HyperParameters={"lr": "0.1"},
        Environment={"A": "b"},
        RetryStrategy={"MaximumRetryAttempts": 2},
        EnableInterContainerTrafficEncryption=True,
        DebugHookConfig={"S3OutputPath": f"s3://{BUCKET}/debug"},
        VpcConfig={"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
    )
    bench.sagemaker.create_training_job(**asked, Tags=[{"Key": "a", "Value": "b"}])

    found = bench.end(asked["TrainingJobName"])

    assert {key: found[key] for key in asked} == asked


def test_metrics_are_read_from_the_log(bench: Bench) -> None:
    request = bench.request("print('loss=0.5;'); print('loss=0.25;')")
    request["AlgorithmSpecification"]["MetricDefinitions"] = [{"Name": "loss", "Regex": r"loss=([0-9.]+);"}]
    bench.sagemaker.create_training_job(**request)
    name = request["TrainingJobName"]

    final = bench.end(name)["FinalMetricDataList"]

    assert [(metric["MetricName"], metric["Value"]) for metric in final] == [("loss", 0.25)]
    now = time.time()
    points = bench.sandbox.client("cloudwatch").get_metric_statistics(
        Namespace="/aws/sagemaker/TrainingJobs",
        MetricName="loss",
        Dimensions=[{"Name": "TrainingJobName", "Value": name}],
        StartTime=now - 600,
        EndTime=now + 60,
        Period=3600,
        Statistics=["SampleCount", "Minimum"],
    )["Datapoints"]
    assert [(point["SampleCount"], point["Minimum"]) for point in points] == [(2.0, 0.25)]


def test_use_of_each_host_is_measured(bench: Bench) -> None:
    """A job that computes shows processor use of its own host."""
    name = bench.start("import time\nend = time.time() + 2.5\nwhile time.time() < end: pass")
    bench.end(name)

    listed = bench.sandbox.client("cloudwatch").list_metrics(
        Namespace="/aws/sagemaker/TrainingJobs", Dimensions=[{"Name": "Host", "Value": f"{name}/algo-1"}]
    )["Metrics"]

    assert {metric["MetricName"] for metric in listed} == {
        "CPUUtilization",
        "MemoryUtilization",
        "DiskUtilization",
    }


def test_failure_reason_has_the_containers_words_and_exit_code(bench: Bench) -> None:
    script = (
        "import os, sys\nbase = os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml')\n"
        "open(base + '/output/failure', 'w').write('no luck')\nsys.exit(3)"
    )

    found = bench.run(script)

    assert found["TrainingJobStatus"] == found["SecondaryStatus"] == "Failed"
    assert found["FailureReason"] == "AlgorithmError: no luck, exit code: 3"


def test_script_error_reaches_the_failure_reason(bench: Bench) -> None:
    code = bench.code(train="raise ValueError('the data is bad')")

    found = bench.run(HyperParameters=distributed(code, "train.py", 1))

    assert "ValueError: the data is bad" in found["FailureReason"]
    assert found["FailureReason"].endswith(", exit code: 1")


def test_one_failing_host_ends_the_others(bench: Bench) -> None:
    code = bench.code(
        train="import os, sys, time\nif os.environ['SM_CURRENT_HOST'] == 'algo-2': sys.exit(7)\n"
        "time.sleep(300)"
    )
    two = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 30}

    found = bench.run(
        ResourceConfig=two,
        HyperParameters={
            "sagemaker_program": json.dumps("train.py"),
            "sagemaker_submit_directory": json.dumps(code),
        },
    )

    assert found["TrainingJobStatus"] == "Failed"
    assert "exit code: 7" in found["FailureReason"]


def test_exit_zero_without_a_success_file_is_a_success(bench: Bench) -> None:
    assert bench.run("pass")["TrainingJobStatus"] == "Completed"


CATCH_TERM = """
import os, signal, sys, time
base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
def leave(*_):
    open(base + "/model/last", "w").write("saved on SIGTERM")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(300)
"""


def test_stopped_job_may_save_its_model(bench: Bench) -> None:
    name = bench.start(CATCH_TERM)
    bench.printed(name, "ready")

    bench.sagemaker.stop_training_job(TrainingJobName=name)

    found = bench.end(name)
    assert (found["TrainingJobStatus"], found["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert bench.artifact(name, "last") == "saved on SIGTERM"


def test_job_that_ignores_sigterm_is_killed_after_the_grace(bench: Bench) -> None:
    name = bench.start(
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(300)"
    )
    bench.printed(name, "ready")

    bench.sagemaker.stop_training_job(TrainingJobName=name)

    assert bench.end(name)["TrainingJobStatus"] == "Stopped"


def test_ended_job_cannot_be_stopped(bench: Bench) -> None:
    name = bench.run("pass")["TrainingJobName"]

    with pytest.raises(ClientError, match="rejected because the training job is in status Completed"):
        bench.sagemaker.stop_training_job(TrainingJobName=name)


def test_runtime_limit_stops_the_job_and_keeps_its_model(bench: Bench) -> None:
    found = bench.run(CATCH_TERM, StoppingCondition={"MaxRuntimeInSeconds": 1})

    assert (found["TrainingJobStatus"], found["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    assert bench.artifact(found["TrainingJobName"], "last") == "saved on SIGTERM"


SPOT = """
import os, time
base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
path = base + "/checkpoints/step"
step = int(open(path).read()) if os.path.exists(path) else 0
print("starting at", step, flush=True)
open(path, "w").write(str(step + 1))
time.sleep(300 if step == 0 else 0)
"""


def test_interrupted_spot_job_goes_on_from_its_checkpoint(bench: Bench) -> None:
    request = bench.request(
        SPOT,
        EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 90},
        CheckpointConfig={"S3Uri": f"s3://{BUCKET}/checkpoints/{uuid.uuid4().hex}"},
    )
    name = request["TrainingJobName"]
    bench.sandbox.control.fault("spot_interruption", parameters={"TrainingJobName": name}, after_seconds=1)
    bench.sagemaker.create_training_job(**request)

    found = bench.end(name)

    assert found["TrainingJobStatus"] == "Completed"
    assert "Interrupted" in [transition["Status"] for transition in found["SecondaryStatusTransitions"]]
    assert found["BillableTimeInSeconds"] <= found["TrainingTimeInSeconds"]
    assert bench.text(request["CheckpointConfig"]["S3Uri"].partition(f"{BUCKET}/")[2] + "/step") == "2"


def test_spot_job_waits_no_longer_than_asked(bench: Bench) -> None:
    found = bench.run(
        "import time; time.sleep(300)",
        EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 1, "MaxWaitTimeInSeconds": 1},
    )

    assert found["TrainingJobStatus"] == "Stopped"
    assert found["SecondaryStatus"] in ("MaxWaitTimeExceeded", "MaxRuntimeExceeded")


def test_missing_capacity_fails_the_job_in_aws_words(bench: Bench) -> None:
    request = bench.request("pass")
    bench.sandbox.control.fault("capacity", parameters={"TrainingJobName": request["TrainingJobName"]})
    bench.sagemaker.create_training_job(**request)

    found = bench.end(request["TrainingJobName"])

    assert found["TrainingJobStatus"] == "Failed"
    assert found["FailureReason"].startswith(
        "CapacityError: Unable to provision requested ML compute capacity"
    )
    assert "TrainingStartTime" not in found


def test_job_fails_at_the_second_that_a_rehearsal_asks_for(bench: Bench) -> None:
    request = bench.request("import time; time.sleep(300)")
    bench.sandbox.control.fault(
        "fail", parameters={"TrainingJobName": request["TrainingJobName"]}, after_seconds=0.5, message="boom"
    )
    bench.sagemaker.create_training_job(**request)

    assert bench.end(request["TrainingJobName"])["FailureReason"] == "AlgorithmError: boom, exit code: 1"


def test_job_can_be_stopped_while_it_waits_for_its_machines(bench: Bench) -> None:
    request = bench.request("pass")
    name = request["TrainingJobName"]
    bench.sandbox.control.fault("slow_create", parameters={"TrainingJobName": name}, seconds=300)
    bench.sagemaker.create_training_job(**request)

    bench.sagemaker.stop_training_job(TrainingJobName=name)

    found = bench.end(name)
    assert found["TrainingJobStatus"] == "Stopped"
    assert "TrainingStartTime" not in found


LIST_INPUT = """
import json, os
base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml") + "/input"
found = sorted(os.path.relpath(os.path.join(top, name), base + "/data")
               for top, _, names in os.walk(base + "/data", followlinks=True) for name in names
               if not name.startswith("script"))
print("input", json.dumps(found), flush=True)
print("channels", json.dumps(json.load(open(base + "/config/inputdataconfig.json"))), flush=True)
print("resources", json.dumps(json.load(open(base + "/config/resourceconfig.json"))), flush=True)
print("hyperparameters", json.dumps(json.load(open(base + "/config/hyperparameters.json"))), flush=True)
"""


def _said(lines: list[str], word: str) -> Any:
    return json.loads(next(line for line in lines if line.startswith(f"{word} ")).partition(" ")[2])


def test_every_host_finds_what_sagemaker_writes(bench: Bench) -> None:
    whole = bench.put("whole", a="1", sub__b="2")
    shards = bench.put("shards", s0="0", s1="1", s2="2")
    found = bench.run(
        LIST_INPUT,
        HyperParameters={"lr": "0.1"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 30},
        InputDataConfig=[
            channel("all", whole),
            channel("part", shards, S3DataDistributionType="ShardedByS3Key") | {"InputMode": "FastFile"},
        ],
    )

    logs = bench.logs(found["TrainingJobName"])
    assert _said(logs["algo-1"], "input") == ["all/a", "all/sub/b", "part/s0", "part/s2"]
    assert _said(logs["algo-2"], "input") == ["all/a", "all/sub/b", "part/s1"]
    assert _said(logs["algo-2"], "hyperparameters") == {"lr": "0.1"}
    assert _said(logs["algo-2"], "channels")["part"] == {
        "TrainingInputMode": "FastFile",
        "S3DistributionType": "ShardedByS3Key",
        "RecordWrapperType": "None",
    }
    assert _said(logs["algo-2"], "resources") == {
        "current_host": "algo-2",
        "current_instance_type": "ml.m5.large",
        "current_group_name": "homogeneousCluster",
        "hosts": ["algo-1", "algo-2"],
        "instance_groups": [
            {
                "instance_group_name": "homogeneousCluster",
                "instance_type": "ml.m5.large",
                "hosts": ["algo-1", "algo-2"],
            }
        ],
        "network_interface_name": "eth0",
    }


def test_instance_groups_get_their_own_channels_and_types(bench: Bench) -> None:
    uri = bench.put("groups", a="1")
    groups = [
        {"InstanceGroupName": "cpu", "InstanceType": "ml.m5.large", "InstanceCount": 1},
        {"InstanceGroupName": "gpu", "InstanceType": "ml.g4dn.12xlarge", "InstanceCount": 1},
    ]
    found = bench.run(
        LIST_INPUT + "import subprocess\nprint('gpus', subprocess.run(['nvidia-smi', '--list-gpus'],"
        " capture_output=True, text=True).stdout.count('GPU '), flush=True)",
        ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 30},
        InputDataConfig=[
            channel("for-cpu", uri, InstanceGroupNames=["cpu"]),
            channel("for-gpu", uri, InstanceGroupNames=["gpu"]),
        ],
    )

    logs = bench.logs(found["TrainingJobName"])
    assert _said(logs["algo-1"], "input") == ["for-cpu/a"]
    assert _said(logs["algo-2"], "input") == ["for-gpu/a"]
    assert (_said(logs["algo-1"], "gpus"), _said(logs["algo-2"], "gpus")) == (0, 4)
    assert _said(logs["algo-2"], "resources")["current_group_name"] == "gpu"


def test_manifest_names_the_objects_of_a_channel(bench: Bench) -> None:
    uri = bench.put("listed", a="1", b="2", c="3")
    manifest = bench.put("manifests", **{"m.json": json.dumps([{"prefix": f"{uri}/"}, "a", "c"])})

    found = bench.run(
        LIST_INPUT, InputDataConfig=[channel("train", f"{manifest}/m.json", S3DataType="ManifestFile")]
    )

    assert _said(bench.logs(found["TrainingJobName"])["algo-1"], "input") == ["train/a", "train/c"]


def test_container_reaches_the_sandbox_as_aws(bench: Bench) -> None:
    """A container's own calls to AWS are answered, also where it has a network of its own."""
    found = bench.run(
        "import os, urllib.request as u\n"
        "print(u.urlopen(os.environ['AWS_ENDPOINT_URL'] + '/_sandbox/health', timeout=10).status)\n"
        "print(os.environ['TRAINING_JOB_NAME'], os.environ['TRAINING_JOB_ARN'], os.environ['AWS_REGION'],"
        " os.environ['MINE'])",
        Environment={"MINE": "yes"},
    )

    name, arn = found["TrainingJobName"], found["TrainingJobArn"]
    assert bench.logs(name)["algo-1"][1:] == ["200", f"{name} {arn} us-east-1 yes"]


def test_isolated_container_reaches_nothing(bench: Bench) -> None:
    if bench.mode == "process":
        pytest.skip("plain processes share this machine's network")
    found = bench.run(
        "import os, urllib.request as u\n"
        "u.urlopen(os.environ['AWS_ENDPOINT_URL'] + '/_sandbox/health', timeout=10)",
        EnableNetworkIsolation=True,
    )

    assert found["TrainingJobStatus"] == "Failed"
    lines = bench.logs(found["TrainingJobName"])["algo-1"]
    assert any("Connection refused" in line for line in lines), lines


def test_file_system_is_mounted_at_its_channel(bench: Bench) -> None:
    """What one job writes the next one reads, and `ro` means it where hosts have mounts of their own."""
    subnet = bench.sandbox.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    fsx = bench.sandbox.client("fsx")
    created = fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[subnet],
        LustreConfiguration={"DeploymentType": "SCRATCH_2"},
    )["FileSystem"]
    mount_name = created["LustreConfiguration"]["MountName"]
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        [found] = fsx.describe_file_systems(FileSystemIds=[created["FileSystemId"]])["FileSystems"]
        if found["Lifecycle"] == "AVAILABLE":
            break
        time.sleep(0.1)

    def mounted(mode: str) -> dict[str, Any]:
        source = {
            "FileSystemId": created["FileSystemId"],
            "FileSystemAccessMode": mode,
            "FileSystemType": "FSxLustre",
            "DirectoryPath": f"/{mount_name}",
        }
        return {
            "InputDataConfig": [{"ChannelName": "data", "DataSource": {"FileSystemDataSource": source}}],
            "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": [subnet]},
        }

    place = "import os\ndata = os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml') + '/input/data/data'\n"
    first = bench.run(place + "open(data + '/shared', 'w').write('from the first job')", **mounted("rw"))
    second = bench.run(place + "print(open(data + '/shared').read())", **mounted("ro"))
    third = bench.run(place + "open(data + '/shared', 'w')", **mounted("ro"))

    assert first["TrainingJobStatus"] == second["TrainingJobStatus"] == "Completed"
    assert "from the first job" in bench.logs(second["TrainingJobName"])["algo-1"]
    assert third["TrainingJobStatus"] == ("Failed" if bench.mode == "namespace" else "Completed")


def test_file_system_that_is_not_there_fails_the_job(bench: Bench) -> None:
    source = {
        "FileSystemId": "fs-0123456789abcdef0",
        "FileSystemAccessMode": "ro",
        "FileSystemType": "FSxLustre",
        "DirectoryPath": "/fsx",
    }

    found = bench.run(
        "pass",
        InputDataConfig=[{"ChannelName": "data", "DataSource": {"FileSystemDataSource": source}}],
        VpcConfig={"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
    )

    assert found["FailureReason"].startswith("ClientError: Unable to mount file system: fs-0123456789abcdef0")


def test_outputs_are_uploaded_as_asked(bench: Bench) -> None:
    script = (
        "import os\nbase = os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml')\n"
        "open(base + '/model/m', 'w').write('model')\nopen(base + '/output/data/o', 'w').write('output')"
    )
    packed = bench.run(script)
    plain = bench.run(
        script, OutputDataConfig={"S3OutputPath": f"s3://{BUCKET}/out", "CompressionType": "NONE"}
    )

    name = packed["TrainingJobName"]
    assert packed["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{BUCKET}/out/{name}/output/model.tar.gz"
    assert (bench.artifact(name, "m"), bench.artifact(name, "o", "output")) == ("model", "output")
    assert bench.text(f"out/{plain['TrainingJobName']}/output/model/m") == "model"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"RoleArn": "arn:aws:iam::123456789012:role/Nobody"}, "Could not assume role", id="no role"
        ),
        pytest.param(
            {"RoleArn": "arn:aws:iam::123456789012:role/CodeBuildRole"},
            "allows principal",
            id="a role of others",
        ),
        pytest.param(
            {"InputDataConfig": [channel("train", f"s3://{BUCKET}/nothing-here")]},
            "No S3 objects found under S3 URL",
            id="an input that is not there",
        ),
        pytest.param(
            {"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 90}},
            "only supported when EnableManagedSpotTraining",
            id="a wait without spot",
        ),
        pytest.param(
            {
                "EnableManagedSpotTraining": True,
                "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 30},
            },
            "greater than or equal to MaxRuntimeInSeconds",
            id="a wait shorter than the run",
        ),
        pytest.param(
            {"StoppingCondition": {"MaxRuntimeInSeconds": 29 * 86_400}}, "MaxRuntimeInSeconds", id="29 days"
        ),
        pytest.param(
            {
                "ResourceConfig": {
                    "InstanceType": "ml.m5.large",
                    "InstanceCount": 1,
                    "InstanceGroups": [
                        {"InstanceGroupName": "a", "InstanceType": "ml.m5.large", "InstanceCount": 1}
                    ],
                }
            },
            "together with InstanceGroups",
            id="groups and a type",
        ),
        pytest.param(
            {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 0, "VolumeSizeInGB": 1}},
            "InstanceCount",
            id="no machine",
        ),
        pytest.param(
            {
                "ResourceConfig": {
                    "InstanceType": "ml.p4d.24xlarge",
                    "InstanceCount": 1,
                    "VolumeSizeInGB": 30,
                    "VolumeKmsKeyId": "key",
                }
            },
            "VolumeKmsKeyId is not supported",
            id="a volume key on local disks",
        ),
        pytest.param(
            {
                "InputDataConfig": [
                    {
                        "ChannelName": "train",
                        "DataSource": {
                            "FileSystemDataSource": {
                                "FileSystemId": "fs-0123456789abcdef0",
                                "FileSystemAccessMode": "ro",
                                "FileSystemType": "FSxLustre",
                                "DirectoryPath": "/fsx",
                            }
                        },
                    }
                ]
            },
            "VpcConfig is required",
            id="a file system without a VPC",
        ),
        pytest.param(
            {"ResourceConfig": {"InstanceType": "ml.zz.huge", "InstanceCount": 1, "VolumeSizeInGB": 1}},
            "Member must satisfy enum value set",
            id="a type that does not exist",
        ),
    ],
)
def test_aws_refuses_at_create(sandbox: Sandbox, changes: dict[str, Any], message: str) -> None:
    bench = Bench(sandbox)
    request = bench.request(**changes)

    with pytest.raises(ClientError, match=message) as refused:
        bench.sagemaker.create_training_job(**request)

    assert refused.value.response["Error"]["Code"] == "ValidationException"
    with pytest.raises(ClientError, match="Requested resource not found"):
        bench.sagemaker.describe_training_job(TrainingJobName=request["TrainingJobName"])


def test_a_name_is_used_once(bench: Bench) -> None:
    request = bench.request("pass")
    bench.sagemaker.create_training_job(**request)

    with pytest.raises(ClientError, match="names must be unique within an AWS account and region") as refused:
        bench.sagemaker.create_training_job(**request)

    assert refused.value.response["Error"]["Code"] == "ResourceInUse"


def test_jobs_are_listed_in_pages_by_name_status_and_time(bench: Bench) -> None:
    mark = f"list{uuid.uuid4().hex[:6]}"
    names = [f"{mark}-{number}" for number in range(3)]
    for name in names:
        bench.run("pass", TrainingJobName=name)
    ask = {"NameContains": mark, "StatusEquals": "Completed", "SortBy": "Name", "SortOrder": "Descending"}

    pages = list(
        bench.sagemaker.get_paginator("list_training_jobs").paginate(**ask, PaginationConfig={"PageSize": 2})
    )

    assert [[job["TrainingJobName"] for job in page["TrainingJobSummaries"]] for page in pages] == [
        [names[2], names[1]],
        [names[0]],
    ]
    second = bench.sagemaker.describe_training_job(TrainingJobName=names[1])["LastModifiedTime"]
    after = bench.sagemaker.list_training_jobs(NameContains=mark, LastModifiedTimeAfter=second)
    assert names[0] not in [job["TrainingJobName"] for job in after["TrainingJobSummaries"]]
    failed = bench.sagemaker.list_training_jobs(NameContains=mark, StatusEquals="Failed")
    assert failed["TrainingJobSummaries"] == []


def test_tags_of_a_job_are_kept_and_found(bench: Bench) -> None:
    mark = uuid.uuid4().hex
    found = bench.run("pass", Tags=[{"Key": "run", "Value": mark}])
    arn = found["TrainingJobArn"]

    bench.sagemaker.add_tags(
        ResourceArn=arn, Tags=[{"Key": "run", "Value": mark + "x"}, {"Key": "b", "Value": "c"}]
    )

    tags = {tag["Key"]: tag["Value"] for tag in bench.sagemaker.list_tags(ResourceArn=arn)["Tags"]}
    assert tags == {"run": mark + "x", "b": "c"}
    results = bench.sagemaker.search(
        Resource="TrainingJob",
        SearchExpression={"Filters": [{"Name": "Tags.run", "Operator": "Equals", "Value": mark + "x"}]},
    )["Results"]
    assert [result["TrainingJob"]["TrainingJobName"] for result in results] == [found["TrainingJobName"]]


def test_deleted_job_is_gone_and_a_running_one_stays(bench: Bench) -> None:
    ended = bench.run("pass")["TrainingJobName"]
    running = bench.start("import time; time.sleep(300)")

    bench.sagemaker.delete_training_job(TrainingJobName=ended)

    with pytest.raises(ClientError, match="Requested resource not found"):
        bench.sagemaker.describe_training_job(TrainingJobName=ended)
    with pytest.raises(ClientError, match="ResourceInUse"):
        bench.sagemaker.delete_training_job(TrainingJobName=running)
    bench.sagemaker.stop_training_job(TrainingJobName=running)
    bench.end(running)


def test_model_parallel_job_is_launched_and_says_that_it_was_not_run(bench: Bench) -> None:
    code = bench.code(train="print('must not run')")
    hyperparameters = distributed(
        code, "train.py", 8, mp_parameters=json.dumps({"pipeline_parallel_degree": 2, "microbatches": 4})
    )

    found = bench.run(HyperParameters=hyperparameters)

    assert "Launch only: pipeline_parallel_degree=2" in found["FailureReason"]
    lines = "\n".join(bench.logs(found["TrainingJobName"])["algo-1"])
    assert "smddpmprun -i ml.m5.large --allow-bypass python -m mpi4py train.py" in lines
    assert "must not run\n" not in lines


CONTAINER_PYTHON = os.environ.get("SMD_CONTAINER_PYTHON", "")
"""A Python with sagemaker-training, sagemaker-pytorch-training, torch and mpi4py."""
TORCH = """
import argparse, os, torch, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--backend")
backend = parser.parse_args().backend
if backend == "smddp":
    import smdistributed.dataparallel.torch.torch_smddp
dist.init_process_group(backend)
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
if dist.get_rank() == 0:
    open(os.environ["SM_MODEL_DIR"] + "/sum", "w").write(str(value.item()))
dist.destroy_process_group()
"""
MPI = """
import sys
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1)
if "--fail" in sys.argv and MPI.COMM_WORLD.rank == 1:
    raise ValueError("rank one gave up")
if MPI.COMM_WORLD.rank == 0:
    open("/opt/ml/model/sum", "w").write(str(float(total)))
"""


@pytest.fixture(scope="module")
def toolkit_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A sandbox whose containers have AWS's own toolkit."""
    if not CONTAINER_PYTHON:
        pytest.skip("SMD_CONTAINER_PYTHON does not name a Python with sagemaker-training")
    if os.geteuid() != 0 or not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()):
        pytest.skip("needs root, openmpi-bin and openssh-server")
    home = tmp_path_factory.mktemp("toolkit")
    yield _bench(home, "namespace", f"--container-python={CONTAINER_PYTHON}")
    stop_sandbox(home)


SMDDP_FLAGS = {
    "sagemaker_mpi_enabled": "false",
    "sagemaker_distributed_dataparallel_enabled": "true",
    "sagemaker_distributed_dataparallel_custom_mpi_options": '""',
    "sagemaker_instance_type": '"ml.g4dn.12xlarge"',
}


@pytest.mark.parametrize(
    ("script", "flags", "processes"),
    [
        pytest.param(
            TORCH,
            {
                "sagemaker_mpi_enabled": "false",
                "sagemaker_torch_distributed_enabled": "true",
                "sagemaker_instance_type": '"ml.m5.large"',
                "backend": '"gloo"',
            },
            1,
            id="torchrun",
        ),
        pytest.param(MPI, {}, 2, id="mpirun over sshd"),
        pytest.param(TORCH, {**SMDDP_FLAGS, "backend": '"smddp"'}, 1, id="SMDDP's stand-in"),
    ],
)
def test_awss_toolkit_runs_two_hosts(
    toolkit_bench: Bench, script: str, flags: dict[str, str], processes: int
) -> None:
    bench = toolkit_bench
    two = {"InstanceType": "ml.g4dn.12xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30}
    hyperparameters = distributed(bench.code(train=script), "train.py", processes, **flags)

    found = bench.run(ResourceConfig=two, HyperParameters=hyperparameters)

    lines = bench.logs(found["TrainingJobName"])["algo-1"]
    assert found["TrainingJobStatus"] == "Completed", lines[-40:]
    assert lines[0] == "[sandbox] running AWS's sagemaker-training toolkit"
    ranks = 2 * processes
    assert float(bench.artifact(found["TrainingJobName"], "sum")) == ranks * (ranks + 1) / 2


def test_awss_toolkit_words_a_failing_rank(toolkit_bench: Bench) -> None:
    bench = toolkit_bench
    two = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 30}

    found = bench.run(
        ResourceConfig=two,
        HyperParameters=distributed(bench.code(train=MPI), "train.py", 1, fail='"yes"'),
    )

    assert found["FailureReason"].startswith("AlgorithmError: ExecuteUserScriptError:\nExitCode 1")
    lines = bench.logs(found["TrainingJobName"])["algo-1"]
    assert any(line.endswith("ValueError: rank one gave up") for line in lines)


COPY = """
import glob, json, os, sys
base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
config = json.load(open(base + "/config/resourceconfig.json"))
source, target = sys.argv[1:]
for path in sorted(glob.glob(source + "/*")):
    name = os.path.basename(path)
    open(f"{target}/{config['current_host']}-{name}", "w").write(open(path).read().upper())
    print("copied", name, flush=True)
"""


def test_processing_job_maps_shards_over_its_hosts(bench: Bench) -> None:
    uri = bench.put(f"raw-{uuid.uuid4().hex}", a="one", b="two", c="three")
    out = f"processed-{uuid.uuid4().hex}"
    job = bench.process(
        COPY,
        "/opt/ml/processing/input/raw",
        "/opt/ml/processing/output",
        ProcessingResources={
            "ClusterConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 30}
        },
        ProcessingInputs=[
            {
                "InputName": "raw",
                "S3Input": {
                    "S3Uri": uri,
                    "LocalPath": "/opt/ml/processing/input/raw",
                    "S3DataType": "S3Prefix",
                    "S3InputMode": "File",
                    "S3DataDistributionType": "ShardedByS3Key",
                },
            }
        ],
        ProcessingOutputConfig={
            "Outputs": [
                {
                    "OutputName": "shards",
                    "S3Output": {
                        "S3Uri": f"s3://{BUCKET}/{out}",
                        "LocalPath": "/opt/ml/processing/output",
                        "S3UploadMode": "EndOfJob",
                    },
                }
            ]
        },
    )

    assert job["ProcessingJobStatus"] == "Completed", (
        job,
        bench.logs(job["ProcessingJobName"], "Processing"),
    )
    listed = bench.s3.list_objects_v2(Bucket=BUCKET, Prefix=out)["Contents"]
    assert [item["Key"].rpartition("/")[2] for item in listed] == ["algo-1-a", "algo-1-c", "algo-2-b"]
    assert bench.text(f"{out}/algo-2-b") == "TWO"
    assert "copied b" in bench.logs(job["ProcessingJobName"], "Processing")["algo-2"]


def test_stopped_processing_job_keeps_what_it_uploads_as_it_goes(bench: Bench) -> None:
    """With S3UploadMode Continuous an output is in S3 before the job ends, and stays when it is stopped."""
    out, name = f"continuous-{uuid.uuid4().hex}", f"job-{uuid.uuid4().hex[:8]}"
    output = {
        "S3Uri": f"s3://{BUCKET}/{out}",
        "LocalPath": "/opt/ml/processing/output",
        "S3UploadMode": "Continuous",
    }

    def stop_once_uploaded() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if bench.s3.list_objects_v2(Bucket=BUCKET, Prefix=out).get("Contents"):
                break
            time.sleep(0.1)
        bench.sagemaker.stop_processing_job(ProcessingJobName=name)

    stopper = threading.Thread(target=stop_once_uploaded)
    stopper.start()
    job = bench.process(
        "import sys, time\nopen(sys.argv[1] + '/first', 'w').write('early')\ntime.sleep(300)",
        "/opt/ml/processing/output",
        ProcessingJobName=name,
        ProcessingOutputConfig={"Outputs": [{"OutputName": "out", "S3Output": output}]},
    )
    stopper.join()

    assert job["ProcessingJobStatus"] == "Stopped"
    assert bench.text(f"{out}/first") == "early"
    listed = bench.sagemaker.list_processing_jobs(NameContains=name, StatusEquals="Stopped")
    assert [item["ProcessingJobName"] for item in listed["ProcessingJobSummaries"]] == [name]


def test_failed_processing_job_keeps_its_exit_message(bench: Bench) -> None:
    script = (
        "import os, sys\nbase = os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml') + '/output'\n"
        "os.makedirs(base, exist_ok=True)\n"
        "open(base + '/message', 'w').write('bad rows: 3')\nsys.exit(2)"
    )

    job = bench.process(script)

    assert (job["ProcessingJobStatus"], job["ExitMessage"]) == ("Failed", "bad rows: 3")
    assert job["FailureReason"].startswith("AlgorithmError: ")


def test_job_that_ran_when_the_sandbox_died_is_found_failed(own_bench: Bench, tmp_path: Path) -> None:
    """A sudden death takes the hosts along, and the next start says what became of the job."""
    name = own_bench.start(
        "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(300)",
        Tags=[{"Key": "a", "Value": "b"}],
    )
    own_bench.printed(name, "pid ")
    pid = next(int(line.split()[1]) for line in own_bench.logs(name)["algo-1"] if line.startswith("pid "))

    os.kill(own_bench.sandbox.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
    again = start_sandbox(tmp_path, "--hosts=process")

    found = again.client("sagemaker").describe_training_job(TrainingJobName=name)
    assert found["TrainingJobStatus"] == "Failed"
    assert found["FailureReason"].startswith("InternalServerError: ")
    tags = again.client("sagemaker").list_tags(ResourceArn=found["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "a", "Value": "b"}]


def test_going_down_leaves_no_host_behind(tmp_path: Path) -> None:
    for mode in ("process", "auto"):
        home = tmp_path / mode
        bench = _bench(home, mode)
        name = bench.start("import subprocess\nsubprocess.run(['sleep', '31536000'])\n")
        bench.reach(name, lambda found: found["SecondaryStatus"] == "Training")
        time.sleep(0.5)

        stop_sandbox(home)

        assert not subprocess.run(["pgrep", "-f", "sleep 31536000"], capture_output=True, check=False).stdout
        assert not [line for line in Path("/proc/mounts").read_text().splitlines() if str(home) in line]


@pytest.mark.parametrize(
    ("shape", "ours"),
    [
        pytest.param("TrainingJobStatus", set(Status), id="TrainingJobStatus"),
        pytest.param("ProcessingJobStatus", set(Status), id="ProcessingJobStatus"),
        pytest.param("SecondaryStatus", set(Secondary), id="SecondaryStatus"),
    ],
)
def test_statuses_are_those_of_aws(shape: str, ours: set[str]) -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")

    assert ours <= set(model.shape_for(shape).enum)
