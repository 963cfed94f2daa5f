"""When a file system is not worth it: AWS's guidance on the data source of a training job."""

from __future__ import annotations

from airflow_smd.domain.lustre.facts import Facts
from airflow_smd.domain.lustre.need import Need
from airflow_smd.domain.lustre.values import Access, InputMode
from airflow_smd.domain.units import GB, MB, format_bytes


def other_input(need: Need, facts: Facts) -> tuple[InputMode, tuple[str, ...]] | None:
    """Return the input mode that serves `need` without a file system, and why; None where FSx does best."""
    if need.insist or need.deployment_type is not None:
        return None
    rules = facts.rest["rules"]
    size = format_bytes(need.dataset_bytes)
    mean_bytes = need.dataset_bytes / need.file_count if need.file_count else None
    large = mean_bytes is not None and mean_bytes >= rules["small_file_mb"] * MB
    small = mean_bytes is not None and not large
    streamed = InputMode.S3_EXPRESS if small and need.access == Access.RESHUFFLED else InputMode.FAST_FILE
    pack = (
        f"Pack the files ({format_bytes(mean_bytes or 0)} each) into shards of about 150 MB first.",
    ) * small
    if not need.vpc:
        return streamed, ("A file system is mounted through a VPC, which this run may not use.", *pack)
    if not any(family.name in facts.regions[need.region].families for family in facts.families.values()):
        return streamed, (f"{need.region} has no FSx for Lustre.", *pack)
    threshold_gb = rules["single_node_file_mode_gb" if need.nodes == 1 else "file_mode_gb"]
    if need.dataset_bytes < threshold_gb * GB:
        seconds = need.dataset_bytes / MB / rules["download_mbps"]
        return InputMode.FILE, (
            f"{size} is below {threshold_gb} GB, where AWS advises File mode.",
            f"Each node downloads it in about {seconds:,.0f} s and then reads from its own disk.",
            "Making a file system takes minutes.",
            *pack,
        )
    if mean_bytes is not None and need.epochs == 1:
        return streamed, (
            "One epoch reads every byte once, so that nothing is gained by a copy of S3.",
            *pack,
        )
    if large and need.access == Access.SEQUENTIAL:
        return InputMode.FAST_FILE, (
            f"Files of {format_bytes(mean_bytes or 0)} read in order stream from S3 without a file system.",
        )
    return None
