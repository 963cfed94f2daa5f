"""Spelling: the keys of `distribution`, and hyperparameters that collide with the protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Form, Job
from airflow_smd.domain.distribution.requests import RESERVED, SCRIPT
from airflow_smd.domain.distribution.rules.base import E, Finding, N, W, finding, rule

SEED = "SageMaker developer guide, launch a model-parallel job"


@rule("unknown-distribution-key", E, "sagemaker 2.257.7 ignores it without a word")
def unknown_distribution_key(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A key of `distribution` that starts nothing, as `torchdistributed`."""
    known = tuple(facts.DISTRIBUTION_KEYS)
    for key, value in job.distribution.items():
        if key not in known:
            meant = facts.suggestion(key, (*known, *facts.SMDISTRIBUTED_KEYS))
            if meant in facts.SMDISTRIBUTED_KEYS:
                meant = f'"smdistributed": {{"{meant}": ...}}'
            yield finding(
                f"distribution.{key}",
                _brief(value),
                f"The SDK reads {', '.join(known)}; with anything else each host runs a plain process.",
                f"Did you mean {meant}?" if meant else "Remove it.",
            )


@rule("unknown-strategy-key", E, "amazon-sagemaker-examples #1872: AWS's own notebook has process_per_host")
def unknown_strategy_key(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A setting inside a strategy that nothing reads, as `process_per_host`."""
    for name, known in facts.DISTRIBUTION_KEYS.items():
        section = job.section(name)
        if section is not None and name != "smdistributed":
            yield from _unknown(section, f"distribution.{name}", known)
    for name, known in facts.SMDISTRIBUTED_KEYS.items():
        yield from _unknown(job.section(name) or {}, f"distribution.smdistributed.{name}", known)


@rule(
    "smdistributed-level", E, "sagemaker 2.257.7, validate_smdistributed; the seed page leaves the level out"
)
def smdistributed_level(job: Job, _: Catalogue) -> Iterator[Finding]:
    """`smdistributed` without exactly one of `dataparallel` and `modelparallel` in it."""
    section = job.section("smdistributed")
    if section is None:
        return
    strays = [key for key in section if key not in facts.SMDISTRIBUTED_KEYS]
    if strays:
        flat = bool({"enabled", "parameters"} & set(strays))
        meant = "modelparallel" if "parameters" in strays else "dataparallel"
        known = tuple(facts.SMDISTRIBUTED_KEYS)
        guess = facts.suggestion(strays[0], known)
        yield finding(
            "distribution.smdistributed",
            strays,
            "Only dataparallel or modelparallel may be in it.",
            f'Put the settings one level deeper: "smdistributed": {{"{meant}": {{...}}}}.'
            if flat
            else (f"Did you mean {guess}?" if guess else "Remove it."),
        )
    elif not section:
        yield finding(
            "distribution.smdistributed",
            {},
            "It is empty, so no library starts and each host trains alone.",
            'Write "dataparallel": {"enabled": True} in it, or remove it.',
        )


@rule("model-and-data-parallel", E, SEED)
def model_and_data_parallel(job: Job, _: Catalogue) -> Iterator[Finding]:
    """The model-parallel and the data-parallel library in one job."""
    if job.section("dataparallel") is not None and job.section("modelparallel") is not None:
        yield finding(
            "distribution.smdistributed",
            ["dataparallel", "modelparallel"],
            "One job runs one of the two libraries.",
            'Keep modelparallel with "ddp": True in its parameters for hybrid parallelism, or dataparallel.',
        )


@rule("enabled-not-boolean", E, "sagemaker 2.257.7: `is True` for modelparallel, truth elsewhere")
def enabled_not_boolean(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A switch that is no boolean: "True" loses mp_parameters, "False" switches on."""
    for name, path, section in _sections(job):
        if "enabled" not in section or isinstance(section["enabled"], bool):
            continue
        value = section["enabled"]
        says_no = isinstance(value, str) and value.lower() in ("false", "no", "off", "0", "none")
        if name == "modelparallel":
            message = "Only the boolean True counts here; with anything else mp_parameters is lost."
        elif says_no:
            message = "The container takes any text for yes."
        else:
            message = "It works by chance: text and numbers count as yes."
        harmless = bool(value) and not says_no and name != "modelparallel"
        yield finding(
            f"{path}.enabled",
            _brief(value),
            message,
            f"Write {not says_no and bool(value)} without quotes.",
            N if harmless else None,
        )


@rule("enabled-missing", E, SEED)
def enabled_missing(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A strategy without `enabled`, which leaves it off."""
    for _name, path, section in _sections(job):
        if "enabled" not in section:
            yield finding(
                f"{path}.enabled", None, "It is required; without it the strategy is off.", "Write True."
            )


@rule("nothing-enabled", N, "sagemaker-training 5.1.4: no launcher, one process for each host")
def nothing_enabled(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Strategies that are all switched off."""
    switches = [section.get("enabled") for _name, _path, section in _sections(job)]
    if switches and not job.on and all(switch is not None for switch in switches):
        yield finding(
            "distribution",
            sorted(job.distribution),
            "Every strategy is switched off, so each host runs the script once by itself.",
            "Leave distribution out if that is meant.",
        )


@rule("no-strategy", W, "apache/airflow #38822, amazon-sagemaker-examples #1246")
def no_strategy(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Several hosts, or GPUs of one host, without a strategy that uses them."""
    if "distribution" in job.arguments or job.form is Form.REQUEST or job.estimator == "Estimator":
        return
    if job.get("training_recipe"):
        return
    gpus = job.instance.gpus if job.instance else 0
    if job.hosts > 1:
        yield finding(
            "distribution",
            None,
            f"{job.hosts} hosts would each train the same model by themselves.",
            'Add "torch_distributed": {"enabled": True}, or one host.'
            if job.framework == "pytorch"
            else "Add a strategy, or use one host.",
        )
    elif gpus > 1:
        yield finding(
            "distribution",
            None,
            f"One process starts for {gpus} GPUs; the script itself must use them all.",
            "Add a strategy if it does not.",
            N,
        )


@rule("reserved-hyperparameter", E, "sagemaker 2.257.7 lets it through, and SMDDP silently becomes MPI")
def reserved_hyperparameter(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A hyperparameter of the user with a name of the launch protocol."""
    for key, value in job.get("hyperparameters", {}).items():
        if job.form is Form.REQUEST:
            return
        if key in RESERVED or key in SCRIPT or key.startswith("sagemaker_"):
            yield finding(
                f"hyperparameters.{key}",
                _brief(value),
                "The training toolkit reads this name to choose its launcher.",
                "Set it through distribution, or rename it.",
            )


def _sections(job: Job) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    for name in facts.DISTRIBUTION_KEYS:
        section = job.section(name)
        if section is not None and name != "smdistributed":
            yield name, f"distribution.{name}", section
    for name in facts.SMDISTRIBUTED_KEYS:
        section = job.section(name)
        if section is not None:
            yield name, f"distribution.smdistributed.{name}", section


def _unknown(section: Mapping[str, object], path: str, known: tuple[str, ...]) -> Iterator[Finding]:
    for key, value in section.items():
        if key not in known:
            meant = facts.suggestion(key, known)
            yield finding(
                f"{path}.{key}",
                _brief(value),
                f"Nothing reads it; allowed are {', '.join(known)}.",
                f"Did you mean {meant}?" if meant else "Remove it.",
            )


def _brief(value: object) -> object:
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)[:200]
