"""The process that answers: moto, our services on top of it, and what every call goes through."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from importlib import import_module, util
from typing import Any

from airflow_smd.sandbox.children import Children
from airflow_smd.sandbox.runtime import ACCOUNT_ID, Environ, Runtime, Settings, Wsgi

EXTENSIONS = ("iam", "sagemaker", "fsx", "codebuild")
"""Modules of this package, each with `register(runtime: Runtime) -> None`, in this order."""
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "sandbox",
    "AWS_SECRET_ACCESS_KEY": "sandbox",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "MOTO_ACCOUNT_ID": ACCOUNT_ID,
    "MOTO_EVENTS_INVOKE_HTTP": "false",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
}
"""Set before moto is imported: no credentials of this machine, no call that leaves it."""
log = logging.getLogger("airflow_smd.sandbox")


def prepare_environment(runtime: Runtime) -> None:
    """Set what moto and botocore read from the environment of this process."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "MOTO_"))]:
        del os.environ[name]
    os.environ.update(ENVIRONMENT)
    os.environ["AWS_DEFAULT_REGION"] = runtime.settings.region
    os.environ["AWS_ENDPOINT_URL"] = runtime.endpoint_url


def register_extensions(runtime: Runtime) -> list[str]:
    """Let our services hook into moto; return their names."""
    found = [name for name in EXTENSIONS if util.find_spec(f"airflow_smd.sandbox.{name}")]
    for name in found:
        import_module(f"airflow_smd.sandbox.{name}").register(runtime)
    return found


def application(runtime: Runtime) -> Wsgi:
    """Return everything that answers at the endpoint, as one WSGI application."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    return DomainDispatcherApplication(create_backend_app)


def server_on(listening: socket.socket, app: Wsgi) -> Any:
    """Return a werkzeug server that answers on a listening socket, a thread for each request."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class QuietRequestHandler(MotoRequestHandler):  # type: ignore[misc]
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
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()

        def end() -> None:
            server.shutdown()
            server.server_close()
            listening.close()

        return end

    return listen


def serve(settings: Settings, port: int) -> int:
    """Answer on 127.0.0.1 until SIGTERM or SIGINT, then end every service; return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    settings.home.mkdir(parents=True, exist_ok=True)
    listening = socket.create_server(("127.0.0.1", port))
    runtime = Runtime(settings=settings, endpoint_url=f"http://127.0.0.1:{listening.getsockname()[1]}")
    prepare_environment(runtime)
    Children(settings.home / "children").end()
    app = application(runtime)
    runtime.listen = listen_with(app)
    log.info("Registered %s", ", ".join(register_extensions(runtime)))
    server = server_on(listening, app)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    log.info("Answering at %s", runtime.endpoint_url)
    stop.wait()
    for failure in runtime.stop():
        log.error("A service did not end well", exc_info=failure)
    server.shutdown()
    runtime.children.end()
    log.info("Stopped")
    return 0
