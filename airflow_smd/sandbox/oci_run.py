"""RUN without a container engine: a shell in an overlay of the layers below."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

_WAY_OUT = ("http_proxy", "https_proxy", "no_proxy", "pip_index_url", "pip_extra_index_url", "pip_cert")
_MOUNTS = """\
set -e
if [ -n "$HOST_UPPER" ]; then
  mount -t overlay overlay -o "lowerdir=/,upperdir=$HOST_UPPER,workdir=$HOST_WORK" "$HOST_ROOT"
fi
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK" "$ROOT"
for name in proc sys dev; do [ -d "$ROOT/$name" ] || mkdir "$ROOT/$name"; done
mount -t proc proc "$ROOT/proc"
mount --rbind /sys "$ROOT/sys" 2>/dev/null || true
mount --rbind /dev "$ROOT/dev"
if [ -e /etc/resolv.conf ] && [ -d "$ROOT/etc" ] && [ ! -s "$ROOT/etc/resolv.conf" ]; then
  : > "$ROOT/etc/resolv.conf"; mount --bind /etc/resolv.conf "$ROOT/etc/resolv.conf"
fi
exec chroot "$@"
"""
"""Layers that lie under `/` cannot be laid over `/` itself (ELOOP), so the host's root is wrapped first."""


def way_out(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which this machine reaches the network, for the steps of a build only."""
    return {key: value for key, value in environment.items() if key.lower() in _WAY_OUT}


@cache
def namespaces() -> tuple[str, ...]:
    """Return the command that enters new namespaces here, () where the machine refuses.

    Root only: a user namespace could not change the files of this machine's root, which are not its own.
    """
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return ()
    command = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
    with tempfile.TemporaryDirectory() as scratch:
        places = _places(Path(scratch), lower=(), upper=Path(scratch) / "upper", on_host=True)
        probe = [*command, "/bin/sh", "-c", _MOUNTS, "sh", places["ROOT"], "true"]
        done = subprocess.run(probe, env={**os.environ, **places}, check=False, capture_output=True)
    return command if done.returncode == 0 else ()


def run(
    words: Sequence[str],
    *,
    scratch: Path,
    lower: Sequence[Path],
    upper: Path,
    on_host: bool,
    environment: Mapping[str, str],
    working_directory: str,
    user: str = "",
) -> int:
    """Run a command over `lower` (topmost first), what it writes going to `upper`; return its exit code."""
    command = shlex.join(words)
    script = (
        f"mkdir -p {shlex.quote(working_directory)} && cd {shlex.quote(working_directory)} && exec {command}"
    )
    variables = way_out(os.environ) | dict(environment)
    clean = ["env", "-i", *(f"{key}={value}" for key, value in variables.items())]
    as_user = [f"--userspec={user}"] if user not in ("", "root", "0") else []
    places = _places(scratch, lower=lower, upper=upper, on_host=on_host)
    inside = [*as_user, places["ROOT"], *clean, "/bin/sh", "-c", script]
    done = subprocess.run(
        [*namespaces(), "/bin/sh", "-c", _MOUNTS, "sh", *inside], env={**os.environ, **places}, check=False
    )
    return done.returncode


def _places(scratch: Path, *, lower: Sequence[Path], upper: Path, on_host: bool) -> dict[str, str]:
    """Return the variables of the mount script, and make the directories that they name."""
    for path in (upper, *(scratch / name for name in ("root", "work", "host", "host-upper", "host-work"))):
        path.mkdir(parents=True, exist_ok=True)
    lowest = [scratch / "host"] if on_host else []
    return {
        "HOST_UPPER": str(scratch / "host-upper") if on_host else "",
        "HOST_WORK": str(scratch / "host-work"),
        "HOST_ROOT": str(scratch / "host"),
        "LOWER": ":".join(map(str, [*lower, *lowest])),
        "UPPER": str(upper),
        "WORK": str(scratch / "work"),
        "ROOT": str(scratch / "root"),
    }
