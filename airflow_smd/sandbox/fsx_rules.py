"""What FSx for Lustre refuses, with its codes and, where they are known, its words.

Kept apart from `domain.lustre` on purpose: two readings of the same documents that check each other.
Sources: botocore's FSx model, the FSx for Lustre User Guide, error texts in public issue threads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.core.exceptions import JsonRESTError

VERSIONS = ("2.10", "2.12", "2.15")
METADATA_IOPS = (1500, 3000, 6000, *range(12_000, 192_001, 12_000))
FILE_SYSTEMS_PER_CLASS = 100
GIB_PER_CLASS = 100_800
ASSOCIATIONS_PER_FILE_SYSTEM = 8
BAD_DEPLOYMENT = (
    "Invalid Lustre deployment configuration: the provided throughput is invalid or does not meet the "
    "storage capacity requirement"
)
NO_LNET = (
    "The file system cannot be created because the default security group in the subnet provided or the "
    "provided security groups do not permit Lustre LNET network traffic on port 988"
)
NO_BUCKET_ACCESS = (
    "Amazon FSx is unable to validate access to the S3 bucket. Ensure that the IAM role or user you are "
    "using has s3:Get*, s3:List* and s3:PutObject permissions to the S3 bucket prefix."
)


class Refused(JsonRESTError):
    """An answer with one of FSx's error codes; `members` are the error's own fields in botocore's model."""

    def __init__(self, code: str, message: str, **members: str) -> None:
        super().__init__(code, message)
        self.description = json.dumps({"__type": code, "Message": message, **members})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One row of the table of what can be created: a deployment type with its storage and tier."""

    capacities: tuple[int, ...]
    """Sizes allowed besides the multiples of `step`, in GiB."""
    step: int
    tiers: tuple[int, ...]
    """PerUnitStorageThroughput in MB/s per TiB; empty: the field is not allowed."""
    gib_per_server: int


_SSD = (1200,)
KINDS: Mapping[tuple[str, str], Kind] = {
    ("SCRATCH_1", "SSD"): Kind(capacities=(1200, 2400), step=3600, tiers=(), gib_per_server=3600),
    ("SCRATCH_2", "SSD"): Kind(capacities=_SSD, step=2400, tiers=(), gib_per_server=2400),
    ("PERSISTENT_1", "SSD"): Kind(capacities=_SSD, step=2400, tiers=(50, 100, 200), gib_per_server=2400),
    ("PERSISTENT_1", "HDD"): Kind(capacities=(), step=6000, tiers=(12, 40), gib_per_server=6000),
    ("PERSISTENT_2", "SSD"): Kind(
        capacities=_SSD, step=2400, tiers=(125, 250, 500, 1000), gib_per_server=2400
    ),
}
HDD_STEP = {12: 6000, 40: 1800}
EFA_STEP = {125: 38_400, 250: 19_200, 500: 9600, 1000: 4800}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What of a request decides its validity, with FSx's defaults filled in."""

    deployment_type: str
    storage_type: str
    capacity_gib: int | None
    per_unit: int | None
    efa: bool
    version: str
    lustre: Mapping[str, Any]

    @property
    def class_name(self) -> str:
        """Return the quota class: SCRATCH, PERSISTENT_1 or PERSISTENT_2."""
        return self.deployment_type if self.deployment_type.startswith("P") else "SCRATCH"

    @property
    def servers(self) -> int:
        """Return how many servers hold an address in the subnet: object servers and one for metadata."""
        if self.capacity_gib is None:
            return 2
        kind = KINDS[self.deployment_type, self.storage_type]
        return (
            math.ceil(
                self.capacity_gib
                / (_step(self, kind) if self.efa or self.storage_type == "HDD" else kind.gib_per_server)
            )
            + 1
        )


def shape(request: Mapping[str, Any]) -> Shape:
    """Return the shape of a CreateFileSystem request."""
    lustre = request.get("LustreConfiguration") or {}
    deployment = lustre.get("DeploymentType", "SCRATCH_1")
    storage = request.get("StorageType", "SSD")
    newest = storage == "INTELLIGENT_TIERING" or "MetadataConfiguration" in lustre
    default = "2.10" if deployment != "PERSISTENT_2" else "2.15" if newest else "2.12"
    return Shape(
        deployment_type=deployment,
        storage_type=storage,
        capacity_gib=request.get("StorageCapacity"),
        per_unit=lustre.get("PerUnitStorageThroughput"),
        efa=bool(lustre.get("EfaEnabled")),
        version=request.get("FileSystemTypeVersion", default),
        lustre=lustre,
    )


def check_create(request: Mapping[str, Any]) -> Shape:
    """Refuse what FSx refuses of a CreateFileSystem request by itself, network and S3 aside."""
    if request.get("FileSystemType") != "LUSTRE":
        raise Refused("BadRequest", "The sandbox creates file systems of type LUSTRE only.")
    if len(request.get("SubnetIds", ())) != 1:
        raise Refused("BadRequest", "Exactly one subnet ID must be provided for a Lustre file system.")
    wanted = shape(request)
    if wanted.version not in VERSIONS:
        raise Refused(
            "BadRequest", f"Invalid Lustre version: {wanted.version}. Must be {', '.join(VERSIONS)}."
        )
    if wanted.deployment_type == "PERSISTENT_2" and wanted.version == "2.10":
        raise Refused("BadRequest", "PERSISTENT_2 file systems do not support Lustre version 2.10.")
    _check_metadata(wanted)
    if wanted.storage_type == "INTELLIGENT_TIERING":
        _check_tiering(wanted)
    else:
        _check_provisioned(wanted)
    _check_extras(wanted, request)
    return wanted


def _check_provisioned(wanted: Shape) -> None:
    kind = KINDS.get((wanted.deployment_type, wanted.storage_type))
    if kind is None:
        raise Refused(
            "BadRequest", f"{wanted.deployment_type} does not support storage type {wanted.storage_type}."
        )
    if wanted.per_unit is not None and not kind.tiers:
        raise Refused(
            "BadRequest", f"PerUnitStorageThroughput is not supported for {wanted.deployment_type}."
        )
    if kind.tiers and wanted.per_unit not in kind.tiers:
        allowed = ", ".join(map(str, kind.tiers))
        raise Refused(
            "InvalidPerUnitStorageThroughput", f"{BAD_DEPLOYMENT} (PerUnitStorageThroughput: {allowed})"
        )
    if wanted.storage_type == "HDD" and "DriveCacheType" not in wanted.lustre:
        raise Refused("BadRequest", "DriveCacheType is required when storage type is HDD.")
    if wanted.storage_type != "HDD" and "DriveCacheType" in wanted.lustre:
        raise Refused("BadRequest", "DriveCacheType is supported for storage type HDD only.")
    check_capacity(wanted, wanted.capacity_gib)


def check_capacity(wanted: Shape, capacity_gib: int | None, *, creating: bool = True) -> None:
    """Refuse a capacity that a file system of this shape cannot have, at creation or after growing."""
    kind = KINDS[wanted.deployment_type, wanted.storage_type]
    step = _step(wanted, kind)
    also = () if wanted.efa or not creating else kind.capacities
    if capacity_gib in also or (capacity_gib and capacity_gib % step == 0):
        return
    words = [str(size) for size in also] + [f"a multiple of {step}"]
    raise Refused(
        "BadRequest",
        f"Invalid Lustre FS storage capacity: {capacity_gib}. Must be {' or '.join(words)}.",
    )


def _step(wanted: Shape, kind: Kind) -> int:
    if wanted.efa:
        return EFA_STEP[wanted.per_unit or 125]
    return HDD_STEP[wanted.per_unit or 12] if wanted.storage_type == "HDD" else kind.step


def _check_tiering(wanted: Shape) -> None:
    throughput = wanted.lustre.get("ThroughputCapacity")
    if wanted.deployment_type != "PERSISTENT_2":
        raise Refused("BadRequest", "INTELLIGENT_TIERING is supported for PERSISTENT_2 only.")
    if wanted.capacity_gib is not None or wanted.per_unit is not None:
        raise Refused(
            "BadRequest",
            "StorageCapacity and PerUnitStorageThroughput are not supported for INTELLIGENT_TIERING.",
        )
    if not throughput or throughput % 4000:
        raise Refused("BadRequest", f"Invalid ThroughputCapacity: {throughput}. Must be a multiple of 4000.")
    if "DataReadCacheConfiguration" not in wanted.lustre:
        raise Refused("BadRequest", "DataReadCacheConfiguration is required for INTELLIGENT_TIERING.")


def _check_metadata(wanted: Shape) -> None:
    metadata = wanted.lustre.get("MetadataConfiguration")
    if wanted.efa and (wanted.deployment_type != "PERSISTENT_2" or metadata is None):
        raise Refused(
            "BadRequest", "EfaEnabled is supported for PERSISTENT_2 with a MetadataConfiguration only."
        )
    if metadata is None:
        return
    if wanted.deployment_type != "PERSISTENT_2" or wanted.version != "2.15":
        raise Refused(
            "BadRequest", "MetadataConfiguration is supported for PERSISTENT_2 with Lustre 2.15 only."
        )
    iops = metadata.get("Iops")
    if metadata["Mode"] == "AUTOMATIC":
        if iops is not None:
            raise Refused("BadRequest", "Metadata Iops can be set in USER_PROVISIONED mode only.")
        if wanted.storage_type == "INTELLIGENT_TIERING":
            raise Refused("BadRequest", "INTELLIGENT_TIERING needs metadata in USER_PROVISIONED mode.")
        return
    least = automatic_iops(wanted.capacity_gib or 1200)
    allowed = [value for value in METADATA_IOPS if value >= least]
    if wanted.storage_type == "INTELLIGENT_TIERING":
        allowed = [6000, 12_000]
    if iops not in allowed:
        raise Refused("BadRequest", f"Invalid metadata Iops: {iops}. Must be one of {allowed}.")


def automatic_iops(capacity_gib: int) -> int:
    """Return the metadata IOPS that AUTOMATIC mode gives a file system on SSD."""
    if capacity_gib >= 48_000:
        return 12_000 * math.ceil(capacity_gib / 24_000)
    steps = ((12_000, 12_000), (4800, 6000), (2400, 3000))
    return next((iops for least, iops in steps if capacity_gib >= least), 1500)


def _check_extras(wanted: Shape, request: Mapping[str, Any]) -> None:
    lustre, scratch = wanted.lustre, wanted.class_name == "SCRATCH"
    if scratch and request.get("KmsKeyId"):
        raise Refused("BadRequest", "A KMS key is not supported for SCRATCH file systems.")
    if scratch and lustre.get("AutomaticBackupRetentionDays"):
        raise Refused("BadRequest", "Backups are not supported for SCRATCH file systems.")
    linked = {"ImportPath", "ExportPath", "AutoImportPolicy", "ImportedFileChunkSize"} & set(lustre)
    if linked and (wanted.deployment_type == "PERSISTENT_2"):
        raise Refused("BadRequest", f"{min(linked)} is not supported for PERSISTENT_2 file systems.")
    if linked and "ImportPath" not in lustre:
        raise Refused("BadRequest", f"{min(linked)} needs an ImportPath.")
    if "ImportPath" in lustre:
        bucket = _bucket("InvalidImportPath", lustre["ImportPath"])
        if "ExportPath" in lustre and _bucket("InvalidExportPath", lustre["ExportPath"]) != bucket:
            raise Refused("InvalidExportPath", "The export path must be in the bucket of the import path.")


def _bucket(code: str, uri: str) -> str:
    bucket = uri.removeprefix("s3://").partition("/")[0]
    if not uri.startswith("s3://") or not bucket:
        raise Refused(code, f"{uri} is not a valid S3 path.")
    return bucket


def check_quota(wanted: Shape, existing: list[Shape]) -> None:
    """Refuse what an account's default quotas do not allow beside `existing`."""
    same = [other for other in existing if other.class_name == wanted.class_name]
    if len(same) >= FILE_SYSTEMS_PER_CLASS:
        raise Refused(
            "ServiceLimitExceeded", "The account reached its file systems.", Limit="FILE_SYSTEM_COUNT"
        )
    if sum(each.capacity_gib or 0 for each in (*same, wanted)) > GIB_PER_CLASS:
        raise Refused("ServiceLimitExceeded", "The account reached its storage.", Limit="TOTAL_STORAGE")


def check_update(current: Shape, request: Mapping[str, Any]) -> None:
    """Refuse an UpdateFileSystem that the file system's type does not allow."""
    lustre = request.get("LustreConfiguration") or {}
    capacity = request.get("StorageCapacity")
    if capacity is not None:
        if current.deployment_type == "SCRATCH_1" or current.capacity_gib is None:
            raise Refused("BadRequest", "The storage capacity of this file system cannot be changed.")
        if capacity <= current.capacity_gib:
            raise Refused(
                "BadRequest", f"Storage capacity must be greater than the current {current.capacity_gib} GiB."
            )
        check_capacity(current, capacity, creating=False)
    tier = lustre.get("PerUnitStorageThroughput")
    if tier is not None:
        if current.class_name == "SCRATCH" or current.storage_type != "SSD" or current.efa:
            raise Refused("BadRequest", "PerUnitStorageThroughput of this file system cannot be changed.")
        if tier not in KINDS[current.deployment_type, "SSD"].tiers:
            raise Refused("InvalidPerUnitStorageThroughput", BAD_DEPLOYMENT)
    _check_only_up(current.lustre, lustre)
    version = request.get("FileSystemTypeVersion")
    if version is not None and (version not in VERSIONS or version < current.version):
        raise Refused("BadRequest", f"Cannot change the Lustre version from {current.version} to {version}.")


def _check_only_up(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    for name, nested in (("ThroughputCapacity", None), ("MetadataConfiguration", "Iops")):
        old, new = before.get(name), after.get(name)
        if new is not None and old is None:
            raise Refused("BadRequest", f"{name} cannot be added to a file system.")
        low, high = (old, new) if nested is None else ((old or {}).get(nested), (new or {}).get(nested))
        if low is not None and high is not None and high < low:
            raise Refused("BadRequest", f"{name} can only be increased.")


def check_association(request: Mapping[str, Any], current: Shape, existing: list[Mapping[str, Any]]) -> None:
    """Refuse a data repository association that this file system cannot have."""
    uri, path = request["DataRepositoryPath"], request.get("FileSystemPath")
    if current.deployment_type == "SCRATCH_1" or current.storage_type == "INTELLIGENT_TIERING":
        raise Refused(
            "UnsupportedOperation", "Data repository associations are not supported for this file system."
        )
    if current.version == "2.10":
        raise Refused("UnsupportedOperation", "Data repository associations need Lustre 2.12 or newer.")
    if current.lustre.get("ImportPath"):
        raise Refused("BadRequest", "The file system is linked to S3 by its ImportPath already.")
    _bucket("BadRequest", uri)
    if not path or not path.startswith("/"):
        raise Refused("BadRequest", "FileSystemPath must be given and start with /.")
    if len(existing) >= ASSOCIATIONS_PER_FILE_SYSTEM:
        raise Refused("BadRequest", "A file system has at most 8 data repository associations.")
    for other in existing:
        if overlap(path, other["FileSystemPath"]):
            raise Refused("BadRequest", f"FileSystemPath {path} overlaps with {other['FileSystemPath']}.")
        if uri.rstrip("/") == other["DataRepositoryPath"].rstrip("/"):
            raise Refused("BadRequest", f"{uri} is linked already to {other['FileSystemPath']}.")


def overlap(one: str, other: str) -> bool:
    """Tell whether one path of the file system lies in the other."""
    first, second = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return first.startswith(second) or second.startswith(first)
