from __future__ import annotations

from typing import Any

import pytest

from airflow_smd.sandbox.iam import simulate

READ = {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}
EVERYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}
SAGEMAKER_ONLY = {
    "Effect": "Allow",
    "Action": "iam:PassRole",
    "Resource": "*",
    "Condition": {"StringEquals": {"iam:PassedToService": ["sagemaker.amazonaws.com"]}},
}


def decision(
    statements: list[dict[str, Any]], action: str, resource: str = "*", **more: Any
) -> dict[str, Any]:
    boundary = more.pop("boundary", None)
    groups = [statements] if boundary is None else [statements, boundary]
    asked = {"ActionNames": [action], "ResourceArns": [resource], **more}
    return simulate(groups, asked)[0]


@pytest.mark.parametrize(
    ("statements", "action", "resource", "expected"),
    [
        pytest.param([READ], "s3:GetObject", "*", "allowed", id="a pattern of actions"),
        pytest.param([READ], "S3:getobject", "*", "allowed", id="actions in other letters"),
        pytest.param([READ], "s3:PutObject", "*", "implicitDeny", id="nothing allows it"),
        pytest.param(
            [EVERYTHING, {"Effect": "Deny", "Action": "s3:Put*", "Resource": "*"}],
            "s3:PutObject",
            "*",
            "explicitDeny",
            id="a refusal wins",
        ),
        pytest.param(
            [{"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}],
            "iam:PassRole",
            "*",
            "implicitDeny",
            id="all but some actions",
        ),
        pytest.param(
            [{"Effect": "Allow", "Action": "s3:*", "NotResource": "arn:aws:s3:::secret/*"}],
            "s3:GetObject",
            "arn:aws:s3:::secret/k",
            "implicitDeny",
            id="all but some resources",
        ),
        pytest.param(
            [{"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::b/[x]*"}],
            "s3:GetObject",
            "arn:aws:s3:::b/[x]y",
            "allowed",
            id="brackets stand for themselves",
        ),
        pytest.param([], "s3:GetObject", "*", "implicitDeny", id="no policy at all"),
    ],
)
def test_statements_decide(
    statements: list[dict[str, Any]], action: str, resource: str, expected: str
) -> None:
    assert decision(statements, action, resource)["EvalDecision"] == expected


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        pytest.param("sagemaker.amazonaws.com", "allowed", id="the condition holds"),
        pytest.param("ec2.amazonaws.com", "implicitDeny", id="the condition does not hold"),
    ],
)
def test_condition_is_read_from_the_request(service: str, expected: str) -> None:
    context = [
        {"ContextKeyName": "iam:PassedToService", "ContextKeyValues": [service], "ContextKeyType": "string"}
    ]

    assert decision([SAGEMAKER_ONLY], "iam:PassRole", ContextEntries=context)["EvalDecision"] == expected


def test_missing_condition_key_is_named() -> None:
    result = decision([SAGEMAKER_ONLY], "iam:PassRole")

    assert result["EvalDecision"] == "implicitDeny"
    assert result["MissingContextValues"] == ["iam:PassedToService"]


def test_statement_with_an_unknown_operator_allows_nothing() -> None:
    statement = {**EVERYTHING, "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}
    context = [{"ContextKeyName": "aws:SourceIp", "ContextKeyValues": ["10.0.0.1"]}]

    assert decision([statement], "s3:GetObject", ContextEntries=context)["EvalDecision"] == "implicitDeny"


def test_boundary_must_allow_too() -> None:
    assert decision([EVERYTHING], "s3:GetObject", boundary=[READ])["EvalDecision"] == "allowed"
    assert decision([EVERYTHING], "s3:PutObject", boundary=[READ])["EvalDecision"] == "implicitDeny"


def test_every_action_is_decided_on_every_resource() -> None:
    results = simulate(
        [[READ]], {"ActionNames": ["s3:GetObject", "s3:PutObject"], "ResourceArns": ["a", "b"]}
    )

    assert [(one["EvalActionName"], one["EvalResourceName"]) for one in results] == [
        ("s3:GetObject", "a"),
        ("s3:GetObject", "b"),
        ("s3:PutObject", "a"),
        ("s3:PutObject", "b"),
    ]
