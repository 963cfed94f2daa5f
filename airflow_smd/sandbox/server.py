"""The process that answers: moto, our services on top of it, and what every call goes through."""

from __future__ import annotations

import fcntl
import logging
import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from airflow_smd import __version__
from airflow_smd.sandbox import lifecycle
from airflow_smd.sandbox.calls import CallRecord
from airflow_smd.sandbox.capabilities import check_settings
from airflow_smd.sandbox.control_api import PREFIX, ControlApi
from airflow_smd.sandbox.gateway import Gateway
from airflow_smd.sandbox.lifecycle import HomeIsTaken, SandboxDidNotStart
from airflow_smd.sandbox.runtime import ACCOUNT_ID, Environ, Runtime, Settings, Wsgi
from airflow_smd.sandbox.state import MotoState

EXTENSIONS = ("iam", "sagemaker", "fsx", "codebuild")
"""Modules of this package, each with `register(runtime: Runtime) -> None`, in this order."""
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "sandbox",
    "AWS_SECRET_ACCESS_KEY": "sandbox",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "MOTO_ACCOUNT_ID": ACCOUNT_ID,
    "MOTO_DISABLE_GLOBAL_CORS": "true",
    "MOTO_EVENTS_INVOKE_HTTP": "false",
    "MOTO_IAM_LOAD_MANAGED_POLICIES": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
}
"""Set before moto is imported: no credentials of this machine, no call that leaves it."""
PORTS = range(20_000, 30_000)
"""Where a new sandbox looks for a free port: below those that systems give to outgoing connections."""
LOCK = "lock"
"""The file in a home that its sandbox holds locked."""
HOME_SECONDS = 2.0
"""How often the server looks whether its home still exists: without one it could not be told to stop."""
POLL_SECONDS = 0.1
"""How often a listener looks whether it is to end."""
log = logging.getLogger("airflow_smd.sandbox")


def prepare_environment(runtime: Runtime) -> None:
    """Set what moto and botocore read from the environment of this process."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "MOTO_"))]:
        del os.environ[name]
    os.environ.update(ENVIRONMENT)
    os.environ["AWS_DEFAULT_REGION"] = runtime.settings.region
    os.environ["AWS_ENDPOINT_URL"] = runtime.endpoint_url


def register_extensions(runtime: Runtime) -> None:
    """Let our services hook into moto."""
    for name in EXTENSIONS:
        import_module(f"airflow_smd.sandbox.{name}").register(runtime)


def application(runtime: Runtime) -> Wsgi:
    """Return everything that answers at the endpoint, as one WSGI application."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    record = CallRecord()
    health = {
        "status": "ok",
        "pid": os.getpid(),
        "home": str(runtime.settings.home),
        "endpoint_url": runtime.endpoint_url,
        "version": __version__,
        "moto": metadata.version("moto"),
        "own_services": list(EXTENSIONS),
    }
    runtime.routes[PREFIX] = ControlApi(runtime, record, health)
    return Gateway(runtime, record, DomainDispatcherApplication(create_backend_app))


def server_on(listening: socket.socket, app: Wsgi) -> Any:
    """Return a werkzeug server that answers on a listening socket, a thread for each request."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class QuietRequestHandler(MotoRequestHandler):
        def log_request(self, *_: Any) -> None:
            """Keep the log for what goes wrong; the control API has the calls."""

    host, port = listening.getsockname()[:2]
    return make_server(
        host, port, app, threaded=True, request_handler=QuietRequestHandler, fd=listening.fileno()
    )


def listen_with(app: Wsgi) -> Callable[[socket.socket], Callable[[], None]]:
    """Return what serves the application on one more socket: `Runtime.listen`."""

    def listen(listening: socket.socket) -> Callable[[], None]:
        server = server_on(listening, app)
        thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True)
        thread.start()

        def end() -> None:
            server.shutdown()
            server.server_close()
            listening.close()

        return end

    return listen


def serve(settings: Settings, port: int | None = None) -> int:
    """Answer on 127.0.0.1 until SIGTERM or SIGINT, then end every service; return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    check_settings(settings)
    settings.home.mkdir(parents=True, exist_ok=True)
    with _home_to_itself(settings.home):
        listening = _listening(settings.home, port)
        runtime = Runtime(settings=settings, endpoint_url=f"http://127.0.0.1:{listening.getsockname()[1]}")
        if left := runtime.children.end():
            log.warning("Ended %d processes that an earlier sandbox of this home had left", left)
        prepare_environment(runtime)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        _run(runtime, listening, stop)
    return 0


def _run(runtime: Runtime, listening: socket.socket, stop: threading.Event) -> None:
    """Bring the services up, answer until `stop` is set, bring them down."""
    home, lock = runtime.settings.home, runtime.settings.home / LOCK
    app = _LateApplication()
    runtime.listen = listen_with(app)
    state = MotoState(runtime)
    runtime.restored = state.load()
    try:
        register_extensions(runtime)
        saving = state.keep_saving(runtime.stopping)
        app.application = application(runtime)
        end_listening = runtime.listen(listening)
        lifecycle.note_running(runtime.settings, runtime.endpoint_url)
        log.info("Answering at %s with our own %s", runtime.endpoint_url, ", ".join(EXTENSIONS))
        while not stop.wait(HOME_SECONDS) and lock.exists():
            pass
        log.info("Stopping" if lock.exists() else "Stopping, since the home was deleted")
    finally:  # the services end while the endpoint still answers: a job that is stopped uploads what it has
        for failure in runtime.stop():
            log.error("A service did not end well", exc_info=failure)
        runtime.children.end()
    end_listening()
    saving.join()
    if lock.exists():
        state.save(last=True)
    (home / "sandbox.json").unlink(missing_ok=True)
    log.info("Stopped")


class _LateApplication:
    """What answers, for those who must name it before it exists."""

    application: Wsgi

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        return self.application(environ, start_response)


@contextmanager
def _home_to_itself(home: Path) -> Iterator[None]:
    """Refuse a home that another process serves."""
    with (home / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as taken:
            raise HomeIsTaken(f"Another process serves {home}: use another --home.") from taken
        yield


def _listening(home: Path, port: int | None) -> socket.socket:
    """Return a socket on the wanted port, or the one that this home had before, or a free one."""
    wanted = lifecycle.remembered_port(home) if port is None else port
    if not wanted:
        return _on_a_free_port()
    try:
        return socket.create_server(("127.0.0.1", wanted))
    except (OSError, OverflowError) as taken:
        before = ", which this sandbox had before," if port is None else ""
        message = f"Port {wanted}{before} cannot be had ({taken}): free it or choose another --port."
        raise SandboxDidNotStart(message) from taken


def _on_a_free_port() -> socket.socket:
    """Return a socket on a port that no outgoing connection takes while the sandbox is down."""
    for port in random.sample(PORTS, 100):
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            continue
    return socket.create_server(("127.0.0.1", 0))
