"""What FSx refuses about metadata, EFA, links to S3, keys, backups and Regions, at creation."""

from __future__ import annotations

from typing import Any

from airflow_smd.domain.lustre.rule import Case, Rule
from airflow_smd.domain.lustre.values import LustreConfig, MetadataMode
from airflow_smd.errors import Severity


def _bad_iops(case: Case) -> bool:
    iops, table = case.config.metadata_iops, case.facts.rest["metadata"]
    if iops is None:
        return False
    if case.tiering:
        return iops not in table["tiering_iops"]
    stepped = iops > 0 and iops % table["step"] == 0 and iops <= table["largest"]
    return iops not in table["iops"] and not stepped


def _legacy_link(case: Case) -> bool:
    config = case.config
    return any(
        (config.import_path, config.export_path, config.auto_import_policy, config.imported_file_chunk_mib)
    )


def _outside_bucket(config: LustreConfig) -> bool:
    paths = (config.import_path, config.export_path)
    return all(paths) and len({str(path).removeprefix("s3://").partition("/")[0] for path in paths}) > 1


def _dated(case: Case) -> dict[str, Any]:
    return {"date": case.facts.rest["versions"]["date"]}


FEATURE_RULES: tuple[Rule[Case], ...] = (
    # Metadata and EFA.
    Rule(
        "metadata-forbidden", "metadata_mode",
        lambda c: not c.family.metadata and (c.config.metadata_mode, c.config.metadata_iops) != (None, None),
        "Only PERSISTENT_2 takes a metadata configuration.", "Leave mode and IOPS out.",
    ),
    Rule(
        "metadata-mode", "metadata_mode",
        lambda c: c.family.metadata and c.config.metadata_mode not in (None, *MetadataMode),
        "The mode is AUTOMATIC or USER_PROVISIONED.", "Use AUTOMATIC.",
    ),
    Rule(
        "metadata-iops-mode", "metadata_iops",
        lambda c: c.family.metadata
        and (c.config.metadata_mode == MetadataMode.USER_PROVISIONED) != (c.config.metadata_iops is not None),
        "IOPS go with the mode USER_PROVISIONED, and that mode needs them.",
        "Set both, or use AUTOMATIC and leave the IOPS out.",
    ),
    Rule(
        "metadata-iops-refused", "metadata_iops", lambda c: c.family.metadata and _bad_iops(c),
        "{family} takes {allowed} metadata IOPS.", "Choose one of them.",
        lambda c: {"allowed": c.iops_allowed},
    ),
    Rule(
        "metadata-iops-too-few", "metadata_iops",
        lambda c: c.family.metadata and not c.tiering and not _bad_iops(c)
        and (c.config.metadata_iops or c.automatic_iops) < c.automatic_iops,
        "A file system of this size has {automatic} IOPS anyway, and takes no fewer.",
        "Use {automatic} or more.",
        lambda c: {"automatic": c.automatic_iops},
    ),
    Rule(
        "metadata-tiering-automatic", "metadata_mode",
        lambda c: c.tiering and c.config.metadata_mode == MetadataMode.AUTOMATIC,
        "{family} has no AUTOMATIC metadata.", "Use USER_PROVISIONED with {allowed} IOPS.",
        lambda c: {"allowed": c.iops_allowed},
    ),
    Rule(
        "metadata-version", "type_version",
        lambda c: bool(c.config.metadata_mode) and c.older_than(c.facts.rest["versions"]["metadata"]),
        "A metadata configuration needs Lustre {needed}.", "Use {needed}.",
        lambda c: {"needed": c.facts.rest["versions"]["metadata"]},
    ),
    Rule(
        "efa-forbidden", "efa", lambda c: c.config.efa and not c.family.efa_step_gib,
        "Only PERSISTENT_2 has EFA.", "Leave it off, or use PERSISTENT_2.",
    ),
    Rule(
        "efa-needs-metadata", "efa",
        lambda c: c.config.efa and bool(c.family.efa_step_gib) and not c.config.metadata_mode,
        "EFA goes with a metadata configuration only.", "Set metadata_mode to AUTOMATIC.",
    ),
    # Version, links to S3, keys, backups.
    Rule(
        "version-unknown", "type_version",
        lambda c: c.config.type_version not in c.facts.rest["versions"]["values"],
        "Lustre versions were {versions} on {date}.", "Use 2.15.",
        lambda c: {"versions": ", ".join(c.facts.rest["versions"]["values"]), **_dated(c)},
        Severity.WARNING,
    ),
    Rule(
        "version-too-old", "type_version", lambda c: c.older_than(c.family.oldest_version),
        "{family} needs Lustre {oldest} or newer.", "Use 2.15.",
        lambda c: {"oldest": c.family.oldest_version},
    ),
    Rule(
        "association-version", "type_version",
        lambda c: c.config.associations > 0 and c.older_than(c.facts.rest["versions"]["association"]),
        "An association with S3 needs Lustre {needed} or newer.", "Use 2.15.",
        lambda c: {"needed": c.facts.rest["versions"]["association"]},
    ),
    Rule(
        "association-forbidden", "associations",
        lambda c: c.config.associations > 0 and not c.family.associations,
        "{family} takes no association with S3.", "Use SCRATCH_2, PERSISTENT_1 or PERSISTENT_2 on SSD.",
    ),
    Rule(
        "association-count", "associations", lambda c: not 0 <= c.config.associations <= 8,
        "A file system has at most 8 associations.", "Link a common prefix instead.",
    ),
    Rule(
        "import-path-forbidden", "import_path", lambda c: _legacy_link(c) and not c.family.import_path,
        "{family} takes no import path.", "Make an association with S3 instead.",
    ),
    Rule(
        "import-path-or-association", "import_path", lambda c: _legacy_link(c) and c.config.associations > 0,
        "A file system has import and export paths or associations, never both.", "Leave the paths out.",
    ),
    Rule(
        "import-path-missing", "import_path", lambda c: _legacy_link(c) and not c.config.import_path,
        "Export path, import policy and chunk size belong to an import path.", "Give import_path as well.",
    ),
    Rule(
        "export-path-bucket", "export_path", lambda c: _outside_bucket(c.config),
        "Import and export are one bucket.", "Export to the bucket of import_path.",
    ),
    Rule(
        "import-chunk", "imported_file_chunk_mib",
        lambda c: c.config.imported_file_chunk_mib is not None
        and not 1 <= c.config.imported_file_chunk_mib <= 512_000,
        "A chunk has 1 to 512000 MiB.", "Use 1024.",
    ),
    Rule(
        "kms-key-forbidden", "kms_key_id", lambda c: bool(c.config.kms_key_id) and not c.family.kms_key,
        "{family} is encrypted with a key of FSx and takes no other.",
        "Leave it out, or use a persistent type.",
    ),
    Rule(
        "backups-forbidden", "backup_retention_days",
        lambda c: c.config.backup_retention_days != 0 and not c.family.backups,
        "{family} has no backups.", "Set it to 0: the data is in S3.",
    ),
    Rule(
        "backups-linked", "backup_retention_days",
        lambda c: c.config.backup_retention_days != 0 and bool(c.config.associations or c.config.import_path),
        "A file system linked to S3 has no backups.", "Set it to 0: the data is in S3.",
    ),
    Rule(
        "backups-days", "backup_retention_days", lambda c: not 0 <= c.config.backup_retention_days <= 90,
        "Backups are kept for 0 to 90 days.", "Use 0 for training data.",
    ),
    Rule(
        "compression", "compression", lambda c: c.config.compression not in (None, "NONE", "LZ4"),
        "Compression is NONE or LZ4.", "Use NONE for shards that are compressed already.",
    ),
    # What the Region has.
    Rule(
        "region-family", "deployment_type",
        lambda c: c.region is not None and c.family.name not in c.region.families,
        "This Region has {has}.", "Use one of these, or another Region.",
        lambda c: {"has": ", ".join(sorted(c.region.families)) if c.region else ""},
    ),
    Rule(
        "region-tier", "per_unit_storage_throughput",
        lambda c: c.region is not None and c.family.metadata and bool(c.region.tiers) and c.known_tier
        and (c.config.per_unit_storage_throughput or min(c.region.tiers)) not in c.region.tiers,
        "This Region has {tiers} MB/s per TiB.", "Use one of these, or another Region.",
        lambda c: {"tiers": ", ".join(map(str, sorted(c.region.tiers))) if c.region else ""},
    ),
    Rule(
        "region-efa", "efa", lambda c: c.region is not None and c.config.efa and not c.region.efa,
        "This Region has no FSx for Lustre with EFA.", "Leave it off, or use another Region.",
    ),
)  # fmt: skip
