"""Write anew the snapshot of the installed SageMaker SDK's image data (needs a Python that it is for)."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_smd.aws.containers import installed_catalogue, snapshot_catalogue

SNAPSHOT = Path(__file__).parents[1] / "airflow_smd" / "domain" / "tables" / "training_images.json"

catalogue = installed_catalogue()
if catalogue.source == snapshot_catalogue().source:
    sys.exit("There is no SageMaker SDK beside this project: use Python 3.11.")
sets: list[Any] = []


def named(value: Any) -> Any:
    """Return the value with each set of registries replaced by its name, as many images share one."""
    if not isinstance(value, dict):
        return value
    for key, inner in value.items():
        if key == "registries" and inner not in sets:
            sets.append(dict(sorted(inner.items())))
    return {
        key: f"r{sets.index(inner) + 1}" if key == "registries" else named(inner)
        for key, inner in value.items()
    }


def lines(value: Any, path: tuple[str, ...]) -> str:
    """Return JSON with a line for each set of registries and each version of an image."""
    match path:
        case ("registries",) | ("images",) | ("images", _) | ("images", _, "versions"):
            pass
        case _:
            return json.dumps(value)
    pad = " " * (len(path) + 1)
    entries = (f"{pad}{json.dumps(key)}: {lines(inner, (*path, key))}" for key, inner in value.items())
    return "{\n" + ",\n".join(entries) + f"\n{pad[1:]}}}"


images = named(dict(catalogue.images))
table = {
    "source": f"{catalogue.source}, image_uri_config",
    "date": datetime.now(UTC).date().isoformat(),
    "registries": {f"r{number}": registries for number, registries in enumerate(sets, 1)},
    "debugger_registries": dict(sorted(catalogue.debugger_registries.items())),
    "images": images,
}
rows = (f" {json.dumps(key)}: {lines(value, (key,))}" for key, value in table.items())
SNAPSHOT.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
