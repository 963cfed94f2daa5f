"""What a training run needs of a file system, and what a file system is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DeploymentType(StrEnum):
    """How long FSx keeps the data; botocore: LustreDeploymentType."""

    SCRATCH_1 = "SCRATCH_1"
    SCRATCH_2 = "SCRATCH_2"
    PERSISTENT_1 = "PERSISTENT_1"
    PERSISTENT_2 = "PERSISTENT_2"


class StorageType(StrEnum):
    """What the data lies on; botocore: StorageType."""

    SSD = "SSD"
    HDD = "HDD"
    INTELLIGENT_TIERING = "INTELLIGENT_TIERING"


class MetadataMode(StrEnum):
    """Who chooses the metadata IOPS; botocore: MetadataConfigurationMode."""

    AUTOMATIC = "AUTOMATIC"
    USER_PROVISIONED = "USER_PROVISIONED"


class Access(StrEnum):
    """In which order the nodes read the data set, epoch after epoch."""

    RESHUFFLED = "reshuffled"
    """Every epoch each node reads another random 1/N of the data (DistributedSampler with set_epoch)."""
    OWN_SHARE = "own-share"
    """Each node reads the same 1/N in every epoch, in random order."""
    SEQUENTIAL = "sequential"
    """Each node reads the same 1/N in every epoch, always in the same order."""


class InputMode(StrEnum):
    """Where the training job reads its data from."""

    FSX_LUSTRE = "FSxLustre"
    FILE = "File"
    FAST_FILE = "FastFile"
    S3_EXPRESS = "S3Express"


class Limit(StrEnum):
    """What decides the time of an epoch."""

    COMPUTE = "compute"
    DISK = "disk"
    NETWORK = "network"
    CLIENT = "client"
    METADATA = "metadata"
    LOAD = "load"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class LustreConfig:
    """A file system as CreateFileSystem takes it, still as the user spells it; `problems` judges it."""

    deployment_type: str
    storage_type: str = StorageType.SSD
    storage_capacity_gib: int | None = None
    """None only for INTELLIGENT_TIERING, which grows by itself."""
    per_unit_storage_throughput: int | None = None
    """MB/s for each TiB of storage; only persistent types have it."""
    efa: bool = False
    metadata_mode: str | None = None
    metadata_iops: int | None = None
    """Only with USER_PROVISIONED."""
    drive_cache: str | None = None
    """NONE or READ; only with HDD, and required there."""
    throughput_capacity_mbps: int | None = None
    """Only with INTELLIGENT_TIERING."""
    read_cache_mode: str | None = None
    """NO_CACHE, USER_PROVISIONED or PROPORTIONAL_TO_THROUGHPUT_CAPACITY; only with INTELLIGENT_TIERING."""
    read_cache_gib: int | None = None
    """Only with read_cache_mode USER_PROVISIONED."""
    type_version: str = "2.15"
    """Lustre version; without it FSx makes 2.10 scratch file systems, which take no association with S3."""
    associations: int = 0
    """Data repository associations that will be made."""
    import_path: str | None = None
    """Legacy link to S3, set at creation."""
    export_path: str | None = None
    auto_import_policy: str | None = None
    imported_file_chunk_mib: int | None = None
    kms_key_id: str | None = None
    backup_retention_days: int = 0
    compression: str | None = None
    """NONE or LZ4."""
