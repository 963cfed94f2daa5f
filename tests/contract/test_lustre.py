"""The same promises of FSx, kept by the fake and by the sandbox; botocore's model judges both."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from airflow_smd.aws.lustre import FileSystems
from airflow_smd.domain.lustre import lifecycle, load, problems
from airflow_smd.domain.lustre.need import Need
from airflow_smd.domain.lustre.plan import LustrePlan, plan
from airflow_smd.domain.lustre.requests import create_request
from airflow_smd.domain.lustre.values import LustreConfig
from airflow_smd.errors import InvalidInput
from airflow_smd.hooks.lustre import LustreHook
from airflow_smd.operators.lustre import LustreCreateOperator, LustreDeleteOperator
from airflow_smd.sandbox import fsx_rules
from tests.fakes.lustre import BUCKET, CLOSED, OPEN, SUBNET, FakeConnection
from tests.unit.operators.test_lustre import context

MODEL = botocore.session.get_session().get_service_model("fsx")


@dataclass(frozen=True, kw_only=True)
class World:
    """FSx with a network and a bucket, somewhere."""

    fsx: Any
    subnet_id: str
    open_group: str
    closed_group: str
    bucket: str
    fake: Any = None

    def settle(self, file_system_id: str) -> str:
        """Wait until the file system and its links are not on their way any more; return its state."""
        if self.fake:
            self.fake.settle()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                [found] = self.fsx.describe_file_systems(FileSystemIds=[file_system_id])["FileSystems"]
                links = self.fsx.describe_data_repository_associations(
                    Filters=[{"Name": "file-system-id", "Values": [file_system_id]}]
                )["Associations"]
            except ClientError as error:
                return code(error)
            states = {found["Lifecycle"], *(link["Lifecycle"] for link in links)}
            if not states & {"CREATING", "DELETING"}:
                return str(found["Lifecycle"])
            time.sleep(0.1)
        raise AssertionError("it does not settle")


@pytest.fixture(params=["fake", "sandbox"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "fake":
        aws = FakeConnection()
        yield World(
            fsx=aws.fsx,
            subnet_id=SUBNET,
            open_group=OPEN,
            closed_group=CLOSED,
            bucket=BUCKET,
            fake=aws.fsx,
        )
        return
    sandbox = request.getfixturevalue("sandbox")
    ec2, s3, fsx = sandbox.client("ec2"), sandbox.client("s3"), sandbox.client("fsx")
    subnet = ec2.describe_subnets()["Subnets"][0]
    name = secrets.token_hex(4)
    groups = [
        ec2.create_security_group(GroupName=f"{word}-{name}", Description=word, VpcId=subnet["VpcId"])[
            "GroupId"
        ]
        for word in ("open", "closed")
    ]
    for first, last in ((988, 988), (1018, 1023)):
        ec2.authorize_security_group_ingress(
            GroupId=groups[0],
            IpPermissions=[
                {
                    "IpProtocol": "tcp",
                    "FromPort": first,
                    "ToPort": last,
                    "UserIdGroupPairs": [{"GroupId": groups[0]}],
                }
            ],
        )
    bucket = f"lustre-{name}"
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="digits/train/000.tar", Body=b"samples")
    before = {each["FileSystemId"] for each in fsx.describe_file_systems()["FileSystems"]}
    yield World(
        fsx=fsx, subnet_id=subnet["SubnetId"], open_group=groups[0], closed_group=groups[1], bucket=bucket
    )
    for each in fsx.describe_file_systems()["FileSystems"]:
        if each["FileSystemId"] not in before:
            FileSystems(fsx).remove(each["FileSystemId"])


def code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


def asked(world: World, **changes: Any) -> dict[str, Any]:
    return {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": "2.15",
        "StorageCapacity": 1200,
        "SubnetIds": [world.subnet_id],
        "SecurityGroupIds": [world.open_group],
        "ClientRequestToken": secrets.token_hex(8),
        "Tags": [{"Key": "team", "Value": "vision"}],
        "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
        **changes,
    }


def made(world: World, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = world.fsx.create_file_system(**asked(world, **changes))["FileSystem"]
    return found


def test_a_file_system_is_created_available_deleted_and_unknown(world: World) -> None:
    file_system_id = made(world)["FileSystemId"]

    assert world.settle(file_system_id) == "AVAILABLE"
    assert world.fsx.delete_file_system(FileSystemId=file_system_id)["Lifecycle"] == "DELETING"
    assert world.settle(file_system_id) == "FileSystemNotFound"


def test_the_answer_keeps_to_the_model_and_carries_what_a_client_needs(world: World) -> None:
    answer = made(world)

    shape = MODEL.shape_for("FileSystem")
    assert set(answer) <= set(shape.members)
    assert set(answer["LustreConfiguration"]) <= set(MODEL.shape_for("LustreFileSystemConfiguration").members)
    assert answer["Tags"] == [{"Key": "team", "Value": "vision"}]
    assert len(answer["LustreConfiguration"]["MountName"]) == 8
    assert answer["DNSName"].startswith(f"{answer['FileSystemId']}.fsx.")
    assert answer["VpcId"].startswith("vpc-")


def test_the_oldest_type_is_mounted_as_fsx(world: World) -> None:
    answer = made(world, StorageCapacity=3600, LustreConfiguration={"DeploymentType": "SCRATCH_1"})

    assert answer["LustreConfiguration"]["MountName"] == "fsx"


def test_the_same_token_and_request_are_one_file_system(world: World) -> None:
    request = asked(world)

    ids = {world.fsx.create_file_system(**request)["FileSystem"]["FileSystemId"] for _ in range(3)}

    assert len(ids) == 1


def test_the_same_token_with_another_request_names_the_parameter(world: World) -> None:
    request = asked(world)
    world.fsx.create_file_system(**request)

    with pytest.raises(ClientError) as refused:
        world.fsx.create_file_system(**{**request, "StorageCapacity": 2400})

    assert code(refused.value) == "IncompatibleParameterError"
    assert refused.value.response["Parameter"] == "StorageCapacity"  # type: ignore[typeddict-item]


def test_a_subnet_that_does_not_exist_is_named(world: World) -> None:
    missing = "subnet-0aaaaaaaaaaaaaaa0"

    with pytest.raises(ClientError) as refused:
        made(world, SubnetIds=[missing])

    assert code(refused.value) == "InvalidNetworkSettings"
    assert refused.value.response["InvalidSubnetId"] == missing  # type: ignore[typeddict-item]


def test_a_group_that_keeps_lustre_out_is_refused_in_fsxs_words(world: World) -> None:
    with pytest.raises(ClientError, match="do not permit Lustre LNET network traffic on port 988") as refused:
        made(world, SecurityGroupIds=[world.closed_group])

    assert code(refused.value) == "InvalidNetworkSettings"


def test_two_subnets_are_refused(world: World) -> None:
    with pytest.raises(ClientError, match="one subnet"):
        made(world, SubnetIds=[world.subnet_id, world.subnet_id])


def linked(world: World, **changes: Any) -> tuple[str, dict[str, Any]]:
    file_system_id = made(world)["FileSystemId"]
    world.settle(file_system_id)
    request = {
        "FileSystemId": file_system_id,
        "FileSystemPath": "/dataset",
        "DataRepositoryPath": f"s3://{world.bucket}/digits/",
        "BatchImportMetaDataOnCreate": True,
        "Tags": [{"Key": "team", "Value": "vision"}],
        **changes,
    }
    return file_system_id, request


def test_a_link_becomes_available_and_keeps_to_the_model(world: World) -> None:
    file_system_id, request = linked(world)

    world.fsx.create_data_repository_association(**request)
    world.settle(file_system_id)

    filters = [{"Name": "file-system-id", "Values": [file_system_id]}]
    [link] = world.fsx.describe_data_repository_associations(Filters=filters)["Associations"]
    assert link["Lifecycle"] == "AVAILABLE"
    assert set(link) <= set(MODEL.shape_for("DataRepositoryAssociation").members)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/dataset", id="the same"),
        pytest.param("/dataset/train", id="inside"),
        pytest.param("/", id="around"),
    ],
)
def test_links_may_not_overlap(world: World, path: str) -> None:
    _, request = linked(world)
    world.fsx.create_data_repository_association(**request)

    with pytest.raises(ClientError, match="overlaps"):
        world.fsx.create_data_repository_association(
            **{**request, "FileSystemPath": path, "DataRepositoryPath": f"s3://{world.bucket}/other/"}
        )


def test_the_default_lustre_version_takes_no_link(world: World) -> None:
    request = {key: value for key, value in asked(world).items() if key != "FileSystemTypeVersion"}
    file_system_id = world.fsx.create_file_system(**request)["FileSystem"]["FileSystemId"]
    world.settle(file_system_id)

    with pytest.raises(ClientError, match=r"2\.12"):
        world.fsx.create_data_repository_association(
            FileSystemId=file_system_id,
            FileSystemPath="/dataset",
            DataRepositoryPath=f"s3://{world.bucket}/digits/",
            BatchImportMetaDataOnCreate=True,
        )


def test_a_running_task_keeps_the_file_system_until_it_is_cancelled(world: World) -> None:
    file_system_id, request = linked(world)
    world.fsx.create_data_repository_association(**request)
    world.settle(file_system_id)
    task_id = world.fsx.create_data_repository_task(
        FileSystemId=file_system_id, Type="EXPORT_TO_REPOSITORY", Report={"Enabled": False}
    )["DataRepositoryTask"]["TaskId"]

    with pytest.raises(ClientError, match="task"):
        world.fsx.delete_file_system(FileSystemId=file_system_id)
    assert world.fsx.cancel_data_repository_task(TaskId=task_id)["Lifecycle"] == "CANCELING"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(lifecycle.FileSystemLifecycle, "FileSystemLifecycle", id="file systems"),
        pytest.param(lifecycle.RepositoryLifecycle, "DataRepositoryLifecycle", id="links"),
        pytest.param(lifecycle.RepositoryTaskLifecycle, "DataRepositoryTaskLifecycle", id="tasks"),
    ],
)
def test_we_know_every_state_that_botocore_knows(ours: Any, theirs: str) -> None:
    assert {str(state) for state in ours} == set(MODEL.shape_for(theirs).enum)


# -- our rules and the sandbox's are two readings of the same documents ------------------------------------


def _shapes() -> Iterator[LustreConfig]:
    for deployment_type in ("SCRATCH_1", "SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2"):
        for storage_type in ("SSD", "HDD"):
            for tier in (None, 12, 40, 50, 100, 125, 200, 250, 500, 1000):
                for gib in (1200, 1300, 1800, 2400, 3600, 4800, 6000, 9600, 19_200, 36_000, 38_400):
                    for efa in (False, True):
                        yield LustreConfig(
                            deployment_type=deployment_type,
                            storage_type=storage_type,
                            storage_capacity_gib=gib,
                            per_unit_storage_throughput=tier,
                            efa=efa,
                            metadata_mode="AUTOMATIC" if efa else None,
                            drive_cache="READ" if storage_type == "HDD" else None,
                        )


def test_our_rules_and_the_sandboxs_refuse_the_same_shapes() -> None:
    """3,520 shapes; where one reading of AWS's documents refuses, the other does."""
    facts, disagreed = load(), []
    for config in _shapes():
        request = create_request(
            config, subnet_id="subnet-1", security_group_ids=["sg-1"], tags={}, client_request_token="t"
        )
        try:
            fsx_rules.check_create(request)
            refused = ""
        except fsx_rules.Refused as error:
            refused = json.loads(error.description)["Message"]
        found = [problem for problem in problems(config, None, facts) if problem.severity == "error"]
        if bool(found) != bool(refused):
            disagreed.append((config, refused, found))

    assert not disagreed


@settings(max_examples=60, deadline=None)
@given(
    dataset_gb=st.floats(0.1, 200_000),
    epoch_seconds=st.floats(1, 86_400),
    nodes=st.integers(1, 64),
    epochs=st.integers(1, 200),
    instance_type=st.sampled_from(["ml.p4d.24xlarge", "ml.g5.12xlarge", "ml.p5.48xlarge"]),
    efa=st.booleans(),
)
def test_every_plan_is_accepted_by_the_sandbox_and_by_botocore(
    dataset_gb: float, epoch_seconds: float, nodes: int, epochs: int, instance_type: str, efa: bool
) -> None:
    need = Need(
        dataset_bytes=int(dataset_gb * 1e9),
        epoch_seconds=epoch_seconds,
        nodes=nodes,
        epochs=epochs,
        instance_type=instance_type,
        efa=efa,
        insist=True,
    )
    try:
        planned = plan(need)
    except InvalidInput:
        reject()
    assert isinstance(planned, LustrePlan)
    request = create_request(
        planned.config,
        subnet_id="subnet-0123456789abcdef0",
        security_group_ids=["sg-0123456789abcdef0"],
        tags={"airflow-smd:name": "n"},
        client_request_token="t",
    )

    fsx_rules.check_create(request)
    report = ParamValidator().validate(request, MODEL.operation_model("CreateFileSystem").input_shape)
    assert not report.has_errors(), report.generate_report()


# -- the two tasks against the sandbox ---------------------------------------------------------------------


@pytest.mark.parametrize("world", ["sandbox"], indirect=True)
def test_the_tasks_create_fill_and_delete_a_file_system_of_the_sandbox(
    sandbox: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without deferral, through an Airflow connection."""
    extra = {"endpoint_url": sandbox.endpoint_url, "region_name": sandbox.region}
    connection = {"conn_type": "aws", "login": "a", "password": "b", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SANDBOX", json.dumps(connection))
    common: dict[str, Any] = {"aws_conn_id": "sandbox", "poll_seconds": 0.1, "deferrable": False}
    create = LustreCreateOperator(
        task_id="create",
        dataset={"uri": f"s3://{world.bucket}/digits/", "bytes": "100GB"},
        nodes=2,
        instance_type="ml.p4d.24xlarge",
        epoch_seconds=60,
        subnet_id=world.subnet_id,
        security_group_ids=[world.open_group],
        **common,
    )

    where = context(run_id=world.bucket)
    result = create.execute(where)

    file_system_id = result["file_system_id"]
    directory = sandbox.home / "fsx" / file_system_id / "dataset"
    assert (directory / "train" / "000.tar").read_bytes() == b"samples"
    path = result["data_source"]["FileSystemDataSource"]["DirectoryPath"]
    assert path == f"/{result['mount_name']}/dataset"
    delete = LustreDeleteOperator(task_id="delete", file_system=result, create_task_id="create", **common)
    assert delete.execute(where) == {"deleted": [file_system_id]}
    assert LustreHook(create.connection).file_systems.look(file_system_id) is None
    assert not directory.exists()
