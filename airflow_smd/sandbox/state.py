"""What moto knows, kept over a restart: a snapshot, replaced as a whole, and files of S3 objects."""

from __future__ import annotations

import copyreg
import io
import json
import logging
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

from airflow_smd.errors import SmdError
from airflow_smd.sandbox.bodies import Bodies, StoredBody
from airflow_smd.sandbox.lifecycle import write_atomically
from airflow_smd.sandbox.runtime import Runtime

FORMAT = 1
PERIOD_SECONDS = 1.0
"""How often changes are looked for."""
SHARE = 10
"""A snapshot that took t seconds is followed by SHARE * t seconds without one, so that it stays cheap."""
LONGEST_PAUSE_SECONDS = 5.0
"""But not by more: what a kill can lose, beside the time that the snapshot itself takes."""
GATE_SECONDS = 5.0
"""How long a snapshot waits for the calls under way; the others wait for it meanwhile."""
GONE = "-"
"""Stands for the bytes of a deleted object."""
LOCKS = {type(threading.Lock()): threading.Lock, type(threading.RLock()): threading.RLock}
log = logging.getLogger("airflow_smd.sandbox")


class StateUnreadable(SmdError):
    """The state of this home was written by another moto, or is damaged; nothing was changed."""


class _Pickler(pickle.Pickler):
    """Pickles moto's objects: locks are made anew, bodies stay in their files."""

    def __init__(self, file: io.BytesIO, bodies: Bodies) -> None:
        super().__init__(file, protocol=5)
        self._bodies = bodies
        self.referenced: set[str] = set()

    def persistent_id(self, obj: Any) -> Any:
        """Name a body by its file."""
        if not isinstance(obj, StoredBody):
            return None
        if obj.closed:
            return GONE
        self.referenced.add(obj.path.name)
        return obj.path.name

    def reducer_override(self, obj: Any) -> Any:
        """Tell how locks and S3 keys are rebuilt."""
        if make := LOCKS.get(type(obj)):
            return make, ()
        if type(obj).__name__ == "FakeKey" and type(obj).__module__ == "moto.s3.models":
            state = {name: value for name, value in vars(obj).items() if name != "lock"}
            state["_value_buffer"] = StoredBody.gone() if obj.disposed else self._bodies.keep(obj)
            return copyreg.__newobj__, (type(obj),), state, None, None, _revive_key  # type: ignore[attr-defined]
        if type(obj).__name__ == "_VersionedKeyStore":
            # Its items() shows the newest versions only, and its [] = appends one.
            return type(obj), (), dict(dict.items(obj)), None, None, dict.update
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, bodies: Bodies) -> None:
        super().__init__(io.BytesIO(content))
        self._bodies = bodies

    def persistent_load(self, pid: Any) -> Any:
        """Return the body in a file."""
        return StoredBody.gone() if pid == GONE else StoredBody(self._bodies.path(str(pid)))


def _after_load() -> None:
    """Rebuild what moto keeps beside its backends: which account has which bucket."""
    from moto.s3.models import s3_backends

    for account_id, partition, backend in s3_backends.iter_backends():
        for name in backend.buckets:
            s3_backends.bucket_accounts[name] = (partition, account_id)


def _revive_key(key: Any, state: Mapping[str, Any]) -> None:
    vars(key).update(state, lock=threading.Lock())


def dumped(backend: Any, bodies: Bodies) -> tuple[bytes, set[str]]:
    """Return the bytes of one backend and the files of the bodies that it names."""
    file = io.BytesIO()
    pickler = _Pickler(file, bodies)
    pickler.dump(backend)
    return file.getvalue(), pickler.referenced


def loaded(content: bytes, bodies: Bodies) -> Any:
    """Return the backend that `dumped` gave."""
    return _Unpickler(content, bodies).load()


class MotoState:
    """Loads the snapshot of a home and keeps it up to date."""

    def __init__(self, runtime: Runtime) -> None:
        directory = runtime.directory("aws")
        self._path = directory / "snapshot"
        self._gate = runtime.gate
        self._own_state = runtime.own_state
        self._region = runtime.settings.region
        self._bodies = Bodies(directory / "bodies")
        self._saved_changes = 0
        self._refused: set[str] = set()
        self._saving = threading.Lock()

    def load(self) -> bool:
        """Put the snapshot into moto's backends; False if there is none. StateUnreadable if it cannot be."""
        from moto.backends import get_backend

        if not self._path.exists():
            return False
        header, _, content = self._path.read_bytes().partition(b"\n")
        self._check(header)
        try:
            saved: dict[tuple[str, str, str], bytes] = pickle.loads(content)
            for (service, account_id, region), pickled in saved.items():
                backend = loaded(pickled, self._bodies)
                dict.__setitem__(get_backend(service)[account_id], region, backend)
        except Exception as failure:
            reason = f"{type(failure).__name__}: {failure}"
            raise StateUnreadable(self._unreadable(f"is damaged ({reason})")) from failure
        _after_load()
        return True

    def save_if_changed(self) -> None:
        """Write a snapshot if anything changed since the last one."""
        if self._gate.changes != self._saved_changes:
            self.save()

    def save(self, *, last: bool = False) -> None:
        """Write a snapshot; a service that cannot be pickled is left out and named in the log once.

        Where a call does not come to its end, only the last snapshot is written nevertheless.
        """
        from moto.core.model_instances import reset_model_data

        with self._saving:
            self._bodies.keep_all()
            with self._gate.copying(GATE_SECONDS) as alone:
                if not (alone or last):
                    log.warning("The state was not saved: a call has been changing it for long")
                    return
                changes = self._gate.changes
                saved, referenced = self._pickled()
            header = {"format": FORMAT, "moto": metadata.version("moto")}
            write_atomically(
                self._path, json.dumps(header).encode() + b"\n" + pickle.dumps(saved, protocol=5)
            )
            self._bodies.forget_others(referenced)
            reset_model_data()  # moto's list of every object that ever was, which only grows
            self._saved_changes = changes

    def keep_saving(self, stopping: threading.Event) -> threading.Thread:
        """Save in the background until `stopping` is set; returns the thread."""
        thread = threading.Thread(target=self._save_again_and_again, args=(stopping,), daemon=True)
        thread.start()
        return thread

    def _save_again_and_again(self, stopping: threading.Event) -> None:
        pause = PERIOD_SECONDS
        while not stopping.wait(pause):
            began = time.monotonic()
            try:
                self.save_if_changed()
            except Exception:
                log.exception("The state could not be saved; the next try follows")
            taken_seconds = time.monotonic() - began
            pause = min(max(PERIOD_SECONDS, SHARE * taken_seconds), LONGEST_PAUSE_SECONDS)

    def _pickled(self) -> tuple[dict[tuple[str, str, str], bytes], set[str]]:
        from moto.core.base_backend import BackendDict

        saved, referenced = {}, set()
        for services in list(BackendDict._instances):
            name = services.service_name
            for account_id, region, backend in list(services.iter_backends()):
                if name in self._own_state or _of_other_partition(region, self._region):
                    continue
                pickled = self._pickle(name, backend)
                if pickled is not None:
                    saved[name, account_id, region] = pickled[0]
                    referenced |= pickled[1]
        return saved, referenced

    def _pickle(self, service: str, backend: Any) -> tuple[bytes, set[str]] | None:
        """Return the bytes of one backend and the bodies that it names; None if it refuses to be pickled."""
        try:
            return _again_while_it_changes(lambda: dumped(backend, self._bodies))
        except (TypeError, AttributeError, pickle.PicklingError) as refused:
            if service not in self._refused:
                self._refused.add(service)
                log.warning("The state of %s does not survive a restart: %s", service, refused)
            return None

    def _check(self, header: bytes) -> None:
        try:
            written = json.loads(header)
        except ValueError as damaged:
            raise StateUnreadable(self._unreadable("is damaged (its first line is not JSON)")) from damaged
        here = {"format": FORMAT, "moto": metadata.version("moto")}
        if written != here:
            theirs = f"was written by moto {written.get('moto')}, and this is moto {here['moto']}"
            if written.get("format") != FORMAT:
                theirs = f"has format {written.get('format')}, and this version reads format {FORMAT}"
            raise StateUnreadable(self._unreadable(theirs))

    def _unreadable(self, why: str) -> str:
        return (
            f"The state in {self._path} {why}. Install what wrote it, use another --home, "
            f"or delete {self._path.parent} to begin anew."
        )


def _of_other_partition(kept_under: str, region: str) -> bool:
    """Tell whether a global service's backend is one that moto makes for each partition without need."""
    from moto.utilities.utils import get_partition

    return kept_under.startswith("aws") and kept_under != get_partition(region)


def _again_while_it_changes(pickle_once: Callable[[], tuple[bytes, set[str]]]) -> tuple[bytes, set[str]]:
    """Repeat while a thread that does not hold the gate changes a container under the pickler."""
    for _ in range(5):
        try:
            return pickle_once()
        except RuntimeError:
            time.sleep(0.01)
    return pickle_once()
