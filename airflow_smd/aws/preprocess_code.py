"""What a preprocessing container runs: our modules as one zip that Python starts, the user's as another."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from airflow_smd.aws.source import LEFT_OUT
from airflow_smd.domain.preprocess import CODE_NAME, USER_CODE_NAME

_CONTAINER = Path(__file__).parents[1] / "container"
_MODULES = ("__init__", "images", "mapping", "preprocess", "samples", "sharding", "transforms")
_MAIN = """\
import sys
from pathlib import Path

from airflow_smd.container.preprocess import run_in_container

if __name__ == "__main__":
    sys.exit(run_in_container(Path(sys.argv[0]).absolute().parent))
"""


def code_files(code_dir: Path | None) -> dict[str, bytes]:
    """Return the files of the code prefix by name; the same code gives the same bytes."""
    ours = {f"airflow_smd/container/{name}.py": (_CONTAINER / f"{name}.py").read_bytes() for name in _MODULES}
    files = {CODE_NAME: _zipped({"__main__.py": _MAIN.encode(), "airflow_smd/__init__.py": b"", **ours})}
    if code_dir is not None:
        files[USER_CODE_NAME] = _zipped(
            {
                path.relative_to(code_dir).as_posix(): path.read_bytes()
                for path in code_dir.rglob("*")
                if path.is_file() and not set(LEFT_OUT) & set(path.relative_to(code_dir).parts)
            }
        )
    return files


def user_code_digest(files: Mapping[str, bytes]) -> str:
    """Return what tells one version of the user's code from another; empty without any."""
    code = files.get(USER_CODE_NAME)
    return hashlib.sha256(code).hexdigest() if code is not None else ""


def digest(files: Mapping[str, bytes]) -> str:
    """Return a name for these files, made of their content."""
    total = hashlib.sha256()
    for name, content in sorted(files.items()):
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()[:32]


def _zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    # stored, since a deflate of another zlib gives other bytes and so another name
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            member = zipfile.ZipInfo(name)
            member.external_attr = 0o644 << 16
            archive.writestr(member, content)
    return packed.getvalue()
