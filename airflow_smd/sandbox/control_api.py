"""What a rehearsal asks the sandbox itself: faults, calls, health, under /_sandbox/."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from airflow_smd.errors import InvalidInput
from airflow_smd.sandbox.calls import CallRecord
from airflow_smd.sandbox.faults import parse_fault
from airflow_smd.sandbox.runtime import Environ, Runtime

PREFIX = "/_sandbox/"


class ControlApi:
    """A WSGI application that speaks JSON."""

    def __init__(self, runtime: Runtime, record: CallRecord, health: Mapping[str, Any]) -> None:
        self._faults = runtime.faults
        self._record = record
        self._health = health

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        from werkzeug import Request, Response

        request = Request(environ)
        try:
            status, answer = self._answer(request)
        except InvalidInput as refused:
            status, answer = 400, {"error": str(refused)}
        except ValueError as unreadable:
            status, answer = 400, {"error": f"The request cannot be read: {unreadable}"}
        response = Response(json.dumps(answer, default=str) + "\n", status, content_type="application/json")
        return response(environ, start_response)

    def _answer(self, request: Any) -> tuple[int, Any]:
        what, _, which = str(request.path).removeprefix(PREFIX).strip("/").partition("/")
        match (request.method, what):
            case ("GET", "health"):
                return 200, self._health
            case ("GET", "faults"):
                return 200, {"faults": self._faults.armed()}
            case ("POST", "faults"):
                fault = self._faults.add(parse_fault(json.loads(request.get_data())))
                return 201, fault.as_json()
            case ("DELETE", "faults"):
                deleted = self._faults.delete(which or None)
                if which and not deleted:
                    return 404, {"error": f"There is no fault {which!r}: it struck already, or never was."}
                return 200, {"deleted": deleted}
            case ("GET", "calls"):
                asked = request.args
                since = int(asked.get("since", 0))
                calls = self._record.listed(asked.get("service", ""), asked.get("operation", ""), since)
                return 200, {"calls": calls}
            case ("DELETE", "calls"):
                return 200, {"deleted": self._record.clear()}
        return 404, {"error": f"{request.method} {request.path}: there are {PREFIX}health, faults and calls."}
