"""What a client sees of the sandbox, whatever service it asks."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError

from airflow_smd.hooks.connection import AwsConnection
from airflow_smd.sandbox import lifecycle
from airflow_smd.sandbox.control import Control, SandboxRefused
from airflow_smd.sandbox.state import PERIOD_SECONDS
from tests.conftest import Sandbox, start_sandbox, stop_sandbox

ONCE = Config(retries={"max_attempts": 0}, read_timeout=20)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Return a home for a sandbox of the test's own, stopped at its end whatever happened."""
    yield tmp_path / "home"
    stop_sandbox(tmp_path / "home")


@pytest.fixture
def control(sandbox: Sandbox) -> Iterator[Control]:
    yield sandbox.control
    sandbox.control.clear_faults()


@pytest.fixture
def bucket(sandbox: Sandbox, request: pytest.FixtureRequest) -> str:
    name = "b-" + hashlib.sha1(request.node.name.encode()).hexdigest()[:20]
    sandbox.client("s3").create_bucket(Bucket=name)
    return name


def refusal(call: Any, **arguments: Any) -> dict[str, Any]:
    """Return the error with which a call is refused."""
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    answer: dict[str, Any] = refused.value.response
    return {**answer["Error"], "status": answer["ResponseMetadata"]["HTTPStatusCode"]}


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "airflow_smd.sandbox", *arguments], capture_output=True, text=True, check=False
    )


def test_new_sandbox_has_a_role_that_training_jobs_may_assume(sandbox: Sandbox) -> None:
    role = sandbox.client("iam").get_role(RoleName="SageMakerRole")["Role"]

    assert role["Arn"] == sandbox.role_arn
    principal = role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]
    assert principal == {"Service": "sagemaker.amazonaws.com"}


def test_roles_of_a_new_sandbox_may_do_everything(sandbox: Sandbox) -> None:
    simulated = sandbox.client("iam").simulate_principal_policy(
        PolicySourceArn=sandbox.role_arn, ActionNames=["sagemaker:CreateTrainingJob", "s3:GetObject"]
    )

    assert [result["EvalDecision"] for result in simulated["EvaluationResults"]] == ["allowed", "allowed"]


def test_simulation_tells_denied_from_not_allowed(sandbox: Sandbox) -> None:
    iam = sandbox.client("iam")
    arn = iam.create_role(RoleName="narrow", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    statements = [
        {"Effect": "Allow", "Action": "s3:Get*", "Resource": "arn:aws:s3:::mine/*"},
        {"Effect": "Deny", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::mine/secret"},
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_role_policy(RoleName="narrow", PolicyName="p", PolicyDocument=policy)

    results = iam.simulate_principal_policy(
        PolicySourceArn=arn,
        ActionNames=["s3:GetObject"],
        ResourceArns=["arn:aws:s3:::mine/a", "arn:aws:s3:::mine/secret", "arn:aws:s3:::other/a"],
    )["EvaluationResults"]

    assert [result["EvalDecision"] for result in results] == ["allowed", "explicitDeny", "implicitDeny"]


@pytest.mark.parametrize(
    ("service", "operation", "arguments", "code"),
    [
        pytest.param("sagemaker", "list_training_jobs", {}, "ThrottlingException", id="SageMaker"),
        pytest.param("codebuild", "list_projects", {}, "ThrottlingException", id="CodeBuild"),
        pytest.param("fsx", "describe_file_systems", {}, "ThrottlingException", id="FSx"),
        pytest.param("logs", "describe_log_groups", {}, "ThrottlingException", id="CloudWatch Logs"),
        pytest.param("cloudwatch", "list_metrics", {}, "Throttling", id="CloudWatch"),
        pytest.param("iam", "list_roles", {}, "Throttling", id="IAM, which speaks XML"),
        pytest.param("ec2", "describe_subnets", {}, "RequestLimitExceeded", id="EC2, with XML of its own"),
        pytest.param("s3", "list_buckets", {}, "SlowDown", id="S3, which is REST"),
    ],
)
def test_throttling_comes_in_the_words_of_the_service(
    sandbox: Sandbox, control: Control, service: str, operation: str, arguments: dict[str, Any], code: str
) -> None:
    control.fault("throttle", service=service)
    client = sandbox.client(service, config=ONCE)

    assert refusal(getattr(client, operation), **arguments)["Code"] == code
    assert getattr(client, operation)(**arguments)["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_boto3_repeats_a_throttled_call_by_itself(sandbox: Sandbox, control: Control) -> None:
    control.fault("throttle", service="sagemaker", operation="ListTrainingJobs", count=2)

    answer = sandbox.client("sagemaker").list_training_jobs()

    assert answer["ResponseMetadata"]["RetryAttempts"] == 2


def test_fault_strikes_after_the_named_number_of_calls(sandbox: Sandbox, control: Control) -> None:
    control.fault("error", service="sts", code="ExpiredToken", message="gone", status=403, after=2)
    sts = sandbox.client("sts", config=ONCE)

    sts.get_caller_identity()
    sts.get_caller_identity()
    error = refusal(sts.get_caller_identity)

    assert error["Code"] == "ExpiredToken"
    assert error["Message"] == "gone"
    assert error["status"] == 403


def test_unlimited_fault_strikes_until_it_is_deleted(sandbox: Sandbox, control: Control) -> None:
    fault = control.fault("throttle", service="sts", count=None)
    sts = sandbox.client("sts", config=ONCE)

    for _ in range(3):
        refusal(sts.get_caller_identity)
    control.clear_faults(fault)

    assert sts.get_caller_identity()["Account"] == sandbox.account_id


def test_fault_strikes_only_requests_with_the_named_value(
    sandbox: Sandbox, control: Control, bucket: str
) -> None:
    s3 = sandbox.client("s3", config=ONCE)
    control.fault("error", operation="PutObject", parameters={"Key": "*.pt"}, code="Denied", status=400)

    s3.put_object(Bucket=bucket, Key="data.csv", Body=b"1")

    assert refusal(s3.put_object, Bucket=bucket, Key="model.pt", Body=b"1")["Code"] == "Denied"


@pytest.mark.parametrize(
    ("when", "exists"),
    [
        pytest.param("before", False, id="before the call took effect"),
        pytest.param("after", True, id="after the call took effect"),
    ],
)
def test_connection_is_dropped(
    sandbox: Sandbox, control: Control, bucket: str, when: str, exists: bool
) -> None:
    control.fault("drop", service="s3", operation="PutObject", when=when)

    with pytest.raises(ConnectionClosedError):
        sandbox.client("s3", config=ONCE).put_object(Bucket=bucket, Key="k", Body=b"1")

    assert ("Contents" in sandbox.client("s3").list_objects_v2(Bucket=bucket)) is exists


def test_slow_call_is_answered_late(sandbox: Sandbox, control: Control) -> None:
    control.fault("slow", service="sts", seconds=0.6)

    sandbox.client("sts", config=ONCE).get_caller_identity()

    call = control.calls("sts", "GetCallerIdentity")[-1]
    assert call["seconds"] >= 0.6
    assert call["fault"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param({"kind": "explode"}, "Allowed are throttle, error", id="a kind that does not exist"),
        pytest.param({"kind": "drop", "when": "never"}, "before", id="a moment that does not exist"),
        pytest.param({"kind": "slow", "seconds": -1}, "0 to 86400", id="negative seconds"),
        pytest.param({"kind": "throttle", "count": 0}, "at least 1", id="a count of zero"),
        pytest.param({"kind": "throttle", "servce": "s3"}, "servce", id="a misspelt field"),
        pytest.param({"kind": "error", "status": 200}, "at least 400", id="a status that is no error"),
    ],
)
def test_impossible_fault_is_refused_with_what_is_allowed(
    control: Control, fault: dict[str, Any], words: str
) -> None:
    with pytest.raises(SandboxRefused, match=words):
        control.fault(**fault)


def test_all_that_is_wrong_with_a_fault_is_listed_at_once(control: Control) -> None:
    with pytest.raises(SandboxRefused, match="2 problems"):
        control.fault("slow", seconds="soon", count="few")


def test_calls_are_recorded_with_their_parameters(sandbox: Sandbox, control: Control, bucket: str) -> None:
    last = control.calls()[-1]["number"]

    sandbox.client("s3").put_object(Bucket=bucket, Key="a/b", Body=b"1")
    sandbox.client("iam").get_role(RoleName="SageMakerRole")
    sandbox.client("logs").describe_log_groups(logGroupNamePrefix="/aws")

    calls = control.calls(since=last)
    assert [(call["service"], call["operation"]) for call in calls] == [
        ("s3", "PutObject"),
        ("iam", "GetRole"),
        ("logs", "DescribeLogGroups"),
    ]
    assert calls[0]["parameters"] == {"Bucket": bucket, "Key": "a/b"}
    assert calls[1]["parameters"] == {"RoleName": "SageMakerRole"}
    assert calls[2]["parameters"] == {"logGroupNamePrefix": "/aws"}
    assert {call["status"] for call in calls} == {200}


def test_request_that_breaks_the_model_is_refused_with_every_violation(sandbox: Sandbox) -> None:
    error = refusal(
        sandbox.client("sagemaker", config=ONCE).create_training_job,
        TrainingJobName="not_allowed",
        RoleArn=sandbox.role_arn,
        AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
        OutputDataConfig={"S3OutputPath": "s3://bucket/out"},
        ResourceConfig={"InstanceType": "ml.zz.huge", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 60},
    )

    assert error["Code"] == "ValidationException"
    assert error["status"] == 400
    message = error["Message"]
    assert message.startswith("2 validation errors detected: Value 'not_allowed' at 'trainingJobName' failed")
    assert "; Value 'ml.zz.huge' at 'resourceConfig.instanceType' failed to satisfy constraint" in message


@pytest.mark.parametrize(
    ("service", "operation", "arguments", "code"),
    [
        pytest.param(
            "fsx",
            "create_file_system",
            {"FileSystemType": "LUSTRE", "SubnetIds": ["subnet-of-nobody"], "StorageCapacity": 1200},
            "BadRequest",
            id="FSx",
        ),
        pytest.param(
            "codebuild", "list_projects", {"sortOrder": "SIDEWAYS"}, "InvalidInputException", id="CodeBuild"
        ),
    ],
)
def test_refusal_has_the_code_of_the_service(
    sandbox: Sandbox, service: str, operation: str, arguments: dict[str, Any], code: str
) -> None:
    error = refusal(getattr(sandbox.client(service, config=ONCE), operation), **arguments)

    assert error["Code"] == code
    assert error["Message"].startswith("1 validation error detected: Value '")


def test_call_that_the_sandbox_lacks_says_so(sandbox: Sandbox) -> None:
    error = refusal(sandbox.client("sagemaker", config=ONCE).list_workforces)

    assert error["Code"] == "NotImplemented"
    assert "ListWorkforces" in error["Message"]
    assert error["status"] == 501


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": "https://example.com"}, id="a page of another site"),
        pytest.param({"Host": "example.com:5000"}, id="a domain that was made to point here"),
    ],
)
def test_pages_in_a_browser_are_not_answered(sandbox: Sandbox, headers: dict[str, str]) -> None:
    request = urllib.request.Request(sandbox.endpoint_url, headers=headers)

    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)


@pytest.mark.parametrize("host", ["localhost", "bucket.localhost", "[::1]", "s3.us-east-1.amazonaws.com"])
def test_names_of_this_machine_and_of_aws_are_answered(sandbox: Sandbox, host: str) -> None:
    request = urllib.request.Request(f"{sandbox.endpoint_url}/_sandbox/health", headers={"Host": f"{host}:1"})

    assert json.load(urllib.request.urlopen(request))["pid"] == sandbox.pid


def test_it_listens_on_one_address_of_this_machine_only(sandbox: Sandbox) -> None:
    port = int(sandbox.endpoint_url.rpartition(":")[2])

    with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
        socket.create_connection(("127.0.0.2", port), timeout=2)


def test_objects_roles_logs_metrics_and_images_survive_a_restart(home: Path) -> None:
    before = start_sandbox(home)
    s3 = before.client("s3")
    s3.create_bucket(Bucket="kept")
    s3.put_object(Bucket="kept", Key="a/b c", Body=b"hello", Tagging="x=1", Metadata={"m": "v"})
    upload = s3.create_multipart_upload(Bucket="kept", Key="big")["UploadId"]
    parts = [b"1" * (5 << 20), b"2"]
    etags = [
        s3.upload_part(Bucket="kept", Key="big", UploadId=upload, PartNumber=number, Body=part)["ETag"]
        for number, part in enumerate(parts, 1)
    ]
    uploaded = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]}
    s3.complete_multipart_upload(Bucket="kept", Key="big", UploadId=upload, MultipartUpload=uploaded)
    s3.put_bucket_versioning(Bucket="kept", VersioningConfiguration={"Status": "Enabled"})
    for body in (b"old", b"new"):
        s3.put_object(Bucket="kept", Key="versions", Body=body)
    logs = before.client("logs")
    logs.create_log_group(logGroupName="g")
    logs.create_log_stream(logGroupName="g", logStreamName="s")
    event = {"timestamp": int(time.time() * 1000), "message": "a line"}
    logs.put_log_events(logGroupName="g", logStreamName="s", logEvents=[event])
    before.client("cloudwatch").put_metric_data(Namespace="n", MetricData=[{"MetricName": "m", "Value": 1.5}])
    before.client("iam").create_role(RoleName="mine", AssumeRolePolicyDocument="{}")
    before.client("ecr").create_repository(repositoryName="images")

    stop_sandbox(home)
    after = start_sandbox(home)

    assert after.endpoint_url == before.endpoint_url
    s3 = after.client("s3")
    answer = s3.get_object(Bucket="kept", Key="a/b c")
    assert (answer["Body"].read(), answer["Metadata"]) == (b"hello", {"m": "v"})
    assert s3.get_object_tagging(Bucket="kept", Key="a/b c")["TagSet"] == [{"Key": "x", "Value": "1"}]
    answer = s3.get_object(Bucket="kept", Key="big")
    assert answer["Body"].read() == b"".join(parts)
    assert answer["ETag"].endswith('-2"')
    assert s3.get_object(Bucket="kept", Key="big", Range=f"bytes={(5 << 20) - 1}-")["Body"].read() == b"12"
    versions = s3.list_object_versions(Bucket="kept", Prefix="versions")["Versions"]
    bodies = [
        s3.get_object(Bucket="kept", Key="versions", VersionId=version["VersionId"])["Body"].read()
        for version in versions
    ]
    assert bodies == [b"new", b"old"]
    events = after.client("logs").get_log_events(logGroupName="g", logStreamName="s", startFromHead=True)
    assert [event["message"] for event in events["events"]] == ["a line"]
    assert after.client("cloudwatch").list_metrics(Namespace="n")["Metrics"]
    roles = {role["RoleName"] for role in after.client("iam").list_roles()["Roles"]}
    assert roles == {"mine", "SageMakerRole", "CodeBuildRole"}
    assert after.client("ecr").describe_repositories()["repositories"][0]["repositoryName"] == "images"


def test_state_survives_a_kill_but_for_the_last_seconds(home: Path) -> None:
    before = start_sandbox(home)
    before.client("s3").create_bucket(Bucket="kept")
    before.client("s3").put_object(Bucket="kept", Key="k", Body=b"1" * 100_000)
    time.sleep(3 * PERIOD_SECONDS)

    os.kill(before.pid, signal.SIGKILL)
    after = start_sandbox(home)

    assert after.client("s3").get_object(Bucket="kept", Key="k")["Body"].read() == b"1" * 100_000


def test_deleted_objects_leave_no_files(home: Path) -> None:
    s3 = start_sandbox(home).client("s3")
    s3.create_bucket(Bucket="kept")
    for key in ("stays", "goes"):
        s3.put_object(Bucket="kept", Key=key, Body=key.encode())
    s3.delete_object(Bucket="kept", Key="goes")

    stop_sandbox(home)

    assert [path.read_bytes() for path in (home / "aws/bodies").iterdir()] == [b"stays"]


def test_snapshot_of_another_moto_is_refused_with_the_way_out(home: Path) -> None:
    start_sandbox(home)
    stop_sandbox(home)
    snapshot = home / "aws/snapshot"
    header, _, rest = snapshot.read_bytes().partition(b"\n")
    snapshot.write_bytes(json.dumps({**json.loads(header), "moto": "4.0.0"}).encode() + b"\n" + rest)

    started = command("up", f"--home={home}")

    assert started.returncode == 1
    assert "was written by moto 4.0.0" in started.stderr
    assert "use another --home" in started.stderr
    assert "Traceback" not in started.stderr


def test_two_sandboxes_side_by_side_do_not_mix(sandbox: Sandbox, home: Path) -> None:
    other = start_sandbox(home)
    other.client("s3").create_bucket(Bucket="only-here")
    other.control.fault("throttle", service="sts", count=None)

    assert other.endpoint_url != sandbox.endpoint_url
    names = [bucket["Name"] for bucket in sandbox.client("s3").list_buckets()["Buckets"]]
    assert "only-here" not in names
    assert sandbox.client("sts").get_caller_identity()["Account"] == sandbox.account_id


def test_up_twice_is_the_same_sandbox(home: Path) -> None:
    first = start_sandbox(home)

    assert start_sandbox(home).pid == first.pid


def test_two_ups_at_once_are_one_sandbox(home: Path) -> None:
    arguments = [sys.executable, "-m", "airflow_smd.sandbox", "up", "--json", f"--home={home}"]
    ups = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(2)]

    answers = [json.loads(up.communicate()[0])["endpoint_url"] for up in ups]

    assert answers[0] == answers[1]
    assert Control(answers[0]).health()["home"] == str(home)


def test_up_with_other_settings_is_refused_while_it_runs(home: Path) -> None:
    start_sandbox(home, "--file-system-seconds=1")

    again = command("up", f"--home={home}", "--file-system-seconds=2")

    assert again.returncode == 1
    assert "file_system_seconds is 1.0, not 2.0" in again.stderr


def test_down_of_what_does_not_run_is_no_error(tmp_path: Path) -> None:
    answer = command("down", f"--home={tmp_path}")

    assert answer.returncode == 0
    assert "was not running" in answer.stdout


def test_down_ends_the_process_and_frees_the_port(home: Path) -> None:
    gone = start_sandbox(home)

    assert command("down", f"--home={home}").returncode == 0

    assert lifecycle.running(home) is None
    with pytest.raises(EndpointConnectionError):
        boto3.client("sts", endpoint_url=gone.endpoint_url, config=ONCE).get_caller_identity()
    with pytest.raises(SandboxRefused, match="airflow-smd sandbox up"):
        gone.control.health()


def test_sandbox_whose_home_is_deleted_ends(home: Path) -> None:
    start_sandbox(home)
    found = lifecycle.running(home)
    assert found

    shutil.rmtree(home)

    assert lifecycle._ended(found.process, 30)


def test_taken_port_is_named(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = command("up", f"--home={home}", f"--port={port}")

    assert started.returncode == 1
    assert f"Port {port} cannot be had" in started.stderr


def test_impossible_port_is_named(home: Path) -> None:
    started = command("up", f"--home={home}", "--port=70000")

    assert started.returncode == 1
    assert "Port 70000 cannot be had" in started.stderr
    assert "Traceback" not in started.stderr


def test_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    started = command("up", f"--home={tmp_path}/file/home")

    assert started.returncode == 1
    assert "cannot be written" in started.stderr
    assert "Traceback" not in started.stderr


def test_all_impossible_settings_are_told_by_up(home: Path) -> None:
    started = command("up", f"--home={home}", "--region=us-east-99", "--stop-grace-seconds=-1")

    assert started.returncode == 1
    assert started.stderr.startswith("airflow-smd sandbox up: 2 problems found")


def test_up_prints_what_a_shell_needs(home: Path) -> None:
    printed = command("up", f"--home={home}").stdout

    shell = subprocess.run(
        ["sh", "-c", f'{printed}\nprintf "%s\\n%s" "$AWS_ENDPOINT_URL" "$AIRFLOW_CONN_AWS_DEFAULT"'],
        capture_output=True,
        text=True,
        check=True,
    )
    endpoint_url, connection = shell.stdout.splitlines()
    assert json.loads(connection)["extra"] == {"region_name": "us-east-1", "endpoint_url": endpoint_url}


def test_airflow_connection_that_up_prints_reaches_it(
    sandbox: Sandbox, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in sandbox.environment.items():
        monkeypatch.setenv(name, value)

    buckets = AwsConnection().client("s3").list_buckets()["Buckets"]

    assert bucket in [one["Name"] for one in buckets]


def test_upload_of_unknown_length_arrives_whole(sandbox: Sandbox, bucket: str) -> None:
    connection = http.client.HTTPConnection(sandbox.endpoint_url.removeprefix("http://"))
    connection.request("PUT", f"/{bucket}/k", body=iter([b"ab", b"cd"]), encode_chunked=True)

    assert connection.getresponse().status == 200
    assert sandbox.client("s3").get_object(Bucket=bucket, Key="k")["Body"].read() == b"abcd"


def test_look_at_an_object_tells_its_size(sandbox: Sandbox, bucket: str) -> None:
    sandbox.client("s3").put_object(Bucket=bucket, Key="k", Body=b"x" * 12345)

    assert sandbox.client("s3").head_object(Bucket=bucket, Key="k")["ContentLength"] == 12345


def test_status_names_what_is_used_and_how_to_get_the_rest(sandbox: Sandbox) -> None:
    status = json.loads(command("status", "--json", f"--home={sandbox.home}").stdout)

    assert status["endpoint_url"] == sandbox.endpoint_url
    names = [capability["name"] for capability in status["capabilities"]]
    assert names == ["Hosts", "Open MPI", "OpenSSH server", "sagemaker-training toolkit", "Images"]
    assert all(one["used"] or (one["left_out"] and one["install"]) for one in status["capabilities"])


def test_fault_can_be_armed_from_the_command_line(sandbox: Sandbox, control: Control) -> None:
    armed = command("fault", "add", "slow", f"--home={sandbox.home}", "--service=s3", "--option=seconds=0.1")

    assert armed.returncode == 0, armed.stderr
    assert [(fault["kind"], fault["service"], fault["seconds"]) for fault in control.faults()] == [
        ("slow", "s3", 0.1)
    ]
