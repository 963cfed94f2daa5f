"""Failures on request: what to break, for which call or job, how often."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from airflow_smd.errors import Problem, refuse


class FaultKind(StrEnum):
    """What breaks. The first four break any AWS call; the others break the work behind it."""

    THROTTLE = "throttle"
    ERROR = "error"
    DROP = "drop"
    SLOW = "slow"
    CAPACITY = "capacity"
    SPOT_INTERRUPTION = "spot_interruption"
    FAIL = "fail"
    SLOW_CREATE = "slow_create"


CALL_KINDS = (FaultKind.THROTTLE, FaultKind.ERROR, FaultKind.DROP, FaultKind.SLOW)
OPTIONS: Mapping[FaultKind, Mapping[str, Any]] = {
    FaultKind.THROTTLE: {},
    FaultKind.ERROR: {"code": "InternalFailure", "message": "Injected by the sandbox.", "status": 500},
    FaultKind.DROP: {"when": "before"},
    FaultKind.SLOW: {"seconds": 5.0},
    FaultKind.CAPACITY: {},
    FaultKind.SPOT_INTERRUPTION: {"after_seconds": 0.0},
    FaultKind.FAIL: {"after_seconds": 0.0, "message": "Injected by the sandbox."},
    FaultKind.SLOW_CREATE: {"seconds": 5.0},
}
"""The options of each kind with their defaults; a number may be given as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that breaks; everything left empty matches everything."""

    kind: FaultKind
    id: str = ""
    """Given by the sandbox when the fault is added."""
    service: str = ""
    """botocore's name of the service: `sagemaker`, `s3`, `cloudwatch`."""
    operation: str = ""
    """`CreateTrainingJob`; a pattern as in file names is allowed: `Describe*`."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Request parameter, nested ones dotted (`ResourceConfig.InstanceType`) -> value or pattern."""
    count: int | None = 1
    """How many times it strikes; None: until it is deleted."""
    after: int = 0
    """How many matching calls or jobs pass unharmed first."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the kind needs (OPTIONS), complete."""

    def matches(self, service: str, operation: str, parameters: Mapping[str, Any]) -> bool:
        """Tell whether this fault is meant for such a call or job."""
        return (
            (not self.service or fnmatchcase(service, self.service))
            and (not self.operation or fnmatchcase(operation, self.operation))
            and all(
                fnmatchcase(_text(value_at(parameters, name)), wanted)
                for name, wanted in self.parameters.items()
            )
        )

    def as_json(self) -> dict[str, Any]:
        """Return the fault as the control API shows it."""
        shown = asdict(self)
        return {**{key: value for key, value in shown.items() if key != "options"}, **self.options}


class Faults:
    """The faults of one sandbox; safe to use from any thread; forgotten when the sandbox goes down."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: list[tuple[Fault, int, int | None]] = []
        """Each with the matching calls still to pass and the strikes that are left."""

    def add(self, fault: Fault) -> Fault:
        """Arm a fault and return it with its id."""
        with self._lock:
            armed = Fault(
                **{name: getattr(fault, name) for name in Fault.__slots__ if name != "id"},
                id=f"fault-{next(self._numbers)}",
            )
            self._waiting.append((armed, armed.after, armed.count))
        return armed

    def take(self, kind: FaultKind | str, **attributes: Any) -> Fault | None:
        """Return the fault that strikes this piece of work now, and count it; None if all is well.

        `service` and `operation` among the attributes match the fault's own fields, the others its
        `parameters`: `take("capacity", service="sagemaker", operation="CreateTrainingJob", **request)`.
        """
        service, operation = attributes.pop("service", ""), attributes.pop("operation", "")
        return self.strike((FaultKind(kind),), service, operation, attributes)

    def strike(
        self, kinds: Iterable[FaultKind], service: str, operation: str, parameters: Mapping[str, Any]
    ) -> Fault | None:
        """Return the first armed fault of these kinds that matches, and count it."""
        with self._lock:
            for position, (fault, passing, left) in enumerate(self._waiting):
                if fault.kind not in kinds or not fault.matches(service, operation, parameters):
                    continue
                if passing:
                    self._waiting[position] = (fault, passing - 1, left)
                    continue
                if left == 1:
                    del self._waiting[position]
                else:
                    self._waiting[position] = (fault, 0, None if left is None else left - 1)
                return fault
        return None

    def armed(self) -> list[dict[str, Any]]:
        """Return the faults that can still strike, with what is left of them, as JSON."""
        with self._lock:
            return [
                {**fault.as_json(), "after": passing, "count": left} for fault, passing, left in self._waiting
            ]

    def delete(self, fault_id: str | None = None) -> int:
        """Disarm one fault, or all of them, and return how many there were."""
        with self._lock:
            kept = [entry for entry in self._waiting if fault_id is not None and entry[0].id != fault_id]
            removed, self._waiting = len(self._waiting) - len(kept), kept
        return removed


def value_at(parameters: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, None if there is none."""
    value: Any = parameters
    for name in path.split("."):
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, Mapping):
            value = value.get(name)
        else:
            return None
    return value


def parse_fault(raw: Any) -> Fault:
    """Turn the control API's JSON into a fault; InvalidInput lists everything that is wrong with it."""
    if not isinstance(raw, Mapping):
        refuse([_problem("fault", raw, "A fault is a JSON object.", 'Send {"kind": "throttle"}.')])
    kinds = ", ".join(FaultKind)
    if raw.get("kind") not in list(FaultKind):
        refuse([_problem("kind", raw.get("kind"), f"Allowed are {kinds}.", "Name one of them.")])
    kind = FaultKind(raw["kind"])
    common = {"kind", "service", "operation", "parameters", "count", "after"}
    allowed = common | set(OPTIONS[kind])
    problems = [
        _problem(name, raw[name], f"{kind} takes {', '.join(sorted(allowed))}.", "Remove it or fix its name.")
        for name in sorted(set(map(str, raw)) - allowed)
    ]
    options = {name: _option(problems, name, raw.get(name, given)) for name, given in OPTIONS[kind].items()}
    parameters = raw.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        problems.append(_problem("parameters", parameters, "An object is needed.", 'Send {"Name": "value"}.'))
        parameters = {}
    count = raw.get("count", 1)
    fault = Fault(
        kind=kind,
        service=_words(problems, "service", raw.get("service")),
        operation=_words(problems, "operation", raw.get("operation")),
        parameters={str(name): _text(value) for name, value in parameters.items()},
        count=None if count in (None, "unlimited") else _whole(problems, "count", count, 1),
        after=_whole(problems, "after", raw.get("after", 0), 0),
        options=options,
    )
    refuse(problems)
    return fault


def _words(problems: list[Problem], name: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    problems.append(_problem(name, value, "A text is needed.", "Send a name or a pattern."))
    return ""


def _whole(problems: list[Problem], name: str, value: Any, least: int) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if number < least:
        also = ' or "unlimited"' if name == "count" else ""
        problems.append(
            _problem(name, value, f"A whole number of at least {least}{also} is needed.", "Change it.")
        )
    return number


def _option(problems: list[Problem], name: str, value: Any) -> Any:
    match name:
        case "seconds" | "after_seconds":
            try:
                number = float(value)
            except (TypeError, ValueError):
                number = -1.0
            if not 0 <= number <= 86_400:
                problems.append(_problem(name, value, "Seconds from 0 to 86400 are needed.", "Change it."))
            return number
        case "status":
            status = _whole(problems, name, value, 400)
            if status > 599:
                problems.append(
                    _problem(name, value, "An HTTP status from 400 to 599 is needed.", "Change it.")
                )
            return status
        case "when" if value not in ("before", "after"):
            problems.append(
                _problem(name, value, "Allowed are before (the call has no effect) and after.", "Change it.")
            )
    return (
        value
        if name == "when"
        else _words(problems, name, value)
        if isinstance(value, str) is False
        else value
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _problem(name: str, value: Any, message: str, remedy: str) -> Problem:
    return Problem(rule="sandbox-fault", field=name, value=value, message=message, remedy=remedy)
