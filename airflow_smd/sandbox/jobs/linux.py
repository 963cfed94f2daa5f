"""The few system calls that Python 3.11 does not wrap. Imported by the keeper only, so it stays light."""

from __future__ import annotations

import ctypes
import os
import platform

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def enter_namespace(descriptor: int, kind: int) -> None:
    """Move this thread into the namespace behind an open file."""
    _check(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Attach a file system to a directory."""
    _check(
        _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()),
        f"mount {source} on {target} ({kind} {options})",
    )


def bind(source: str, target: str, *, read_only: bool = False, recursive: bool = False) -> None:
    """Show a directory or file at a second place."""
    flags = MS_BIND | (MS_REC if recursive else 0)
    mount(source, target, flags=flags)
    if read_only:
        kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def pivot_root(new_root: str) -> None:
    """Make a mounted directory the root and forget the old one."""
    os.chdir(new_root)
    _check(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def die_with_parent(signal_number: int) -> None:
    """Ask the kernel for a signal when the parent process ends; only Linux can."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of grandchildren whose parent ended; only Linux can."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
