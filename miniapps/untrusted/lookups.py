"""The lookups of tables of embeddings, which a run recorded."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[float, Meta(ge=0, le=1e15)]


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """The lookups in a table of `rows` x `columns` in a step of `samples` samples: `lookups` rows in total.

    `classes`: (rows, share of the lookups); `shares`: the share of the lookups of each block of rows."""

    name: Annotated[str, Meta(max_length=256)]
    rows: Annotated[int, Meta(ge=1, le=2**31)]
    columns: Annotated[int, Meta(ge=1, le=2**16)]
    samples: Count
    lookups: Count
    classes: Annotated[
        list[tuple[Annotated[float, Meta(gt=0, le=1e12)], Share]], Meta(min_length=1, max_length=64)
    ]
    shares: Annotated[list[Share], Meta(min_length=1, max_length=2**16)]
