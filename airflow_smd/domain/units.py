"""Bytes and rates, and the only place that knows 1024."""

from __future__ import annotations

import re

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4
KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12

_UNITS = {"b": 1, "kb": KB, "mb": MB, "gb": GB, "tb": TB, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB}


def parse_bytes(text: str) -> int:
    """Return the bytes that `100GB`, `1.2 TiB` or `4096` mean; ValueError names what is allowed."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    unit = (match[2] or "b").lower() if match else ""
    if not match or unit not in _UNITS:
        raise ValueError(
            f"{text!r} is not a size: write a number and one of {', '.join(_UNITS)}, as in 100GB"
        )
    return round(float(match[1]) * _UNITS[unit])


def format_bytes(count: float) -> str:
    """Return `count` bytes for a person, in decimal units with three digits: `1.23 GB`."""
    for unit, size in (("TB", TB), ("GB", GB), ("MB", MB), ("kB", KB)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 1000 * size else f"{count / size:,.0f} {unit}"
    return f"{count:.0f} B"
