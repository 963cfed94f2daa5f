"""What FSx refuses, said before the call."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from airflow_smd.domain.lustre.facts import Facts, load
from airflow_smd.domain.lustre.rule import Case
from airflow_smd.domain.lustre.rules_of_features import FEATURE_RULES
from airflow_smd.domain.lustre.rules_of_size import SIZE_RULES
from airflow_smd.domain.lustre.values import LustreConfig
from airflow_smd.errors import Problem

RULES = (*SIZE_RULES, *FEATURE_RULES)


def problems(config: LustreConfig, region: str | None, facts: Facts | None = None) -> tuple[Problem, ...]:
    """Return everything FSx would refuse in `config` in `region`; None leaves the Region out of it."""
    facts = facts or load()
    found = list(region_problems(region, facts)) if region is not None else []
    family = facts.families.get((config.deployment_type, config.storage_type))
    if family is None:
        return (*found, _unknown_family(config, facts))
    case = Case(
        config=config, family=family, facts=facts, region=facts.regions.get(region) if region else None
    )
    return (*found, *(problem for rule in RULES if (problem := rule.judge(case))))


def region_problems(region: str, facts: Facts) -> Iterator[Problem]:
    """Yield the problem of a Region that we do not know."""
    if region not in facts.regions:
        close = difflib.get_close_matches(region, facts.regions, n=2)
        hint = f"Did you mean {' or '.join(close)}? " if close else ""
        yield Problem(
            rule="region-unknown",
            field="region",
            value=region,
            message=f"is no Region with FSx for Lustre that was known on {facts.regions_date}.",
            remedy=f"{hint}If AWS has it now, add it to the table `regions`.",
        )


def _unknown_family(config: LustreConfig, facts: Facts) -> Problem:
    of_type = [
        family.storage_type for key, family in facts.families.items() if key[0] == config.deployment_type
    ]
    if of_type:
        field, allowed = "storage_type", ", ".join(of_type)
        message = f"{config.deployment_type} has {allowed}."
    else:
        field, allowed = "deployment_type", ", ".join(dict.fromkeys(key[0] for key in facts.families))
        message = f"FSx for Lustre has {allowed}."
    return Problem(
        rule=field.replace("_", "-"),
        field=field,
        value=getattr(config, field),
        message=message,
        remedy="Choose one of them, or add a newer one to the table `lustre`.",
    )
