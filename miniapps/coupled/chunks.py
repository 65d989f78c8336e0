"""Element-wise work on many blocks, a few blocks at a time, so that temporaries stay in the cache.

The arithmetic of a block uses no other block, so the bits do not depend on the chunks.
"""

import numpy as np

CHUNK_POINTS = 25_000  # of one field; some ten temporaries of 8 bytes fit a second-level cache of 1-2 MB


def slices(blocks: int, points: int) -> list[slice]:
    """Consecutive chunks of `blocks` blocks with fields of `points` points."""
    width = max(1, CHUNK_POINTS // points)
    return [slice(start, min(start + width, blocks)) for start in range(0, blocks, width)]


def by_chunks(compute, fields, xp=np):
    """compute(*fields) for fields `(blocks, ...)` (or None), in chunks of blocks; a tuple of joined results.

    `compute` returns a tuple of arrays with one row per block. A device processes all blocks at once, because kernel
    launches cost more than temporaries.
    """
    chunks = slices(len(fields[0]), fields[0][0].size)
    if xp is not np or len(chunks) < 2:
        return compute(*fields)
    parts = [compute(*(None if field is None else field[some] for field in fields)) for some in chunks]
    return tuple(np.concatenate(results) for results in zip(*parts, strict=True))
