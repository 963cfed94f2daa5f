"""Errors in the words and the format of the service that is asked."""

from __future__ import annotations

import json
import uuid
from typing import Any
from xml.sax.saxutils import escape

from airflow_smd.sandbox.calls import Call

THROTTLING = {
    "s3": ("SlowDown", "Please reduce your request rate.", 503),
    "ec2": ("RequestLimitExceeded", "Request limit exceeded.", 503),
    "iam": ("Throttling", "Rate exceeded", 400),
    "sts": ("Throttling", "Rate exceeded", 400),
    "cloudwatch": ("Throttling", "Rate exceeded", 400),
}
"""What a service says when it is asked too often; the others say ThrottlingException, Rate exceeded, 400."""
VALIDATION = {"sagemaker": "ValidationException", "codebuild": "InvalidInputException", "fsx": "BadRequest"}
"""The code of a request that breaks the service's model; botocore's error shapes."""


def error(call: Call, code: str, message: str, status: int) -> Any:
    """Return the response (werkzeug) with which the call's service would refuse it."""
    from werkzeug import Response

    request_id = str(uuid.uuid4())
    headers = {"x-amzn-RequestId": request_id}
    if call.protocol in ("json", "rest-json"):
        headers["x-amzn-ErrorType"] = code
        body = json.dumps({"__type": code, "message": message})
        return Response(body, status, headers, content_type="application/x-amz-json-1.1")
    text = _xml(call, escape(code), escape(message), request_id, status)
    return Response(
        f'<?xml version="1.0" encoding="UTF-8"?>\n{text}', status, headers, content_type="text/xml"
    )


def throttled(call: Call) -> Any:
    """Return the answer to one call too many."""
    return error(call, *THROTTLING.get(call.service, ("ThrottlingException", "Rate exceeded", 400)))


def _xml(call: Call, code: str, message: str, request_id: str, status: int) -> str:
    what = f"<Code>{code}</Code><Message>{message}</Message>"
    if call.protocol == "ec2":
        return (
            f"<Response><Errors><Error>{what}</Error></Errors><RequestID>{request_id}</RequestID></Response>"
        )
    if call.protocol == "query":
        fault = "Sender" if status < 500 else "Receiver"
        return (
            f"<ErrorResponse><Error><Type>{fault}</Type>{what}</Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        )
    where = f"<Resource>{escape(call.resource)}</Resource><RequestId>{request_id}</RequestId>"
    return f"<Error>{what}{where}</Error>"
