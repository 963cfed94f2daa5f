"""SageMaker Debugger's part of a request, only where the job asks for it.

Debugger takes no new customers since 2026-07-30, so nothing of it is in a request by default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.images import Catalogue, ecr_host
from airflow_smd.domain.distribution.job import Job

INTERVALS_MS = (100, 200, 500, 1000, 5000, 60000)
"""What CreateTrainingJob accepts as ProfilingIntervalInMilliseconds (API reference, ProfilerConfig)."""
FRAMEWORK_PROFILE: Mapping[str, str] = {
    "LocalPath": "/opt/ml/output/profiler",
    "RotateMaxFileSizeInBytes": "10485760",
    "RotateFileCloseIntervalInSeconds": "60",
    "FileOpenFailThreshold": "50",
    "DetailedProfilingConfig": '{"StartStep": 5, "NumSteps": 1, }',
    "DataloaderProfilingConfig": '{"StartStep": 7, "NumSteps": 1, "MetricsRegex": ".*", }',
    "PythonProfilingConfig": '{"StartStep": 9, "NumSteps": 3, "ProfilerName": "cprofile", '
    '"cProfileTimer": "default", }',
    "HorovodProfilingConfig": '{"StartStep": 13, "NumSteps": 1, }',
    "SMDataParallelProfilingConfig": '{"StartStep": 15, "NumSteps": 1, }',
}
"""`framework_profile: true`, as recorded from sagemaker 2.257.7 on 2026-11-30."""


def debugger_fields(job: Job, catalogue: Catalogue, name: str, output_uri: str) -> dict[str, Any]:
    """Return DebugHookConfig, ProfilerConfig and the rules that the job asks for; usually nothing."""
    rules = [rule for rule in job.get("rules", []) if isinstance(rule, Mapping)]
    registry = catalogue.debugger_registries.get(job.region, "")
    image = f"{ecr_host(registry, job.region)}/sagemaker-debugger-rules:latest" if registry else ""
    profiler = [_profiler_rule(rule, image) for rule in rules if "profiler_rule" in rule]
    debug = [_debug_rule(rule, image, name) for rule in rules if "debugger_rule" in rule]
    found: dict[str, Any] = {}
    if profiler:
        found["ProfilerRuleConfigurations"] = profiler
    if debug:
        found["DebugRuleConfigurations"] = debug
    if (debug or job.get("debugger_hook_config")) and registry:
        found["DebugHookConfig"] = _hook(job, rules, output_uri)
    if profiler or job.get("profiler_config") is not None or job.get("disable_profiler") is not None:
        found["ProfilerConfig"] = _profiler(job, output_uri)
    return found


def _hook(job: Job, rules: list[Mapping[str, Any]], output_uri: str) -> dict[str, Any]:
    given = job.get("debugger_hook_config")
    settings = given if isinstance(given, Mapping) else {}
    collections: dict[str, Any] = {}
    for rule in rules:
        fact = facts.debugger_rules("debugger").get(str(rule.get("debugger_rule")))
        for collection in fact.collections if fact else ():
            collections.setdefault(json.dumps(collection, sort_keys=True), collection)
    hook = {
        "S3OutputPath": settings.get("s3_output_path") or output_uri,
        "CollectionConfigurations": list(collections.values()),
    }
    if parameters := settings.get("hook_parameters"):
        hook["HookParameters"] = parameters
    return hook


def _profiler(job: Job, output_uri: str) -> dict[str, Any]:
    if job.get("disable_profiler"):
        return {"DisableProfiler": True}
    settings = job.get("profiler_config", {})
    found: dict[str, Any] = {
        "S3OutputPath": settings.get("s3_output_path") or output_uri,
        "DisableProfiler": bool(settings.get("disable_profiler", False)),
    }
    if interval := settings.get("system_monitor_interval_millis"):
        found["ProfilingIntervalInMilliseconds"] = interval
    if settings.get("framework_profile"):
        found["ProfilingParameters"] = dict(FRAMEWORK_PROFILE)
    return found


def _parameters(rule: Mapping[str, Any]) -> dict[str, str]:
    given = rule.get("params") or {}
    return {key: str(value) for key, value in given.items()} if isinstance(given, Mapping) else {}


def _profiler_rule(rule: Mapping[str, Any], image: str) -> dict[str, Any]:
    name = str(rule["profiler_rule"])
    fact = facts.debugger_rules("profiler").get(name)
    return {
        "RuleConfigurationName": name,
        "RuleEvaluatorImage": image,
        "RuleParameters": (dict(fact.parameters) if fact else {"rule_to_invoke": name}) | _parameters(rule),
    }


def _debug_rule(rule: Mapping[str, Any], image: str, job_name: str) -> dict[str, Any]:
    name = str(rule["debugger_rule"])
    fact = facts.debugger_rules("debugger").get(name)
    parameters = (dict(fact.parameters) if fact else {"rule_to_invoke": name}) | _parameters(rule)
    if rule.get("stop_training"):
        action = json.dumps([{"name": "stoptraining", "training_job_prefix": job_name}])
        parameters["action_json"] = action.replace('"', '\\"')
    return {
        "RuleConfigurationName": fact.rule if fact else name,
        "RuleEvaluatorImage": image,
        "RuleParameters": parameters,
    }
