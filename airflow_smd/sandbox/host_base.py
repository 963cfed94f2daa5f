"""The root of this machine as the base of an image, with a Python and a pip as AWS's images have them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from airflow_smd.sandbox.oci_store import Base, Store

_PREFIX = "/opt/airflow-smd/python"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PIP = """\
#!{python}
import glob, runpy, sys
from importlib.util import find_spec
if not find_spec("pip"):  # an environment made without pip still has the one that Python brings along
    sys.path[:0] = glob.glob(sys.base_prefix + "/lib/python3*/ensurepip/_bundled/pip-*.whl")
if not find_spec("pip"):
    sys.exit("pip: this machine's Python has none; install python3-pip and python3-venv")
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def host_base(reference: str, store: Store, programs: Path, python: Path) -> Base:
    """Return the base that stands for `reference`.

    Args:
        reference: the image that cannot be pulled; a note in the only layer names it.
        store: where the layer is kept.
        programs: directory for a `pip` of our own, needed where `python` has none beside it.
        python: the Python that stands for the one in every image.
    """
    if not (python.parent / "pip").exists():
        programs.mkdir(parents=True, exist_ok=True)
        for name in ("pip", "pip3"):
            (programs / name).write_text(_PIP.format(python=python))
            (programs / name).chmod(0o755)
    with tempfile.TemporaryDirectory(dir=store.blobs.parent) as scratch:
        note = Path(scratch) / "layer" / "opt" / "airflow-smd" / "base.txt"
        note.parent.mkdir(parents=True)
        note.write_text(f"This machine's own root, standing for {reference}\n")
        for made in (note, *note.parents[:3]):
            os.utime(made, (0, 0))
        layer = store.keep(f"host-{reference.replace('/', '-')}", note.parents[2])
    return Base(layers=(layer,), on_host=True, environment=_environment(programs, python))


def _environment(programs: Path, python: Path) -> dict[str, str]:
    """Let `pip install` add to the image beside this machine's Python, whose own place a host may hide."""
    version = "import sys; print('python%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", version], capture_output=True, text=True, check=True)
    sites = ("lib/{}/site-packages", "local/lib/{}/dist-packages")  # Debian's Python takes the second
    return {
        "PATH": f"{_PREFIX}/bin:{_PREFIX}/local/bin:{programs}:{python.parent}:{_SYSTEM_PATH}",
        "PIP_PREFIX": _PREFIX,
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
        "PYTHONPATH": ":".join(f"{_PREFIX}/{site.format(done.stdout.strip())}" for site in sites),
        "LANG": "C.UTF-8",
    }
