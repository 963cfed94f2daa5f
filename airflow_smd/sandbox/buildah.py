"""Real builds by buildah, its storage inside the sandbox's home."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from airflow_smd.sandbox.oci_store import BuildError

HOST_BASE = "localhost/airflow-smd-host:3"
BASE_PACKAGES = ("apt", "ca-certificates", "python3", "python3-pip", "python3-venv")
"""Beside Debian's essential ones; those that are not installed are left out."""
_BASE = """\
FROM scratch
ADD base.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PIP_BREAK_SYSTEM_PACKAGES=1
RUN [ -e /usr/bin/python ] || ln -s python3 /usr/bin/python
CMD ["/bin/sh"]
"""
"""As in AWS's images, `python` and `pip` work and may install into the image."""
_MADE_BY_NO_PACKAGE = (
    *("bin", "sbin", "lib", "lib64", "tmp", "var/tmp", "proc", "sys", "dev", "run", "root", "home", "opt"),
    *("srv", "mnt", "media", "usr/local", "usr/local/bin", "usr/local/sbin", "usr/local/lib"),
    *("usr/local/share", "etc/passwd", "etc/group", "etc/shadow"),
)
"""Links, directories and files that Debian's packages or installer make when they are set up."""
_DPKG = Path("/var/lib/dpkg")


@cache
def works() -> bool:
    """Tell whether buildah is installed and this user may build with it."""
    return bool(shutil.which("buildah") and shutil.which("unshare")) and os.geteuid() == 0


class Buildah:
    """One store of images.

    Args:
        directory: where it lies.
        endpoint_url: where the registry answers.
    """

    def __init__(self, directory: Path, endpoint_url: str) -> None:
        self._directory = directory
        self.address = endpoint_url.partition("://")[2]

    def build(self, file: Path, context: Path, tags: Sequence[str], build_args: Mapping[str, str]) -> None:
        """Build a Dockerfile, layers cached; BuildError with the exit code."""
        arguments = [f"--build-arg={name}={value}" for name, value in build_args.items()]
        names = [f"--tag={tag}" for tag in tags]
        self._run(
            "bud", "--layers", "--force-rm", "--format=docker", "--isolation=chroot", "--tls-verify=false",
            f"--file={file}", *names, *arguments, str(context),
        )  # fmt: skip

    def tag(self, source: str, target: str) -> None:
        """Give an image one more name."""
        self._run("tag", source, target)

    def push(self, image: str, name: str, tag: str) -> str:
        """Push an image to the sandbox's registry and return its digest."""
        with tempfile.TemporaryDirectory() as scratch:
            digest = Path(scratch) / "digest"
            self._run(
                "push", "--quiet", "--tls-verify=false", f"--digestfile={digest}",
                image, f"docker://{self.address}/{name}:{tag}",
            )  # fmt: skip
            return digest.read_text().strip()

    def host_base(self) -> str:
        """Return a small Debian image made from this machine's own packages, made the first time."""
        if self._code("inspect", "--type=image", HOST_BASE):
            with tempfile.TemporaryDirectory(dir=self._directory) as scratch:
                root = Path(scratch)
                archive = _pack_packages(root)
                file = root / "Dockerfile"
                file.write_text(_BASE)
                archive.rename(root / "base.tar")
                self.build(file, root, [HOST_BASE], {})
        return HOST_BASE

    def _command(self, *words: str) -> list[str]:
        self._directory.mkdir(parents=True, exist_ok=True)
        places = [f"--root={self._directory / 'root'}", f"--runroot={self._directory / 'run'}"]
        # mounts of a namespace of its own end with the command, also when that is killed
        return ["unshare", "--mount", "buildah", *places, "--storage-driver=overlay", *words]

    def _code(self, *words: str) -> int:
        return subprocess.run(self._command(*words), check=False, capture_output=True).returncode

    def _run(self, *words: str) -> None:
        if not works():
            raise BuildError("buildah is not usable here: install it (apt install buildah) and run as root")
        code = subprocess.run(self._command(*words), check=False).returncode
        if code:
            raise BuildError(f"buildah {words[0]} ended with exit code {code}")


def _pack_packages(directory: Path) -> Path:
    """Write the files of the base's packages into a tar; BuildError on a machine that is not Debian."""
    if not (_DPKG / "status").is_file():
        raise BuildError("A base for buildah is made from Debian packages, and this machine has none")
    paragraphs = {}
    for text in (_DPKG / "status").read_text().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Status", "").endswith(" installed"):
            paragraphs[fields["Package"]] = (fields, text)
    wanted = _closure({name: fields for name, (fields, _) in paragraphs.items()})
    listed = directory / "files"
    listed.write_text("\n".join(sorted(_paths(wanted, paragraphs))))
    (directory / "dpkg").mkdir()
    (directory / "dpkg" / "status").write_text(
        "\n\n".join(paragraphs[name][1] for name in sorted(wanted)) + "\n"
    )
    archive = directory / "packages.tar"
    with listed.open() as names:
        tar = [
            "tar",
            "-C",
            "/",
            "--no-recursion",
            "--ignore-failed-read",
            "--files-from=-",
            "-cf",
            str(archive),
        ]
        subprocess.run(tar, stdin=names, check=True, stderr=subprocess.DEVNULL)
    subprocess.run(
        [
            "tar",
            "-C",
            str(directory),
            "--append",
            "--transform=s,^dpkg,var/lib/dpkg,",
            "-f",
            str(archive),
            "dpkg",
        ],
        check=True,
    )
    return archive


def _closure(installed: Mapping[str, Mapping[str, str]]) -> set[str]:
    wanted: set[str] = set()
    waiting = [name for name, fields in installed.items() if fields.get("Essential") == "yes"]
    waiting += [name for name in BASE_PACKAGES if name in installed]
    provided = {
        item.split("(")[0].strip(): name
        for name, fields in installed.items()
        for item in fields.get("Provides", "").split(",")
        if item.strip()
    }
    while waiting:
        name = waiting.pop()
        if name in wanted:
            continue
        wanted.add(name)
        needs = ",".join(installed[name].get(field, "") for field in ("Depends", "Pre-Depends"))
        for alternatives in needs.split(","):
            names = [item.split("(")[0].split(":")[0].strip() for item in alternatives.split("|")]
            found = [item if item in installed else provided.get(item, "") for item in names]
            waiting += [item for item in found if item][:1]
    return wanted


def _paths(wanted: set[str], paragraphs: Mapping[str, tuple[Mapping[str, str], str]]) -> set[str]:
    """Return the packages' files, with links among the directories above them followed (merged /usr)."""
    listed = set(_MADE_BY_NO_PACKAGE)
    for name in wanted:
        for suffix in ("", f":{paragraphs[name][0].get('Architecture', '')}"):
            files = _DPKG / "info" / f"{name}{suffix}.list"
            if files.is_file():
                listed |= {_real(line) for line in files.read_text().splitlines() if _kept(line)}
                listed.add(_real(str(files)))
    for folder in ("etc/alternatives", "etc/ssl/certs", "etc/apt", "etc/pam.d"):
        listed |= {str(path).lstrip("/") for path in Path("/", folder).rglob("*")}
    return {path for path in listed if os.path.lexists(f"/{path}")}


def _kept(path: str) -> bool:
    return path not in ("/.", "") and not path.startswith(("/usr/share/doc", "/usr/share/man"))


def _real(path: str) -> str:
    return str(Path(path).parent.resolve() / Path(path).name).lstrip("/")
