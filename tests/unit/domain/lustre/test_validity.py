"""What FSx refuses at creation and update is found before the call."""

from __future__ import annotations

import pytest

from airflow_smd.domain.lustre import LustreConfig, load, problems, update_problems
from airflow_smd.domain.lustre.rules_of_features import FEATURE_RULES
from airflow_smd.domain.lustre.rules_of_size import SIZE_RULES
from airflow_smd.domain.lustre.update import RULES as UPDATE_RULES
from airflow_smd.errors import Severity

SCRATCH_2 = {"deployment_type": "SCRATCH_2", "storage_capacity_gib": 2400}
PERSISTENT_2 = {
    "deployment_type": "PERSISTENT_2",
    "storage_capacity_gib": 2400,
    "per_unit_storage_throughput": 250,
    "metadata_mode": "AUTOMATIC",
}
HDD = {
    "deployment_type": "PERSISTENT_1",
    "storage_type": "HDD",
    "storage_capacity_gib": 6000,
    "per_unit_storage_throughput": 12,
    "drive_cache": "READ",
}
TIERING = {
    "deployment_type": "PERSISTENT_2",
    "storage_type": "INTELLIGENT_TIERING",
    "throughput_capacity_mbps": 4000,
    "read_cache_mode": "PROPORTIONAL_TO_THROUGHPUT_CAPACITY",
    "metadata_mode": "USER_PROVISIONED",
    "metadata_iops": 6000,
}
EFA = {**PERSISTENT_2, "storage_capacity_gib": 19200, "efa": True}
PERSISTENT_1 = {
    "deployment_type": "PERSISTENT_1",
    "storage_capacity_gib": 1200,
    "per_unit_storage_throughput": 200,
}


def rules(region: str | None = "us-east-1", **config) -> set[str]:
    return {problem.rule for problem in problems(LustreConfig(**config), region)}


ACCEPTED = [
    pytest.param({**base, **change}, id=words)
    for base, change, words in [
        (SCRATCH_2, {"storage_capacity_gib": 1200}, "scratch 1200"),
        (SCRATCH_2, {"storage_capacity_gib": 12000}, "scratch 12000"),
        (SCRATCH_2, {"associations": 8}, "scratch with eight associations"),
        (SCRATCH_2, {"import_path": "s3://b/p", "export_path": "s3://b/out"}, "scratch with the legacy link"),
        ({"deployment_type": "SCRATCH_1"}, {"storage_capacity_gib": 3600}, "old scratch 3600"),
        ({"deployment_type": "SCRATCH_1"}, {"storage_capacity_gib": 2400}, "old scratch 2400"),
        (PERSISTENT_1, {}, "persistent 1"),
        (PERSISTENT_1, {"kms_key_id": "alias/k", "backup_retention_days": 7}, "a key and backups"),
        (HDD, {}, "hard disks at 12"),
        (HDD, {"per_unit_storage_throughput": 40, "storage_capacity_gib": 1800}, "hard disks at 40"),
        (PERSISTENT_2, {}, "persistent 2"),
        (PERSISTENT_2, {"metadata_mode": None}, "persistent 2 without a metadata configuration"),
        (PERSISTENT_2, {"metadata_mode": "USER_PROVISIONED", "metadata_iops": 192000}, "most metadata IOPS"),
        (EFA, {}, "EFA at 250"),
        (EFA, {"per_unit_storage_throughput": 1000, "storage_capacity_gib": 4800}, "EFA at 1000"),
        (TIERING, {}, "intelligent tiering"),
        (TIERING, {"read_cache_mode": "USER_PROVISIONED", "read_cache_gib": 32}, "a small read cache"),
    ]
]


@pytest.mark.parametrize("config", ACCEPTED)
def test_what_fsx_accepts_has_no_problem(config):
    assert rules(**config) == set()


REFUSED = [
    (SCRATCH_2, {"storage_capacity_gib": 3600}, "capacity-refused", "3600 is for the old scratch"),
    (SCRATCH_2, {"storage_capacity_gib": 1300}, "capacity-refused", "a size between"),
    (SCRATCH_2, {"storage_capacity_gib": -2400}, "capacity-refused", "a negative multiple"),
    (SCRATCH_2, {"storage_capacity_gib": 0}, "capacity-refused", "zero"),
    (SCRATCH_2, {"storage_capacity_gib": None}, "capacity-missing", "no size"),
    (SCRATCH_2, {"storage_capacity_gib": 103200}, "capacity-over-quota", "more than a new account has"),
    (
        {"deployment_type": "SCRATCH_1"},
        {"storage_capacity_gib": 4800},
        "capacity-refused",
        "old scratch 4800",
    ),
    (SCRATCH_2, {"per_unit_storage_throughput": 125}, "tier-forbidden", "scratch with a tier"),
    (PERSISTENT_2, {"per_unit_storage_throughput": None}, "tier-missing", "persistent without a tier"),
    (PERSISTENT_2, {"per_unit_storage_throughput": 200}, "tier-refused", "the other generation's tier"),
    (PERSISTENT_1, {"per_unit_storage_throughput": 125}, "tier-refused", "125 on persistent 1"),
    (PERSISTENT_2, {"per_unit_storage_throughput": 2000}, "tier-unknown", "a tier newer than the table"),
    (HDD, {"storage_capacity_gib": 1200}, "capacity-refused", "an SSD size on hard disks"),
    (HDD, {"storage_capacity_gib": 1800}, "capacity-refused", "40's size at 12"),
    (HDD, {"storage_capacity_gib": 108000}, "capacity-too-large", "beyond the largest of hard disks"),
    (HDD, {"per_unit_storage_throughput": 50}, "tier-refused", "an SSD tier on hard disks"),
    (HDD, {"drive_cache": None}, "drive-cache-missing", "hard disks without a word on the cache"),
    (SCRATCH_2, {"drive_cache": "READ"}, "drive-cache-forbidden", "a drive cache on SSD"),
    (TIERING, {"storage_capacity_gib": 1200}, "capacity-elastic", "a size where storage is elastic"),
    (TIERING, {"throughput_capacity_mbps": 1000}, "tiering-throughput", "what only the docstring allows"),
    (TIERING, {"throughput_capacity_mbps": None}, "tiering-throughput", "tiering without throughput"),
    (PERSISTENT_2, {"throughput_capacity_mbps": 4000}, "tiering-throughput-forbidden", "throughput on SSD"),
    (TIERING, {"read_cache_mode": None}, "read-cache-missing", "tiering without a read cache"),
    (PERSISTENT_2, {"read_cache_mode": "NO_CACHE"}, "read-cache-forbidden", "a read cache on SSD"),
    (TIERING, {"read_cache_gib": 64}, "read-cache-size", "a size for a proportional cache"),
    (
        TIERING,
        {"read_cache_mode": "USER_PROVISIONED", "read_cache_gib": 31},
        "read-cache-size",
        "a read cache that is too small",
    ),
    (SCRATCH_2, {"metadata_mode": "AUTOMATIC"}, "metadata-forbidden", "metadata on scratch"),
    (PERSISTENT_1, {"metadata_mode": "AUTOMATIC"}, "metadata-forbidden", "metadata on persistent 1"),
    (PERSISTENT_2, {"metadata_mode": "MANUAL"}, "metadata-mode", "a mode that does not exist"),
    (PERSISTENT_2, {"metadata_iops": 3000}, "metadata-iops-mode", "IOPS with AUTOMATIC"),
    (PERSISTENT_2, {"metadata_mode": "USER_PROVISIONED"}, "metadata-iops-mode", "the mode without IOPS"),
    (
        PERSISTENT_2,
        {"metadata_mode": "USER_PROVISIONED", "metadata_iops": 9000},
        "metadata-iops-refused",
        "IOPS between two steps",
    ),
    (
        PERSISTENT_2,
        {"metadata_mode": "USER_PROVISIONED", "metadata_iops": 204000},
        "metadata-iops-refused",
        "IOPS above the largest",
    ),
    (
        PERSISTENT_2,
        {"storage_capacity_gib": 48000, "metadata_mode": "USER_PROVISIONED", "metadata_iops": 12000},
        "metadata-iops-too-few",
        "fewer IOPS than come with the size",
    ),
    (
        TIERING,
        {"metadata_mode": "AUTOMATIC", "metadata_iops": None},
        "metadata-tiering-automatic",
        "automatic",
    ),
    (TIERING, {"metadata_iops": 1500}, "metadata-iops-refused", "SSD's IOPS on tiering"),
    (PERSISTENT_2, {"type_version": "2.12"}, "metadata-version", "metadata on an old Lustre"),
    (SCRATCH_2, {"efa": True}, "efa-forbidden", "EFA on scratch"),
    (EFA, {"metadata_mode": None}, "efa-needs-metadata", "EFA without metadata"),
    (EFA, {"storage_capacity_gib": 2400}, "capacity-refused", "EFA at a size of the others"),
    (SCRATCH_2, {"type_version": "2.16"}, "version-unknown", "a Lustre newer than the table"),
    (
        PERSISTENT_2,
        {"metadata_mode": None, "type_version": "2.10"},
        "version-too-old",
        "persistent 2 on the oldest Lustre",
    ),
    (SCRATCH_2, {"associations": 1, "type_version": "2.10"}, "association-version", "scratch's own default"),
    (
        {"deployment_type": "SCRATCH_1", "storage_capacity_gib": 1200},
        {"associations": 1},
        "association-forbidden",
        "an association on old scratch",
    ),
    (TIERING, {"associations": 1}, "association-forbidden", "an association on tiering"),
    (SCRATCH_2, {"associations": 9}, "association-count", "nine associations"),
    (PERSISTENT_2, {"import_path": "s3://b"}, "import-path-forbidden", "the legacy link on persistent 2"),
    (
        SCRATCH_2,
        {"import_path": "s3://b", "associations": 1},
        "import-path-or-association",
        "both kinds of links",
    ),
    (SCRATCH_2, {"export_path": "s3://b/out"}, "import-path-missing", "an export without an import"),
    (SCRATCH_2, {"auto_import_policy": "NEW"}, "import-path-missing", "a policy without an import"),
    (
        SCRATCH_2,
        {"import_path": "s3://a", "export_path": "s3://b/out"},
        "export-path-bucket",
        "export to another bucket",
    ),
    (
        SCRATCH_2,
        {"import_path": "s3://a", "imported_file_chunk_mib": 512001},
        "import-chunk",
        "a chunk that is too large",
    ),
    (SCRATCH_2, {"kms_key_id": "alias/k"}, "kms-key-forbidden", "a key on scratch"),
    (SCRATCH_2, {"backup_retention_days": 7}, "backups-forbidden", "backups of scratch"),
    (PERSISTENT_1, {"backup_retention_days": 91}, "backups-days", "backups for too long"),
    (
        PERSISTENT_1,
        {"backup_retention_days": 7, "associations": 1},
        "backups-linked",
        "backups of what S3 holds",
    ),
    (PERSISTENT_1, {"compression": "ZSTD"}, "compression", "another compression"),
    (SCRATCH_2, {"deployment_type": "SCRATCH_3"}, "deployment-type", "a type that does not exist"),
    (SCRATCH_2, {"storage_type": "HDD"}, "storage-type", "hard disks on scratch"),
]


@pytest.mark.parametrize(
    ("config", "rule"),
    [pytest.param({**base, **change}, rule, id=words) for base, change, rule, words in REFUSED],
)
def test_what_fsx_refuses_is_one_problem_of_its_own(config, rule):
    assert rules(**config) == {rule}


@pytest.mark.parametrize(
    ("region", "config", "rule"),
    [
        pytest.param("sa-east-1", PERSISTENT_2, "region-family", id="no persistent 2 in the Region"),
        pytest.param("ca-west-1", SCRATCH_2, "region-family", id="no scratch in the Region"),
        pytest.param(
            "il-central-1",
            {**PERSISTENT_2, "per_unit_storage_throughput": 1000},
            "region-tier",
            id="only low tiers in the Region",
        ),
        pytest.param("il-central-1", EFA, "region-efa", id="no EFA in the Region"),
        pytest.param("us-esat-1", SCRATCH_2, "region-unknown", id="a typo in the Region"),
    ],
)
def test_what_the_region_lacks_is_found(region, config, rule):
    assert rules(region, **config) == {rule}


def test_a_typo_in_the_region_brings_the_likely_name():
    (problem,) = problems(LustreConfig(**SCRATCH_2), "eu-wset-1")

    assert "eu-west-1" in problem.remedy


def test_every_problem_is_told_at_once():
    found = rules(
        "mars-1",
        deployment_type="SCRATCH_2",
        storage_capacity_gib=3600,
        per_unit_storage_throughput=125,
        efa=True,
        kms_key_id="k",
    )

    assert found == {
        "region-unknown",
        "capacity-refused",
        "tier-forbidden",
        "efa-forbidden",
        "kms-key-forbidden",
    }


def test_the_remedy_of_a_bad_size_is_a_size_that_works():
    (problem,) = problems(LustreConfig(**{**SCRATCH_2, "storage_capacity_gib": 3600}), "us-east-1")

    assert problem.remedy == "Use 4800."
    assert "1200 or a multiple of 2400 GiB" in problem.message


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"per_unit_storage_throughput": 2000}, id="a newer tier"),
        pytest.param({"type_version": "2.18", "metadata_mode": None}, id="a newer Lustre"),
        pytest.param({"storage_capacity_gib": 240000}, id="more than the first quota"),
    ],
)
def test_what_may_only_be_newer_than_the_table_warns(change):
    found = problems(LustreConfig(**{**PERSISTENT_2, **change}), "us-east-1")

    assert {problem.severity for problem in found} == {Severity.WARNING}


def test_the_tables_can_be_corrected_by_the_user():
    facts = load(
        {
            "lustre": {"families": [{"name": "PERSISTENT_2", "tiers": [125, 250, 500, 1000, 2000]}]},
            "regions": {"groups": {"all": {"regions": ["moon-east-1"], "tiers": [2000]}}},
        }
    )
    config = LustreConfig(**{**PERSISTENT_2, "per_unit_storage_throughput": 2000})

    assert problems(config, "moon-east-1", facts) == ()


UPDATE_REFUSED = [
    (
        {"deployment_type": "SCRATCH_1", "storage_capacity_gib": 2400},
        {"storage_capacity_gib": 3600},
        "update-grow-forbidden",
        "old scratch grows",
    ),
    (SCRATCH_2, {"storage_capacity_gib": 1200}, "update-shrink", "a file system shrinks"),
    (HDD, {"storage_capacity_gib": 12001}, "update-step", "hard disks by another step"),
    (SCRATCH_2, {"storage_capacity_gib": 3600}, "update-step", "scratch by half a step"),
    (SCRATCH_2, {"per_unit_storage_throughput": 125}, "update-tier-forbidden", "a tier for scratch"),
    (HDD, {"per_unit_storage_throughput": 40}, "update-tier-forbidden", "another tier of hard disks"),
    (EFA, {"per_unit_storage_throughput": 125}, "update-tier-efa", "another tier with EFA"),
    (
        TIERING | {"throughput_capacity_mbps": 8000},
        {"throughput_capacity_mbps": 4000},
        "update-throughput-down",
        "less throughput",
    ),
    (
        PERSISTENT_2 | {"metadata_mode": None},
        {"metadata_mode": "AUTOMATIC"},
        "update-metadata-added",
        "metadata later",
    ),
    (TIERING | {"metadata_iops": 12000}, {"metadata_iops": 6000}, "update-metadata-down", "fewer IOPS"),
    (
        PERSISTENT_2 | {"metadata_mode": "USER_PROVISIONED", "metadata_iops": 6000},
        {"metadata_mode": "AUTOMATIC", "metadata_iops": None},
        "update-metadata-automatic",
        "back to automatic IOPS",
    ),
    (
        PERSISTENT_2 | {"metadata_mode": "USER_PROVISIONED", "metadata_iops": 6000},
        {"metadata_iops": 12000, "storage_capacity_gib": 4800},
        "update-metadata-with-size",
        "IOPS and size at once",
    ),
    (SCRATCH_2, {"type_version": "2.12"}, "update-version-down", "an older Lustre"),
    (PERSISTENT_2, {"efa": True, "storage_capacity_gib": 19200}, "update-fixed", "EFA later"),
    (
        SCRATCH_2,
        {"deployment_type": "PERSISTENT_2", "per_unit_storage_throughput": 125},
        "update-fixed",
        "another type",
    ),
]


@pytest.mark.parametrize(
    ("before", "change", "rule"),
    [pytest.param(before, change, rule, id=words) for before, change, rule, words in UPDATE_REFUSED],
)
def test_what_an_update_may_not_do_is_found(before, change, rule):
    found = update_problems(LustreConfig(**before), LustreConfig(**{**before, **change}), "us-east-1")

    assert rule in {problem.rule for problem in found}


@pytest.mark.parametrize(
    ("before", "change"),
    [
        pytest.param(SCRATCH_2, {"storage_capacity_gib": 4800}, id="scratch grows by a step"),
        pytest.param(HDD, {"storage_capacity_gib": 12000}, id="hard disks grow by their step"),
        pytest.param(PERSISTENT_2, {"per_unit_storage_throughput": 125}, id="a lower tier"),
        pytest.param(PERSISTENT_2, {"per_unit_storage_throughput": 1000}, id="a higher tier"),
        pytest.param(TIERING, {"throughput_capacity_mbps": 8000}, id="more throughput"),
        pytest.param(EFA, {"storage_capacity_gib": 38400}, id="EFA grows by its step"),
    ],
)
def test_an_update_that_fsx_takes_has_no_problem(before, change):
    assert update_problems(LustreConfig(**before), LustreConfig(**{**before, **change}), "us-east-1") == ()


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        pytest.param({"seconds_since_update": 3600}, "update-cool-down", id="an hour after the last"),
        pytest.param({"optimizing": True}, "update-optimizing", id="while it optimises"),
    ],
)
def test_an_update_waits_for_the_last_one(state, rule):
    before, after = LustreConfig(**SCRATCH_2), LustreConfig(**SCRATCH_2 | {"storage_capacity_gib": 4800})

    assert {problem.rule for problem in update_problems(before, after, "us-east-1", **state)} == {rule}


def test_six_hours_later_the_next_update_is_fine():
    before, after = LustreConfig(**SCRATCH_2), LustreConfig(**SCRATCH_2 | {"storage_capacity_gib": 4800})

    assert update_problems(before, after, "us-east-1", seconds_since_update=6 * 3600) == ()


def test_every_rule_has_a_case_here():
    """A rule that no case breaks is a rule that nobody knows to work."""
    told = {rule for *_, rule, _ in REFUSED + UPDATE_REFUSED}
    elsewhere = {"region-family", "region-tier", "region-efa", "update-cool-down", "update-optimizing"}

    assert {rule.name for rule in (*SIZE_RULES, *FEATURE_RULES, *UPDATE_RULES)} == (told | elsewhere) - {
        "deployment-type",
        "storage-type",
    }
