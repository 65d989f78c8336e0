"""Facts that each rank of a run states beside its rows: its node, regions, partners and messages.

The cache of the run keeps them, so that no command opens its traces again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from miniapps.trace import TraceError
from miniapps.untrusted import Refused, read_bytes
from miniapps.untrusted.text import printable

KEPT = ("rank", "node", "regions", "messages", "partners")
MOST = 2**30  # bytes of the file


@dataclass(frozen=True)
class Stated:
    """The stated facts of all ranks: the `text` that `packed` returned, or the file `path` that holds it."""

    text: bytes | None = None
    path: Path = Path()

    def ranks(self) -> list[dict[str, Any]]:
        """The facts KEPT of each rank, by rank; equal values are shared. Raises TraceError if they cannot be read."""
        try:
            text = read_bytes(self.path, MOST) if self.text is None else self.text
        except (OSError, Refused) as error:
            raise TraceError(
                f"{printable(str(self.path))}: cannot be read any more ({error}): the traces of this run changed, or "
                "its cache was removed; run the command again"
            ) from error
        known = json.loads(text)
        columns = {key: [known[key]["values"][i] for i in known[key]["of"]] for key in KEPT}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def partners_of(ranks: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, list[int]]]:
    """{region: {rank: ranks with which it exchanges data there}}, as `ranks` state them; no regions that wait for all
    ranks."""
    by_region: dict[str, dict[int, list[int]]] = {}
    for own in ranks:
        for name, others in own["partners"].items():
            by_region.setdefault(name, {})[own["rank"]] = others
    return by_region


def packed(attributes: Iterable[Mapping[str, Any]]) -> bytes:
    """The facts KEPT from the attributes of all ranks as JSON, each distinct value once."""
    ranks = sorted(attributes, key=lambda own: own["rank"])
    rows = [
        {key: own.get(key, {}) for key in KEPT} | {"node": (own.get("environment") or {}).get("node", "")}
        for own in ranks
    ]
    columns = {}
    for key in KEPT:
        values: dict[str, int] = {}
        of = [values.setdefault(json.dumps(row[key], sort_keys=True), len(values)) for row in rows]
        columns[key] = {"values": [json.loads(text) for text in values], "of": of}
    return json.dumps(columns).encode()
