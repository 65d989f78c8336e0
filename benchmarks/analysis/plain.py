"""The baseline of a first load: reads every dataset and attribute of every file by h5py, as its manual shows.

A separate module, because new processes do not import the functions of a `__main__`.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import h5py

PROCESSES = len(os.sched_getaffinity(0))


def plain(campaign: Path) -> dict:
    """Seconds and bytes of reading all files of a campaign, with one process per core."""
    files = sorted(campaign.glob("*/rank-*.h5"))
    begin = time.perf_counter()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        total = sum(pool.map(_read, files, chunksize=32))
    return {"s": time.perf_counter() - begin, "bytes": total}


def _read(path: Path) -> int:
    with h5py.File(path, "r") as file:
        total = len(dict(file.attrs)) + len(file["names/text"][:]) + len(file["committed"][:])
        for table in ("events", "values", "fingerprints", "order"):
            for dataset in file[table].values():
                total += dataset[:].nbytes
    return total
