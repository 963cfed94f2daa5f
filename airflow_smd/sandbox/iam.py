"""What moto's IAM lacks: two roles to begin with, and SimulatePrincipalPolicy.

The simulation reads the policies that are attached to the principal or written into it (and, of a user,
of its groups), the permissions boundary and the policies of the request. It knows Action, NotAction,
Resource, NotResource and the condition operators in CONDITIONS; a statement with another operator, or
with a condition key that the request does not give, does not apply, and the key is reported as missing.
It knows no resource policies of the services, no session policies and no organisation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from airflow_smd.sandbox.runtime import ACCOUNT_ID, Runtime

ROLES = {"SageMakerRole": "sagemaker.amazonaws.com", "CodeBuildRole": "codebuild.amazonaws.com"}
"""Role of a new sandbox -> the service that may assume it. Each may do everything."""
ADMINISTRATOR = "arn:{}:iam::aws:policy/AdministratorAccess"
CONDITIONS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda given, wanted: given == wanted,
    "StringNotEquals": lambda given, wanted: given != wanted,
    "StringLike": lambda given, wanted: fnmatchcase(given, _pattern(wanted)),
    "StringNotLike": lambda given, wanted: not fnmatchcase(given, _pattern(wanted)),
    "ArnEquals": lambda given, wanted: fnmatchcase(given, _pattern(wanted)),
    "ArnLike": lambda given, wanted: fnmatchcase(given, _pattern(wanted)),
    "Bool": lambda given, wanted: given.lower() == wanted.lower(),
}
Statement = Mapping[str, Any]


def register(runtime: Runtime) -> None:
    """Add to moto's IAM what it lacks, and to a new sandbox its roles."""
    from moto.core.responses import ActionResult
    from moto.iam import urls
    from moto.iam.responses import IamResponse

    class Responses(IamResponse):
        """moto's IAM and one action more."""

        def simulate_principal_policy(self) -> Any:
            asked = {name: self._get_param(name) for name in SIMULATION_INPUT}
            results = simulate(_policies_of(self.backend, asked), asked)
            return ActionResult({"EvaluationResults": results, "IsTruncated": False})

    urls.url_paths["{0}/$"] = Responses.dispatch
    if not runtime.restored:
        create_roles(runtime.settings.region)


SIMULATION_INPUT = (
    "PolicySourceArn",
    "ActionNames",
    "ResourceArns",
    "PolicyInputList",
    "PermissionsBoundaryPolicyInputList",
    "ContextEntries",
)


def create_roles(region: str) -> None:
    """Create the roles that jobs and builds can be given, unless they exist."""
    from moto.iam.models import iam_backends
    from moto.utilities.utils import get_partition

    partition = get_partition(region)
    backend = iam_backends[ACCOUNT_ID][partition]
    have = {role.name for role in backend.get_roles()}
    for name, service in ROLES.items():
        if name in have:
            continue
        statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
        trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        backend.create_role(name, trust, "/", None, "Comes with the sandbox.", [], "3600")
        backend.attach_role_policy(ADMINISTRATOR.format(partition), name)


def simulate(policies: Sequence[Sequence[Statement]], asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Decide every action on every resource.

    `policies` are the groups that must all allow: the principal's own statements, then those of the
    boundary if there is one.
    """
    context = {
        entry["ContextKeyName"].lower(): list(entry.get("ContextKeyValues") or ())
        for entry in asked.get("ContextEntries") or ()
    }
    return [
        _decide(policies, action, resource, context)
        for action in asked["ActionNames"]
        for resource in asked.get("ResourceArns") or ["*"]
    ]


def _decide(
    policies: Sequence[Sequence[Statement]], action: str, resource: str, context: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    missing: set[str] = set()
    effects = [
        {
            statement["Effect"]
            for statement in group
            if _concerns(statement, action, resource) and _conditions_hold(statement, context, missing)
        }
        for group in policies
    ]
    if any("Deny" in found for found in effects):
        decision = "explicitDeny"
    else:
        decision = "allowed" if all("Allow" in found for found in effects) else "implicitDeny"
    return {
        "EvalActionName": action,
        "EvalResourceName": resource,
        "EvalDecision": decision,
        "MatchedStatements": [],
        "MissingContextValues": sorted(missing),
    }


def _concerns(statement: Statement, action: str, resource: str) -> bool:
    if "NotAction" in statement:
        acts = not _any_like(action.lower(), statement["NotAction"], lower=True)
    else:
        acts = _any_like(action.lower(), statement.get("Action", []), lower=True)
    if "NotResource" in statement:
        return acts and not _any_like(resource, statement["NotResource"])
    return acts and _any_like(resource, statement.get("Resource", []))


def _conditions_hold(statement: Statement, context: Mapping[str, Sequence[str]], missing: set[str]) -> bool:
    holds = True
    for operator, wanted_by_key in (statement.get("Condition") or {}).items():
        compare = CONDITIONS.get(operator)
        for key, wanted in wanted_by_key.items():
            given = context.get(key.lower())
            if given is None:
                missing.add(key)
            everything = "Not" in operator
            holds &= compare is not None and given is not None
            if compare is not None and given is not None:
                hits = [compare(value, str(one)) for value in given for one in _listed(wanted)]
                holds &= all(hits) if everything else any(hits)
    return holds


def _policies_of(backend: Any, asked: Mapping[str, Any]) -> list[list[Statement]]:
    """Return the statements of the principal, and of its boundary if there is one."""
    arn = asked["PolicySourceArn"]
    kind, _, name = arn.rpartition(":")[2].partition("/")
    name = name.rpartition("/")[2]
    match kind:
        case "user":
            user = backend.get_user(name)
            holders = [user, *backend.get_groups_for_user(name)]
        case "group":
            holders = [backend.get_group(name)]
        case _:
            holders = [backend.get_role_by_arn(arn)]
    documents = [document for holder in holders for document in _documents(holder)]
    own = [*documents, *(asked.get("PolicyInputList") or ())]
    boundary = list(asked.get("PermissionsBoundaryPolicyInputList") or ())
    boundary_arn = getattr(holders[0], "permissions_boundary_arn", None)
    if not boundary and boundary_arn:
        boundary = [_default_document(backend.get_policy(boundary_arn))]
    groups = [own, boundary] if boundary else [own]
    return [[statement for document in group for statement in _statements(document)] for group in groups]


def _documents(holder: Any) -> Iterator[str]:
    for document in holder.policies.values():
        yield document["policy_document"] if isinstance(document, Mapping) else document
    for policy in holder.managed_policies.values():
        yield _default_document(policy)


def _default_document(policy: Any) -> str:
    return str(next(version.document for version in policy.versions if version.is_default))


def _statements(document: str | Mapping[str, Any]) -> list[Statement]:
    parsed = json.loads(document) if isinstance(document, str) else document
    found = parsed.get("Statement", [])
    return [found] if isinstance(found, Mapping) else list(found)


def _any_like(value: str, patterns: str | Sequence[str], *, lower: bool = False) -> bool:
    return any(
        fnmatchcase(value, _pattern(pattern.lower() if lower else pattern)) for pattern in _listed(patterns)
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _pattern(text: str) -> str:
    """Return a policy's pattern as fnmatch reads it: only * and ? are special there."""
    return str(text).replace("[", "[[]")
