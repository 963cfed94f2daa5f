"""From one input file to samples.

Runs in the container: standard library at import, Python 3.9; Pillow is imported by `images` when it starts.
A transform yields samples and, in their place, `Bad` for what it could not make; it raises for nothing that
an input can cause.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import math
import sys
import tarfile
import traceback
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .images import Images
from .samples import Bad, Labels, Sample, encode, extension_of, key_of, npy_bytes

_DTYPES = {"float32": "f", "uint8": "B", "int32": "i", "int64": "q", "float64": "d"}
_LONGEST_FIELD = 2**31 - 1
csv.field_size_limit(_LONGEST_FIELD)


class Tabular:
    """CSV rows to `.npy` features and a `.cls` label; the key is `<file>-<row number>`.

    Args:
        label_column: a number (negative from the end), a name of the header, or None.
        header: whether the first row of each file holds names.
        dtype: of the features: float32, float64, uint8, int32, int64.
        delimiter: between fields.
        classes: names whose positions are the labels; without them, labels are integers from 0.
    """

    def __init__(
        self,
        *,
        label_column: int | str | None = -1,
        header: bool = False,
        dtype: str = "float32",
        delimiter: str = ",",
        classes: Sequence[str] | None = None,
    ) -> None:
        self.label_column, self.header, self.dtype, self.delimiter = label_column, header, dtype, delimiter
        self.classes = {name: number for number, name in enumerate(classes)} if classes else {}
        self.schema: dict[str, Any] = {}
        self.seen: dict[str, int] = {}
        self.treated: Counter[str] = Counter()

    def __call__(self, path: Path, name: str) -> Iterator[Sample | Bad]:
        """Yield one sample, or what is wrong with it, for each row that is not blank."""
        try:
            read = gzip.open if name.endswith(".gz") else open
            with read(path, "rt", encoding="utf-8-sig", newline="") as text:
                yield from self._rows(csv.reader(text, delimiter=self.delimiter), name)
        except UnicodeDecodeError as error:
            yield Bad(name, "not-utf8", f"{error.reason} at byte {error.start} of a block; save it as UTF-8")
        except (OSError, EOFError, csv.Error, zlib.error) as error:
            yield Bad(name, "unreadable-file", str(error))

    def _rows(self, rows: Iterator[list[str]], name: str) -> Iterator[Sample | Bad]:
        stem = key_of(name)
        columns, label, number = 0, None, 0
        for number, row in enumerate(rows, 1):
            if not row:
                continue
            if not columns:
                columns = len(row)
                problem = self._open(row, name)
                if problem:
                    yield problem
                    return
                label = self._position
                if self.header:
                    continue
            where = f"{name} row {number}"
            if len(row) != columns:
                yield Bad(where, "columns", f"{len(row)} columns where the first row has {columns}")
                continue
            yield self._sample(row, label, where, f"{stem}-{number}")
        if not columns:
            yield Bad(name, "empty-file", "no row in it")

    def _open(self, first: list[str], name: str) -> Bad | None:
        """Find the label's column and the schema from a file's first row."""
        position = self.label_column
        if isinstance(position, str):
            if not self.header or position not in first:
                return Bad(name, "no-label", f"column {position!r} is not in the header: {first[:20]}")
            position = first.index(position)
        if position is not None and not -len(first) <= position < len(first):
            return Bad(name, "no-label", f"there is no column {position}: the first row has {len(first)}")
        self._position = None if position is None else position % len(first)
        features = len(first) - (position is not None)
        schema = {"features": features, "dtype": self.dtype}
        if self.schema and self.schema != schema:
            return Bad(
                name, "schema", f"{features} features where other files have {self.schema['features']}"
            )
        self.schema = schema
        return None

    def _sample(self, row: list[str], label: int | None, where: str, key: str) -> Sample | Bad:
        sample: Sample = {"__key__": key}
        if label is not None:
            text = row.pop(label).strip()
            number = self.classes.get(text, -1) if self.classes else _whole(text)
            if number is None or number < 0:
                allowed = f"one of {list(self.classes)[:20]}" if self.classes else "a whole number from 0"
                return Bad(where, "label", f"label {text!r} is not {allowed}; name text labels in `classes`")
            self.seen[text] = number
            sample["cls"] = number
        code = _DTYPES[self.dtype]
        try:
            values = _floats(code, row) if code in "fd" else _integers(code, row)
        except (ValueError, OverflowError) as error:
            hint = " (set header=true if it holds names)" if where.endswith(" row 1") else ""
            return Bad(where, "not-a-number", f"{error}; wanted {self.dtype}{hint}")
        if code in "fd" and not all(map(math.isfinite, values)):
            return Bad(where, "not-finite", "NaN, infinity or too large a number among the features")
        if sys.byteorder == "big":
            values.byteswap()
        sample["npy"] = npy_bytes(code, (len(values),), values.tobytes())
        return sample


def _floats(code: str, row: list[str]) -> array[Any]:
    return array(code, map(float, row))


def _integers(code: str, row: list[str]) -> array[Any]:
    try:
        return array(code, map(int, row))
    except ValueError:
        # `3.0` and the like: slower, and it says what is wrong
        return array(code, map(_integer, row))


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise ValueError(f"{text!r} is not a whole number") from None
        return int(number)


def _whole(text: str) -> int | None:
    try:
        return _integer(text)
    except (ValueError, OverflowError):
        return None


class Copy:
    """Files as they are, one sample each; the members of `.tar` files are samples already.

    Args:
        class_from: `directory`: a file's parent directory is its class; `none`.
        keys: for tar files: `keep`, or `prefix` where several use the same keys.
        classes: every class, in the order of their numbers.
    """

    def __init__(
        self, *, class_from: str = "directory", keys: str = "keep", classes: Sequence[str] | None = None
    ) -> None:
        self.keys = keys
        self.label = Labels(class_from, classes)
        self.schema: dict[str, Any] = {}
        self.seen = self.label.seen
        self.treated: Counter[str] = Counter()

    def __call__(self, path: Path, name: str) -> Iterator[Sample | Bad]:
        """Yield the file, or each sample of the tar."""
        try:
            if extension_of(name) == "tar":
                yield from self._members(path, name)
            elif path.stat().st_size == 0:
                yield Bad(name, "empty-file", "0 bytes")
            else:
                sample = {"__key__": key_of(name), extension_of(name): path.read_bytes()}
                yield self.label.put(sample, name)
        except (OSError, tarfile.TarError, EOFError) as error:
            yield Bad(name, "unreadable-file", str(error) or type(error).__name__)

    def _members(self, path: Path, name: str) -> Iterator[Sample]:
        prefix = f"{key_of(name)}/" if self.keys == "prefix" else ""
        sample: Sample = {}
        with tarfile.open(path) as archive:
            for member in archive:
                if not member.isfile():
                    continue
                folder, slash, base = member.name.rpartition("/")
                stem, _, extension = base.partition(".")
                key = f"{prefix}{folder}{slash}{stem}"
                if sample and sample["__key__"] != key:
                    yield sample
                    sample = {}
                content = archive.extractfile(member)
                assert content is not None  # noqa: S101  # a regular file has content
                sample["__key__"] = key
                sample[extension or "bin"] = content.read()
        if sample:
            yield sample


class Function:
    """The user's own `module:function`: a sample in, an iterable of samples out.

    The sample that goes in has `__key__`, `__path__` (the file), its bytes under its extension if `load`, and
    `cls` if classes come from directories. A sample that comes out without `__key__` gets `<key>-<number>`.

    Args:
        function: `module:function`, importable in the container.
        arguments: keyword arguments for it.
        load: whether the file's bytes are read for it.
        class_from: as for `copy`.
        classes: as for `copy`.
    """

    def __init__(
        self,
        *,
        function: str,
        arguments: dict[str, Any] | None = None,
        load: bool = True,
        class_from: str = "directory",
        classes: Sequence[str] | None = None,
    ) -> None:
        module, _, attribute = function.partition(":")
        self._function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        self._arguments = arguments or {}
        self._load = load
        self._copy = Copy(class_from=class_from, classes=classes)
        self.schema: dict[str, Any] = {}
        self.seen = self._copy.seen
        self.treated: Counter[str] = Counter()

    def __call__(self, path: Path, name: str) -> Iterator[Sample | Bad]:
        """Yield what the function gives for the file, or for each sample of a tar."""
        if self._load or extension_of(name) == "tar":
            inputs = self._copy(path, name)
        else:
            inputs = iter([self._copy.label.put({"__key__": key_of(name)}, name)])
        for sample in inputs:
            if isinstance(sample, Bad):
                yield sample
            else:
                yield from self._apply({**sample, "__path__": str(path)}, name)

    def _apply(self, sample: Sample, name: str) -> Iterator[Sample | Bad]:
        key = sample["__key__"]
        try:
            for number, made in enumerate(self._function(sample, **self._arguments)):
                contents = {k: encode(k, value) for k, value in made.items() if not k.startswith("__")}
                yield {"__key__": made.get("__key__", f"{key}-{number}"), **contents}
        except Exception as error:  # the user's code: anything
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({Path(last.filename).name} line {last.lineno})"
            yield Bad(f"{name} sample {key}", "transform-error", text)


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "tabular": Tabular,
    "copy": Copy,
    "images": Images,
    "function": Function,
}
"""The built-in transforms by their kind."""
