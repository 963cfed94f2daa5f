"""The file system that a host sees: this machine's own, copy-on-write, with the job's places in it."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_smd.sandbox.jobs import linux

_OWN = {"proc", "sys", "dev", "tmp", "run"}
"""Top-level directories that a host gets of its own."""
_SKIPPED = {"lost+found", "swapfile"}
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "fd/0",
    "stdout": "fd/1",
    "stderr": "fd/2",
    "ptmx": "pts/ptmx",
}


def enter(host: dict[str, Any], *, user_namespace: bool) -> None:
    """Build the root of a host from its description (see `hosts.describe`) and move into it.

    Each top-level directory is an overlay of its own: an overlay of `/` as a whole is refused in a user
    namespace (its mounts are locked) and when image layers lie under `/` (ELOOP).
    """
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    directory = Path(host["directory"])
    root = directory / "root"
    root.mkdir(exist_ok=True)
    linux.mount("tmpfs", str(root), "tmpfs", options="mode=755")
    layers = [Path(layer) for layer in host["layers"]]
    bases = [*([Path("/")] if host["on_host_root"] else []), *layers]
    submounts = list(_submounts()) if host["on_host_root"] else []
    overlays = _Overlays(directory / "changes", user_namespace=user_namespace)
    for name in sorted({entry.name for base in bases for entry in base.iterdir()} - _OWN - _SKIPPED):
        overlays.show(name, [base / name for base in bases if _exists(base / name)], root / name)
    for path in submounts:
        target = root / path.relative_to("/")
        with suppress(OSError):
            linux.bind(str(path), str(target), read_only=True)
    _system(root)
    _private_directory(root / "tmp", directory / "tmp", mode=0o1777)
    for bound in host["binds"]:
        _bind(Path(bound["source"]), root / bound["target"].lstrip("/"), read_only=bound["read_only"])
    for path in map(Path, host["visible"]):
        if not (root / path.relative_to("/")).exists():
            _bind(path, root / path.relative_to("/"), read_only=True)
    (root / "etc").mkdir(exist_ok=True)
    for name, text in (("hosts", host["hosts_file"]), ("hostname", host["name"] + "\n"), ("resolv.conf", "")):
        _show_text(text, directory / name, root / "etc" / name)
    linux.pivot_root(str(root))


def _exists(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _submounts() -> Iterator[Path]:
    """Yield mounts that an overlay of their top-level directory would not show."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        path = Path(before.split()[4].encode().decode("unicode_escape"))
        top = path.parts[1] if len(path.parts) > 1 else ""
        if (
            len(path.parts) > 2
            and top not in {*_OWN, "etc"}
            and after.split()[0] not in {"overlay", "autofs"}
        ):
            yield path


class _Overlays:
    """Copy-on-write views whose changes go to one directory."""

    def __init__(self, changes: Path, *, user_namespace: bool) -> None:
        self._changes = changes
        self._options = ",userxattr" if user_namespace else ""
        self._in_memory = False
        changes.mkdir(exist_ok=True)

    def show(self, name: str, lower: Sequence[Path], target: Path) -> None:
        """Show the union of `lower`, the last on top, at `target`."""
        top = lower[-1]
        if top.is_symlink():
            target.symlink_to(top.readlink())
        elif not top.is_dir():
            with suppress(OSError):
                shutil.copy2(top, target)
        else:
            target.mkdir()
            directories = [str(path) for path in reversed(lower) if path.is_dir()]
            try:
                self._overlay(name, directories, target)
            except OSError:
                linux.bind(directories[-1], str(target), read_only=True, recursive=True)

    def _overlay(self, name: str, directories: Sequence[str], target: Path) -> None:
        try:
            self._mount(name, directories, target)
        except OSError as error:
            if error.errno == errno.ELOOP:
                self._mount(name, [*directories[:-1], self._wrapped(name, directories[-1])], target)
            elif not self._in_memory:
                # The changes lie on a file system that cannot be an upper layer (an overlay, in a container).
                linux.mount("tmpfs", str(self._changes), "tmpfs")
                self._in_memory = True
                self._mount(name, directories, target)
            else:
                raise

    def _wrapped(self, name: str, directory: str) -> str:
        """Show a directory as an overlay, so that layers that lie below it can lie over it."""
        wrapped, empty = self._changes / name / "wrapped", self._changes / name / "empty"
        wrapped.mkdir()
        empty.mkdir()
        linux.mount(
            "overlay", str(wrapped), "overlay", options=f"lowerdir={directory}:{empty}{self._options}"
        )
        return str(wrapped)

    def _mount(self, name: str, directories: Sequence[str], target: Path) -> None:
        upper, work = self._changes / name / "upper", self._changes / name / "work"
        upper.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        upper.chmod(Path(directories[-1]).stat().st_mode & 0o7777)
        options = f"lowerdir={':'.join(directories)},upperdir={upper},workdir={work}{self._options}"
        linux.mount("overlay", str(target), "overlay", options=options)


def _system(root: Path) -> None:
    for name in ("proc", "sys", "dev", "run", "tmp"):
        (root / name).mkdir(exist_ok=True)
    linux.mount("proc", str(root / "proc"), "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    linux.bind("/sys", str(root / "sys"), recursive=True)
    linux.mount("tmpfs", str(root / "run"), "tmpfs", options="mode=755")
    (root / "run/sshd").mkdir(mode=0o755)
    (root / "run/lock").mkdir()
    device = root / "dev"
    linux.mount("tmpfs", str(device), "tmpfs", linux.MS_NOSUID, "mode=755")
    for name in _DEVICES:
        if Path("/dev", name).exists():
            (device / name).touch()
            linux.bind(f"/dev/{name}", str(device / name))
    for name, there in _DEVICE_LINKS.items():
        (device / name).symlink_to(there)
    for name, kind, options in (
        ("shm", "tmpfs", "mode=1777"),
        ("pts", "devpts", "newinstance,ptmxmode=0666"),
    ):
        (device / name).mkdir()
        linux.mount(kind, str(device / name), kind, linux.MS_NOSUID | linux.MS_NOEXEC, options)


def _private_directory(target: Path, source: Path, *, mode: int) -> None:
    source.mkdir(exist_ok=True)
    source.chmod(mode)
    linux.bind(str(source), str(target))


def _bind(source: Path, target: Path, *, read_only: bool) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.touch()
    linux.bind(str(source), str(target), read_only=read_only, recursive=True)


def _show_text(text: str, source: Path, target: Path) -> None:
    """Lay a file of our own over one that, without being root, could not be written."""
    source.write_text(text)
    if target.is_symlink():
        target.unlink()
    _bind(source, target, read_only=False)
