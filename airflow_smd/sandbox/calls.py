"""Which AWS call a request is, and the record of all of them."""

from __future__ import annotations

import io
import itertools
import json
import re
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from airflow_smd.sandbox.runtime import Environ

BOTOCORE_NAMES = {
    "monitoring": "cloudwatch",
    "elasticfilesystem": "efs",
    "elasticloadbalancing": "elbv2",
    "elasticmapreduce": "emr",
    "states": "stepfunctions",
}
"""Name in the signature -> botocore's name of the service, where they differ."""
KEPT_CALLS = 20_000
KEPT_CHARACTERS = 300
KEPT_ITEMS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One AWS request, understood."""

    service: str
    """botocore's name; empty if nothing tells."""
    operation: str
    """As botocore's model names it; empty for what no model knows."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = ""
    """`json`, `query`, `ec2`, `rest-xml`, `rest-json`: how an error must be worded."""
    resource: str = ""
    """The path, for the error of S3."""


def read_body(environ: Environ) -> bytes:
    """Read the request's body and leave a fresh copy of it for those who come next."""
    from werkzeug.wsgi import get_input_stream

    body: bytes = get_input_stream(environ).read()
    environ["wsgi.input"] = io.BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))
    return body


def identify(environ: Environ, body: bytes) -> Call:
    """Tell which call a request is: by X-Amz-Target, by Action, or by method and path."""
    path = str(environ.get("PATH_INFO", "/"))
    query = dict(parse_qsl(str(environ.get("QUERY_STRING", "")), keep_blank_values=True))
    service = _signed_service(environ, query)
    if target := environ.get("HTTP_X_AMZ_TARGET"):
        operation = str(target).rpartition(".")[2]
        return Call(
            service=service, operation=operation, parameters=_json(body), protocol="json", resource=path
        )
    form = query
    if str(environ.get("CONTENT_TYPE", "")).startswith("application/x-www-form-urlencoded"):
        form = {**query, **dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))}
    if action := form.get("Action"):
        parameters = {name: value for name, value in form.items() if name not in ("Action", "Version")}
        protocol = "ec2" if service == "ec2" else "query"
        return Call(service=service, operation=action, parameters=parameters, protocol=protocol)
    return _by_path(environ, service or "s3", query, body, path)


def _signed_service(environ: Environ, query: Mapping[str, str]) -> str:
    """Return the service that a SigV4 signature (header or presigned URL) is for."""
    credential = re.search(r"Credential=([^,\s]+)", str(environ.get("HTTP_AUTHORIZATION", "")))
    scope = (credential.group(1) if credential else query.get("X-Amz-Credential", "")).split("/")
    signed = scope[-2].lower() if len(scope) >= 5 else ""
    return BOTOCORE_NAMES.get(signed, signed)


def _by_path(environ: Environ, service: str, query: Mapping[str, str], body: bytes, path: str) -> Call:
    from moto.core.request import Request
    from moto.core.routing import get_service_router

    try:
        router = get_service_router(service)
        protocol = str(router._service_model.protocol)
        model, labels = router.match(Request({**environ, "wsgi.input": io.BytesIO(b"")}))
    except Exception:  # an unknown service or path: the call stays unnamed, moto answers it
        return Call(service=service, operation="", parameters=dict(query), protocol="rest-xml", resource=path)
    known = {**_query_members(model, query), **labels}
    if protocol == "rest-json":
        known.update(_json(body))
    return Call(service=service, operation=model.name, parameters=known, protocol=protocol, resource=path)


def _query_members(model: Any, query: Mapping[str, str]) -> dict[str, str]:
    """Name query arguments as the operation's input does: `prefix` -> `Prefix`."""
    members = model.input_shape.members if model.input_shape else {}
    names = {
        shape.serialization.get("name", name): name
        for name, shape in members.items()
        if shape.serialization.get("location") == "querystring"
    }
    return {names[name]: value for name, value in query.items() if name in names}


def _json(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body or b"{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def shortened(value: Any) -> Any:
    """Return a parameter as the record keeps it: long texts and lists cut."""
    match value:
        case str() if len(value) > KEPT_CHARACTERS:
            return f"{value[:KEPT_CHARACTERS]}… ({len(value)} characters)"
        case list():
            rest = [f"… ({len(value)} items)"] if len(value) > KEPT_ITEMS else []
            return [shortened(item) for item in value[:KEPT_ITEMS]] + rest
        case Mapping():
            return {str(name): shortened(item) for name, item in value.items()}
    return value


class CallRecord:
    """The newest calls, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._calls: deque[dict[str, Any]] = deque(maxlen=KEPT_CALLS)

    def begin(self, call: Call) -> dict[str, Any]:
        """Note a call that has arrived; the caller fills in `status`, `seconds` and `fault`."""
        noted = {
            "number": next(self._numbers),
            "time": time.time(),
            "service": call.service,
            "operation": call.operation,
            "parameters": shortened(call.parameters),
            "status": None,
            "seconds": None,
            "fault": None,
        }
        with self._lock:
            self._calls.append(noted)
        return noted

    def listed(self, service: str = "", operation: str = "", since: int = 0) -> list[dict[str, Any]]:
        """Return copies of the calls after number `since`, of one service or operation if asked."""
        with self._lock:
            return [
                dict(call)
                for call in self._calls
                if call["number"] > since
                and service in ("", call["service"])
                and operation in ("", call["operation"])
            ]

    def clear(self) -> int:
        """Forget the calls and return how many there were; the numbers go on."""
        with self._lock:
            count = len(self._calls)
            self._calls.clear()
        return count
