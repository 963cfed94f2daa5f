"""The parent of a job's hosts: a small process that starts them, reports how they end, and dies with them.

Run as its own process so that namespaces never touch the sandbox's threads, and so that the end of the
sandbox, however sudden, is the end of the hosts: the keeper sees its control socket close.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from airflow_smd.sandbox.jobs import linux, network, root


def main() -> None:
    """Keep the hosts of the job described in `argv[1]`; talk JSON lines over the socket `argv[2]`."""
    job = json.loads(Path(sys.argv[1]).read_text())
    control = socket.socket(fileno=int(sys.argv[2]))
    try:
        keeper = Keeper(job, control)
        keeper.start()
    except Exception:
        _send(control, {"event": "broken", "reason": traceback.format_exc(limit=3)})
        raise
    keeper.watch()


_END_ALL = signal.SIGUSR1
"""Tells what stands for pid 1 of a plain process host to end every descendant; killed, it could not."""


class Keeper:
    """Starts hosts and follows them until the last has ended."""

    def __init__(self, job: dict[str, Any], control: socket.socket) -> None:
        self._job = job
        self._control = control
        for descriptor in (control.fileno(), *(host["output"] for host in job["hosts"])):
            os.set_inheritable(descriptor, False)
        self._running: dict[int, str] = {}
        self._wakeup, wakeup_writer = os.pipe()
        os.set_blocking(wakeup_writer, False)
        os.set_blocking(self._wakeup, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGTERM, lambda _number, _frame: self.signal_hosts(signal.SIGKILL))
        signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)

    def start(self) -> None:
        """Start every host, in namespaces if the job says so."""
        if self._job["mode"] == "process":
            for host in self._job["hosts"]:
                self._forked(host, lambda host=host: _run_as_process(host))
            return
        if self._job["user_namespace"]:
            _become_root_of_a_user_namespace()
        linux.unshare(linux.CLONE_NEWNS)
        hosts = self._job["hosts"]
        networks = network.connect([host["address"] for host in hosts], self._job["endpoint_port"])
        for host, its_network in zip(hosts, networks, strict=True):
            message = json.dumps({"event": "listener", "host": host["name"]}).encode() + b"\n"
            socket.send_fds(self._control, [message], [its_network.listener.fileno()])
            its_network.listener.close()
        for host, its_network in zip(hosts, networks, strict=True):
            self._forked(host, lambda host=host, net=its_network: self._run_in_namespaces(host, net))
            os.close(its_network.namespace)

    def watch(self) -> None:
        """Report ends and obey until no host is left or the sandbox is gone."""
        import selectors  # after the forks, to keep those small

        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        selector.register(self._wakeup, selectors.EVENT_READ)
        while self._running:
            for key, _ in selector.select():
                if key.fileobj is self._control and not self._obey():
                    selector.unregister(self._control)
                    self.signal_hosts(signal.SIGKILL)
                with suppress(BlockingIOError):
                    os.read(self._wakeup, 512)
            self._report()

    def signal_hosts(self, number: int) -> None:
        """Send a signal to the first process of every host, as SageMaker does."""
        if number == signal.SIGKILL and self._job["mode"] == "process":
            number = _END_ALL
        for pid in self._running:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _obey(self) -> bool:
        commands = self._control.recv(4096)
        for line in commands.splitlines():
            self.signal_hosts(int(json.loads(line)["signal"]))
        return bool(commands)

    def _report(self) -> None:
        for pid, status in _ended_children():
            if name := self._running.pop(pid, None):
                code = os.waitstatus_to_exitcode(status)
                code = code if code >= 0 else 128 - code
                with suppress(OSError):
                    _send(self._control, {"event": "exit", "host": name, "code": code})

    def _forked(self, host: dict[str, Any], run: Any) -> None:
        pid = os.fork()
        if pid == 0:
            _child(host, run)
        self._running[pid] = host["name"]
        os.close(host["output"])
        _send(self._control, {"event": "started", "host": host["name"], "pid": pid})

    def _run_in_namespaces(self, host: dict[str, Any], its_network: network.HostNetwork) -> NoReturn:
        # A process may do this once only, so it is not the keeper that does it for every host.
        linux.unshare(linux.CLONE_NEWPID)
        first = os.fork()
        if first == 0:
            linux.die_with_parent(signal.SIGKILL)
            linux.enter_namespace(its_network.namespace, linux.CLONE_NEWNET)
            linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC)
            socket.sethostname(host["name"])
            root.enter(host, user_namespace=self._job["user_namespace"])
            _execute(host)
        os.closerange(1, 4096)  # the output ends when the host's own processes have ended
        os._exit(_exit_code_of(first))


def _child(host: dict[str, Any], run: Any) -> NoReturn:
    """Run a host in a just forked process and never return to the keeper's code."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        linux.die_with_parent(signal.SIGKILL)
        os.setsid()
        os.dup2(host["output"], 1)
        os.dup2(host["output"], 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        run()
    except BaseException:  # a forked child must not unwind into its parent's frames
        os.write(2, f"[sandbox] the host could not be started\n{traceback.format_exc()}".encode())
    os._exit(127)


def _execute(host: dict[str, Any]) -> NoReturn:
    os.chdir(host["working_directory"])
    os.umask(0o022)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    argv, environment = host["argv"], host["environment"]
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        # 127 and this wording are the shell's; SageMaker fails such a job the same way.
        os.write(2, f"exec: {argv[0]!r}: {error.strerror}\n".encode())
        os._exit(127)


def _run_as_process(host: dict[str, Any]) -> NoReturn:
    """Stand for pid 1 where there are no namespaces: pass SIGTERM on, end every descendant at the end."""
    os.closerange(3, 4096)  # another host's output must not be held open by this one
    linux.adopt_orphans()
    first = os.fork()
    if first == 0:
        os.setsid()
        linux.die_with_parent(signal.SIGKILL)
        _execute(host)
    signal.signal(_END_ALL, lambda *_: _signal_quietly(first, signal.SIGKILL))
    linux.die_with_parent(_END_ALL)
    code = _exit_code_of(first)
    while descendants := _descendants(os.getpid()):
        for pid in descendants:
            _signal_quietly(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.wait()
    os._exit(code)


def _exit_code_of(first: int) -> int:
    """Wait for a host's first process, pass SIGTERM on to it, return its exit code as a shell would."""
    signal.signal(signal.SIGTERM, lambda number, _frame: _signal_quietly(first, number))
    while True:
        pid, status = os.wait()
        if pid == first:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _signal_quietly(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _descendants(ancestor: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
            if state != "Z" or int(parent) == ancestor:
                parents[int(entry.parent.name)] = int(parent)
    found = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {ancestor})


def _ended_children() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            yield pid, status


def _become_root_of_a_user_namespace() -> None:
    user, group = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def _send(control: socket.socket, event: dict[str, Any]) -> None:
    control.sendall(json.dumps(event).encode() + b"\n")
