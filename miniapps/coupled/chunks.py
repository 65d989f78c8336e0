"""Element-wise work on many blocks, a few blocks at a time, so that temporaries stay in the cache.

The arithmetic of a block uses no other block, so the bits do not depend on the chunks.
"""

import numpy as np

CHUNK_POINTS = 25_000  # of one field; some ten temporaries of 8 bytes fit a second-level cache of 1-2 MB


def by_chunks(compute, fields, xp=np):
    """compute(*fields) for fields `(blocks, ...)` (or None), in chunks of blocks; a tuple of joined results.

    `compute` returns a tuple of arrays with one row per block. A device processes all blocks at once, because kernel
    launches cost more than temporaries.
    """
    blocks, points = len(fields[0]), fields[0][0].size
    width = blocks if xp is not np else max(1, CHUNK_POINTS // points)
    if width >= blocks:
        return compute(*fields)
    parts = [
        compute(*(None if field is None else field[start : start + width] for field in fields))
        for start in range(0, blocks, width)
    ]
    return tuple(np.concatenate(results) for results in zip(*parts, strict=True))
