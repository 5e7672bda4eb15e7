"""The manifest of a run: its schema in a file, with the store's format and a checksum."""

import hashlib
import json
from pathlib import Path
from typing import Any

from nrjax.study import files
from nrjax.study.files import MANIFEST, RESULTS, DamagedError

FORMAT = 6
"""The version of the store's format. It is increased when older stores could be misread."""


def manifest_bytes(schema: dict[str, Any]) -> bytes:
    """Return the content of `manifest.json` for a schema."""
    content = {"nrjax_store": FORMAT, "sha256": checksum_of(schema), "layout": schema}
    return json.dumps(content, indent=1).encode()


def checksum_of(schema: Any) -> str:
    """Return the checksum of a schema."""
    return hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()


def read_schema(folder: Path) -> dict[str, Any]:
    """Return the schema in the manifest of a folder. Errors are as for `Store.open`."""
    path, manifest = folder / RESULTS / MANIFEST, files.read_manifest(folder / RESULTS)
    if "nrjax_store" not in manifest:
        raise ValueError(
            f"{path} is missing, broken or not written by nrjax: restore it from a copy, or choose "
            "another folder; nothing was changed"
        )
    if manifest["nrjax_store"] != FORMAT:
        raise ValueError(
            f"{path.parent} has store format {manifest['nrjax_store']!r}; this version of nrjax "
            f"reads format {FORMAT}: use the version that wrote it, or run the study again in "
            "another folder"
        )
    schema = manifest.get("layout", {})
    if manifest.get("sha256") != checksum_of(schema):
        raise DamagedError(
            f"{path} is broken: its checksum does not match; restore it from a copy, or run the "
            "study again in another folder"
        )
    return schema
