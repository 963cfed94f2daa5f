"""A client of the sandbox's own controls, for tests and rehearsals; standard library only."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

from airflow_smd.errors import SmdError


class SandboxRefused(SmdError):
    """The sandbox did not do what it was asked to, or does not run."""


class Control:
    """Arms faults and reads back the calls of a running sandbox."""

    def __init__(self, endpoint_url: str, *, timeout_seconds: float = 10.0) -> None:
        self._address = endpoint_url.rstrip("/") + "/_sandbox/"
        self._timeout_seconds = timeout_seconds
        self._opener = build_opener(ProxyHandler({}))

    def health(self) -> dict[str, Any]:
        """Return pid, version and services of the sandbox."""
        return self._ask("GET", "health")

    def fault(
        self,
        kind: str,
        *,
        service: str = "",
        operation: str = "",
        parameters: dict[str, Any] | None = None,
        count: int | str | None = 1,
        after: int | str = 0,
        **options: Any,
    ) -> str:
        """Arm a fault (airflow_smd.sandbox.faults tells the kinds and options) and return its id.

        It strikes `count` matching calls (None or `unlimited`: all) after `after` of them passed unharmed.
        """
        wanted = {"kind": kind, "service": service, "operation": operation, "parameters": parameters or {}}
        return str(self._ask("POST", "faults", {**wanted, "count": count, "after": after, **options})["id"])

    def faults(self) -> list[dict[str, Any]]:
        """Return the faults that can still strike."""
        return list(self._ask("GET", "faults")["faults"])

    def clear_faults(self, fault_id: str = "") -> int:
        """Disarm one fault or all; return how many there were."""
        return int(self._ask("DELETE", f"faults/{fault_id}")["deleted"])

    def calls(self, service: str = "", operation: str = "", *, since: int = 0) -> list[dict[str, Any]]:
        """Return the AWS calls after number `since`, oldest first.

        Each has number, time, service, operation, parameters, status (None while it runs, or when
        the connection was dropped), seconds and the id of the fault that struck it.
        """
        query = urlencode({"service": service, "operation": operation, "since": since})
        return list(self._ask("GET", f"calls?{query}")["calls"])

    def clear_calls(self) -> int:
        """Forget the calls so far; return how many there were."""
        return int(self._ask("DELETE", "calls")["deleted"])

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as answer:
                parsed: dict[str, Any] = json.load(answer)
        except HTTPError as refused:
            raise SandboxRefused(_reason(refused)) from refused
        except (URLError, OSError) as failure:
            message = f"No sandbox answers at {self._address}: start it with `airflow-smd sandbox up`."
            raise SandboxRefused(message) from failure
        return parsed


def _reason(refused: HTTPError) -> str:
    text = refused.read().decode("utf-8", "replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {refused.code}: {text[:300]}"
