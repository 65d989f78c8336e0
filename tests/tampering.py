"""Traces changed by someone who knows the format: all hashes fit again, so that only checks of contents can object."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import h5py

from miniapps.trace.commits import Commit, attributes_digest, parse, table_digest
from miniapps.trace.schema import GROWING
from miniapps.untrusted.contents import attributes
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.sealed import header, seal

MOST = 10**6  # rows that are hashed
UNREADABLE = (KeyError, TypeError, OSError, ValueError, RuntimeError, AttributeError, MemoryError, Refused)


def altered(path: Path, change: Callable[[h5py.File], None] = lambda file: None, closed: bool = True) -> Path:
    """Let `change` do what it wants to the open trace file `path`, then make its hashes fit; `closed`: seal it."""
    with h5py.File(path, "r+") as file:
        change(file)
    commit_again(path)
    if closed:
        reseal(path)
    else:
        leave_open(path)
    return path


def commit_again(path: Path) -> None:
    """Make the record of what is committed fit the tables, which are taken as they are, without tails."""
    with h5py.File(path, "r+") as file:
        if "committed" not in file:  # the file of a node has none
            return
        known = parse(file["committed"][...])
        changes, rows, digests = known.attributes, {}, dict(known.digests)
        with contextlib.suppress(*UNREADABLE):
            changes = (attributes_digest(attributes(file.id, "test")),) * 2
        for table, columns in GROWING.items():
            rows[table] = 0
            with contextlib.suppress(*UNREADABLE):
                datasets = {column: file[table][column] for column in columns}
                rows[table] = len(datasets.get("repeat", next(iter(datasets.values()))))
                if rows[table] < MOST:
                    arrays = {column: dataset[...] for column, dataset in datasets.items()}
                    digests[table] = table_digest(table, arrays)
        commit = Commit(rows, dict.fromkeys(GROWING, 0), digests, changes, rows, known.at)
        file["committed"][...] = commit.record()


def reseal(path: Path) -> None:
    """Make the seal fit the bytes."""
    with open(path, "r+b") as file:
        seal(file)


def leave_open(path: Path) -> None:
    """Say that the file was never finished."""
    with open(path, "r+b") as file:
        file.write(header())
