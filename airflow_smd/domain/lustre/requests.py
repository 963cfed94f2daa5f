"""The request that creates a file system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_smd.domain.lustre.values import LustreConfig, MetadataMode, StorageType


def create_request(
    config: LustreConfig,
    *,
    subnet_id: str,
    security_group_ids: Sequence[str],
    tags: Mapping[str, str],
    client_request_token: str,
) -> dict[str, Any]:
    """Return the CreateFileSystem request of `config`, which `problems` has found good.

    Args:
        config: what to create.
        subnet_id: Lustre lives in exactly one; the training job must use it too.
        security_group_ids: those that open 988 and 1018 to 1023 among themselves.
        tags: who pays, and how we find it again.
        client_request_token: 1 to 63 of `[A-Za-z0-9_.-]`; the same token and request make one file system.
    """
    return _without_none(
        {
            "FileSystemType": "LUSTRE",
            "FileSystemTypeVersion": config.type_version,
            "ClientRequestToken": client_request_token,
            "StorageCapacity": config.storage_capacity_gib,
            "StorageType": str(config.storage_type),
            "SubnetIds": [subnet_id],
            "SecurityGroupIds": list(security_group_ids) or None,
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()] or None,
            "KmsKeyId": config.kms_key_id,
            "LustreConfiguration": _lustre(config),
        }
    )


def _lustre(config: LustreConfig) -> dict[str, Any]:
    tiering = config.storage_type == StorageType.INTELLIGENT_TIERING
    provisioned = config.metadata_mode == MetadataMode.USER_PROVISIONED
    return _without_none(
        {
            "DeploymentType": str(config.deployment_type),
            "PerUnitStorageThroughput": config.per_unit_storage_throughput,
            "EfaEnabled": config.efa or None,
            "MetadataConfiguration": config.metadata_mode
            and _without_none(
                {"Mode": str(config.metadata_mode), "Iops": config.metadata_iops if provisioned else None}
            ),
            "DriveCacheType": config.drive_cache,
            "ThroughputCapacity": config.throughput_capacity_mbps,
            "DataReadCacheConfiguration": _without_none(
                {"SizingMode": config.read_cache_mode, "SizeGiB": config.read_cache_gib}
            )
            if tiering
            else None,
            "ImportPath": config.import_path,
            "ExportPath": config.export_path,
            "AutoImportPolicy": config.auto_import_policy,
            "ImportedFileChunkSize": config.imported_file_chunk_mib,
            "AutomaticBackupRetentionDays": config.backup_retention_days or None,
            "DataCompressionType": config.compression,
        }
    )


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
