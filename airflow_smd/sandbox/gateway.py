"""What every request goes through: who is asked, what is to fail, is it valid, may the state change now."""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from airflow_smd.sandbox import answers, validate
from airflow_smd.sandbox.calls import Call, CallRecord, identify, read_body
from airflow_smd.sandbox.faults import Fault, FaultKind
from airflow_smd.sandbox.runtime import Environ, Runtime, Wsgi

LOOKS = ("Describe", "List", "Get", "Head", "BatchGet", "Search", "Lookup", "Filter", "Select", "Simulate")
"""Operations that begin so change nothing that would have to be kept."""
OUR_HOSTS = re.compile(r"[\d.]+|\[[\da-fA-F:]+\]|(.+\.)?localhost|.+\.(amazonaws\.com(\.cn)?|api\.aws)")
log = logging.getLogger("airflow_smd.sandbox")


class Gateway:
    """The whole endpoint as one WSGI application."""

    def __init__(self, runtime: Runtime, record: CallRecord, aws: Wsgi) -> None:
        self._runtime = runtime
        self._record = record
        self._aws = aws

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        from werkzeug import Response

        if environ.get("HTTP_ORIGIN") or not _is_ours(str(environ.get("HTTP_HOST", "127.0.0.1"))):
            # What runs what it is sent must not take orders from a page in the user's browser.
            refusal = Response("The sandbox does not answer web pages.\n", 403, content_type="text/plain")
            return refusal(environ, start_response)
        path = str(environ.get("PATH_INFO", "/"))
        for prefix, application in self._runtime.routes.items():
            if path.startswith(prefix) or path == prefix.rstrip("/"):
                return application(environ, start_response)
        body = read_body(environ)
        call = identify(environ, body)
        noted, began = self._record.begin(call), time.monotonic()
        answer = self._answer(environ, call, noted)
        noted["seconds"] = round(time.monotonic() - began, 4)
        if answer is None:
            raise _drop(environ)
        noted["status"] = answer.status_code
        return answer(environ, start_response)

    def _answer(self, environ: Environ, call: Call, noted: dict[str, Any]) -> Any:
        """Return the response to an AWS call, None if the connection is to be dropped."""
        if fault := self._struck(call, noted, FaultKind.SLOW):
            self._runtime.stopping.wait(fault.options["seconds"])
        fault = self._struck(call, noted, FaultKind.THROTTLE, FaultKind.ERROR, FaultKind.DROP)
        if fault and fault.kind is FaultKind.THROTTLE:
            return answers.throttled(call)
        if fault and fault.kind is FaultKind.ERROR:
            return answers.error(call, *(fault.options[name] for name in ("code", "message", "status")))
        if fault and fault.options["when"] == "before":
            return None
        answer = _refusal(call) or self._from_aws(environ, call)
        return None if fault else answer

    def _struck(self, call: Call, noted: dict[str, Any], *kinds: FaultKind) -> Fault | None:
        fault = self._runtime.faults.strike(kinds, call.service, call.operation, call.parameters)
        if fault:
            noted["fault"] = fault.id
            log.info("Fault %s (%s) strikes %s.%s", fault.id, fault.kind, call.service, call.operation)
        return fault

    def _from_aws(self, environ: Environ, call: Call) -> Any:
        from werkzeug import Response
        from werkzeug.test import run_wsgi_app

        looks = call.operation.startswith(LOOKS)
        try:
            with self._runtime.gate.changing(changes=not looks):
                chunks, status, headers = run_wsgi_app(self._aws, environ, buffered=True)
        except NotImplementedError:
            message = f"The sandbox does not have {call.operation or call.resource} of {call.service}."
            return answers.error(call, "NotImplemented", message, 501)
        except Exception as failure:
            log.exception("%s.%s failed", call.service, call.operation)
            message = f"The sandbox failed ({type(failure).__name__}: {failure}); its log tells more."
            return answers.error(call, "InternalFailure", message, 500)
        response = Response(chunks, status, headers)
        response.automatically_set_content_length = False
        return response


def _is_ours(host: str) -> bool:
    """Tell whether a Host header names this machine or AWS, not a domain that was made to point here."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    return bool(OUR_HOSTS.fullmatch(name))


def _refusal(call: Call) -> Any:
    """Return the answer to a request that breaks its service's model, None if it does not."""
    if call.service not in validate.SERVICES:
        return None
    try:
        message = validate.complaint(call.service, call.operation, call.parameters)
    except validate.WrongType as wrong:
        return answers.error(call, "SerializationException", str(wrong), 400)
    return answers.error(call, answers.VALIDATION[call.service], message, 400) if message else None


def _drop(environ: Environ) -> ConnectionError:
    """Close the client's connection without an answer; raise what is returned."""
    connection = environ.get("werkzeug.socket")
    if isinstance(connection, socket.socket):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    return ConnectionAbortedError("dropped on request")
