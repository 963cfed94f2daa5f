"""An update of a file system in the sandbox, from its request to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def needs_cool_down(changes: Mapping[str, Any]) -> bool:
    """Tell whether FSx wants six hours between two such changes."""
    scaled = ("PerUnitStorageThroughput", "ThroughputCapacity", "MetadataConfiguration")
    return "StorageCapacity" in changes or any(
        name in changes.get("LustreConfiguration", {}) for name in scaled
    )


def advance_update(record: dict[str, Any], now: float, seconds: float) -> None:
    """Go from PENDING through IN_PROGRESS to COMPLETED; more capacity is optimised for as long again."""
    update, answer = record["update"], record["answer"]
    grows, passed = "StorageCapacity" in update["changes"], (now - update["at"]) / seconds
    status = "PENDING" if passed < 0.1 else "IN_PROGRESS" if passed < 1 else "COMPLETED"
    if grows and 1 <= passed < 2:
        status = "UPDATED_OPTIMIZING"
    answer["Lifecycle"] = "UPDATING" if passed < 1 else "AVAILABLE"
    if passed >= 1 and not update.get("applied"):
        _apply(record, update["changes"])
        update["applied"] = True
    targets = {key: value for key, value in update["changes"].items() if key != "FileSystemTypeVersion"}
    actions = [
        {
            "AdministrativeActionType": "FILE_SYSTEM_UPDATE",
            "RequestTime": update["at"],
            "Status": status,
            "TargetFileSystemValues": targets,
        }
    ]
    if grows:
        optimising = "PENDING" if passed < 1 else "IN_PROGRESS" if passed < 2 else "COMPLETED"
        actions.append(
            {
                "AdministrativeActionType": "STORAGE_OPTIMIZATION",
                "RequestTime": update["at"],
                "Status": optimising,
                "ProgressPercent": max(0, min(100, int(100 * (passed - 1)))),
            }
        )
    answer["AdministrativeActions"] = actions
    if passed >= (2 if grows else 1):
        del record["update"]


def _apply(record: dict[str, Any], changes: Mapping[str, Any]) -> None:
    lustre = dict(changes.get("LustreConfiguration", {}))
    policy = lustre.pop("AutoImportPolicy", None)
    for target in (record["answer"], record["request"]):
        target |= {key: value for key, value in changes.items() if key != "LustreConfiguration"}
        target["LustreConfiguration"] = {**target.get("LustreConfiguration", {}), **lustre}
    legacy = record["answer"]["LustreConfiguration"].get("DataRepositoryConfiguration")
    if policy and legacy:
        legacy["AutoImportPolicy"] = policy
