"""SageMaker Debugger's rules, where a job asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.debugger import INTERVALS_MS
from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Form, Job
from airflow_smd.domain.distribution.rules.base import E, Finding, N, W, finding, rule

API = "CreateTrainingJob, ProfilerConfig"
UNSUPPORTED_REGIONS = (
    *("us-iso-east-1", "us-isob-east-1", "ap-southeast-3", "ap-southeast-4", "eu-south-2"),
    *("me-central-1", "ap-south-2", "eu-central-2", "us-gov-east-1"),
)
"""sagemaker 2.257.7, PROFILER_UNSUPPORTED_REGIONS, 2026-11-30."""


@rule("debugger-closed", N, "debugger-turn-off.md: no new customers since 2026-07-30")
def debugger_closed(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Debugger, which AWS opens for no new account."""
    if job.get("rules") or job.get("debugger_hook_config") or job.get("profiler_config"):
        yield finding(
            "rules",
            len(job.get("rules", [])),
            "Accounts that did not use Debugger before 2026-07-30 cannot use it.",
            "The plugin computes the same rules from CloudWatch.",
        )


@rule("debugger-rule", E, "smdebug_rulesconfig 1.0.1")
def debugger_rule(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A rule that Debugger does not have, or that is written in an unknown form."""
    for index, given in enumerate(job.get("rules", [])):
        field = f"rules[{index}]"
        kinds = [
            kind
            for kind in ("profiler", "debugger")
            if isinstance(given, Mapping) and f"{kind}_rule" in given
        ]
        if len(kinds) != 1:
            yield finding(
                field,
                repr(given)[:200],
                "A rule is a mapping with profiler_rule or debugger_rule.",
                'Write {"profiler_rule": "CPUBottleneck"}.',
            )
            continue
        name = given[f"{kinds[0]}_rule"]
        known = tuple(facts.debugger_rules(kinds[0]))
        if name not in known:
            meant = facts.suggestion(str(name), known)
            yield finding(
                f"{field}.{kinds[0]}_rule",
                repr(name)[:200],
                f"Known are {', '.join(known)}.",
                f"Did you mean {meant}?" if meant else "Choose one of them.",
            )
        for key in given.keys() - {f"{kinds[0]}_rule", "params", "stop_training"}:
            yield finding(f"{field}.{key}", repr(given[key])[:200], "Nothing reads it.", "Remove it.")


@rule("debugger-rules-without-profiler", E, "sagemaker 2.257.7: ProfilerRule cannot be set")
def debugger_rules_without_profiler(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Profiler rules where the profiler is off: by choice, in this region, or on Trainium."""
    if not any(isinstance(given, Mapping) and "profiler_rule" in given for given in job.get("rules", [])):
        return
    if job.get("disable_profiler"):
        reason, remedy = "disable_profiler is set", "Remove one of them."
    elif job.region in UNSUPPORTED_REGIONS:
        reason, remedy = f"{job.region} has no profiler", "Remove the rules, or train in another region."
    elif job.instance_type.startswith("ml.trn"):
        reason, remedy = "Trainium has no profiler", "Remove the rules."
    else:
        return
    yield finding("rules", len(job.get("rules")), f"They need the profiler, but {reason}.", remedy)


@rule("debugger-region", N, "sagemaker 2.257.7 leaves the hook out without a word")
def debugger_region(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Debugger's hook in a region without Debugger, where it is left out."""
    if job.region in UNSUPPORTED_REGIONS and job.get("debugger_hook_config"):
        yield finding(
            "debugger_hook_config",
            True,
            f"{job.region} has no Debugger; the request leaves it out.",
            "Remove it.",
            E if isinstance(job.get("debugger_hook_config"), Mapping) else None,
        )
    if job.region in UNSUPPORTED_REGIONS and any(
        isinstance(given, Mapping) and "debugger_rule" in given for given in job.get("rules", [])
    ):
        yield finding(
            "rules", len(job.get("rules")), f"{job.region} has no Debugger.", "Remove the rules.", E
        )


@rule("profiler-interval", E, API)
def profiler_interval(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A sampling interval that the API does not take; the SDK passes 300."""
    interval = job.get("profiler_config", {}).get("system_monitor_interval_millis")
    if interval is not None and (isinstance(interval, bool) or interval not in INTERVALS_MS):
        allowed = ", ".join(map(str, INTERVALS_MS))
        yield finding(
            "profiler_config.system_monitor_interval_millis",
            repr(interval)[:200],
            f"Allowed are {allowed} milliseconds.",
            "Use 500.",
        )


@rule("framework-profiling", W, "SageMaker developer guide: ends with TensorFlow 2.11 and PyTorch 2.0")
def framework_profiling(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Framework profiling, or a rule that needs it, on a version that has none."""
    version = facts.version_key(job.framework_version) if job.framework_version else ()
    ended = version >= ((2, 0) if job.framework == "pytorch" else (2, 11)) if version else False
    if not ended or job.form is Form.REQUEST:
        return
    if job.get("profiler_config", {}).get("framework_profile"):
        yield finding("profiler_config.framework_profile", True, "Nothing is collected.", "Remove it.")
    known = facts.debugger_rules("profiler")
    for index, given in enumerate(job.get("rules", [])):
        fact = known.get(str(given.get("profiler_rule"))) if isinstance(given, Mapping) else None
        if fact and fact.framework_profiling:
            yield finding(f"rules[{index}]", fact.name, "It sees no data on this version.", "Remove it.")


@rule("profiler-setting", E, API)
def profiler_setting(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A key of profiler_config or debugger_hook_config that this compiler does not write."""
    allowed = {
        "profiler_config": (
            "s3_output_path",
            "system_monitor_interval_millis",
            "framework_profile",
            "disable_profiler",
        ),
        "debugger_hook_config": ("s3_output_path", "hook_parameters"),
    }
    for name, known in allowed.items():
        given = job.get(name)
        if not isinstance(given, Mapping) or job.form is Form.REQUEST:
            continue
        for key in given:
            if key not in known:
                meant = facts.suggestion(key, known)
                yield finding(
                    f"{name}.{key}",
                    repr(given[key])[:200],
                    f"Allowed are {', '.join(known)}.",
                    f"Did you mean {meant}?" if meant else "Set it in the request's overrides.",
                )
