"""The requests that we build, against botocore's model of FSx."""

from __future__ import annotations

import re
from functools import cache

import botocore.session
import pytest
from botocore.validate import ParamValidator
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_smd.domain.lustre import (
    DeploymentType,
    LustreConfig,
    LustrePlan,
    MetadataMode,
    Need,
    StorageType,
    create_request,
    load,
    plan,
    update_request,
)
from airflow_smd.domain.lustre.rules_of_size import READ_CACHE_MODES


@cache
def model():
    return botocore.session.get_session().get_service_model("fsx")


def complaints(operation: str, request: dict) -> str:
    return (
        ParamValidator().validate(request, model().operation_model(operation).input_shape).generate_report()
    )


def created(config: LustreConfig) -> dict:
    return create_request(
        config,
        subnet_id="subnet-0123456789abcdef0",
        security_group_ids=["sg-0123456789abcdef0"],
        tags={"airflow-smd:name": "n"},
        client_request_token="a" * 63,
    )


@pytest.mark.parametrize(
    ("ours", "shape"),
    [
        pytest.param(DeploymentType, "LustreDeploymentType", id="deployment types"),
        pytest.param(StorageType, "StorageType", id="storage types"),
        pytest.param(MetadataMode, "MetadataConfigurationMode", id="metadata modes"),
        pytest.param(READ_CACHE_MODES, "LustreReadCacheSizingMode", id="read-cache modes"),
    ],
)
def test_our_words_are_those_of_fsx(ours, shape):
    assert {str(word) for word in ours} == set(model().shape_for(shape).enum)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(
            LustreConfig(
                deployment_type="PERSISTENT_1",
                storage_type="HDD",
                storage_capacity_gib=6000,
                per_unit_storage_throughput=12,
                drive_cache="READ",
                kms_key_id="alias/k",
                backup_retention_days=7,
            ),
            id="hard disks",
        ),
        pytest.param(
            LustreConfig(
                deployment_type="PERSISTENT_2",
                storage_type="INTELLIGENT_TIERING",
                throughput_capacity_mbps=4000,
                read_cache_mode="USER_PROVISIONED",
                read_cache_gib=64,
                metadata_mode="USER_PROVISIONED",
                metadata_iops=6000,
                efa=True,
            ),
            id="intelligent tiering",
        ),
        pytest.param(
            LustreConfig(
                deployment_type="SCRATCH_2",
                storage_capacity_gib=1200,
                import_path="s3://bucket/in",
                export_path="s3://bucket/out",
                auto_import_policy="NEW_CHANGED",
                imported_file_chunk_mib=1024,
                compression="LZ4",
            ),
            id="the legacy link",
        ),
    ],
)
def test_botocore_takes_the_request_of_every_kind(config):
    assert complaints("CreateFileSystem", created(config)) == ""


def test_only_given_fields_are_sent():
    scratch = created(LustreConfig(deployment_type="SCRATCH_2", storage_capacity_gib=1200))

    assert scratch["LustreConfiguration"] == {"DeploymentType": "SCRATCH_2"}
    assert scratch["FileSystemTypeVersion"] == "2.15"


def test_automatic_metadata_sends_no_iops():
    config = LustreConfig(
        deployment_type="PERSISTENT_2",
        storage_capacity_gib=4800,
        per_unit_storage_throughput=1000,
        metadata_mode="AUTOMATIC",
        efa=True,
    )

    assert created(config)["LustreConfiguration"] == {
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": 1000,
        "EfaEnabled": True,
        "MetadataConfiguration": {"Mode": "AUTOMATIC"},
    }


@settings(max_examples=60, deadline=None)
@given(
    dataset_bytes=st.integers(1, 10**15),
    epoch_seconds=st.floats(1, 10**5),
    nodes=st.integers(1, 200),
    region=st.sampled_from(sorted(load().regions)),
    usd=st.none() | st.floats(0.1, 100),
)
def test_botocore_takes_every_plan(dataset_bytes, epoch_seconds, nodes, region, usd):
    answer = plan(
        Need(
            dataset_bytes=dataset_bytes,
            epoch_seconds=epoch_seconds,
            nodes=nodes,
            region=region,
            node_usd_per_hour=usd,
            insist=True,
        )
    )
    assert isinstance(answer, LustrePlan)
    request = created(answer.config)

    assert complaints("CreateFileSystem", request) == ""
    token = model().shape_for("ClientRequestToken")
    assert re.fullmatch(token.metadata["pattern"], request["ClientRequestToken"])


@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        pytest.param(
            {"storage_capacity_gib": 2400},
            {"storage_capacity_gib": 4800},
            {"StorageCapacity": 4800},
            id="size",
        ),
        pytest.param(
            {"per_unit_storage_throughput": 125},
            {"per_unit_storage_throughput": 250},
            {"LustreConfiguration": {"PerUnitStorageThroughput": 250}},
            id="tier",
        ),
        pytest.param(
            {"metadata_mode": "USER_PROVISIONED", "metadata_iops": 6000},
            {"metadata_mode": "USER_PROVISIONED", "metadata_iops": 12000},
            {"LustreConfiguration": {"MetadataConfiguration": {"Iops": 12000}}},
            id="metadata IOPS",
        ),
        pytest.param({"type_version": "2.12"}, {}, {"FileSystemTypeVersion": "2.15"}, id="Lustre version"),
    ],
)
def test_an_update_sends_what_changes_and_botocore_takes_it(before, after, sent):
    base = {"deployment_type": "PERSISTENT_2"}
    request = update_request(
        LustreConfig(**base | before), LustreConfig(**base | after), file_system_id="fs-0123456789abcdef0"
    )

    assert request == {"FileSystemId": "fs-0123456789abcdef0", **sent}
    assert complaints("UpdateFileSystem", request) == ""
