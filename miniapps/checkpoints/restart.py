"""Starts from a checkpoint after comparing it with the options of this run and with the trace beside it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.checkpoints.file import FOLDER, Checkpoint, Kind, cut, read
from miniapps.errors import UsageError
from miniapps.trace import TraceError, read_run
from miniapps.trace.heads import fingerprint_of
from miniapps.untrusted.regular import MOST, Refused
from miniapps.untrusted.text import printable

# Bytes of a file that are read for any problem, so that the message can say that a checkpoint is of a larger one.
ANY_PROBLEM = 2**30
SHOWN = 60  # characters of a value in a message


def verify(
    path: str,
    kind: Kind,
    problem: dict[str, Any],
    seed: int,
    last: int,
    remedy: str,
    need: int,
    option: str = "--restart",
    remedies: Mapping[str, str] | None = None,
) -> Checkpoint:
    """Reads the checkpoint `path`, and verifies that it has the same `problem` (options, flat) and `seed`, and a step
    up to `last`.

    `option`: the option with the path; `remedy`: the option that lengthens a run; `need`: bytes of this problem's
    arrays; `remedies`: what to do, by the key that differs. Raises UsageError with option, file and remedy. Does not
    read the trace.
    """
    wanted = problem | {"seed": seed}
    checkpoint = read_option(option, path, kind, max(ANY_PROBLEM, 2 * need))
    keys = tuple(dict.fromkeys((*wanted, *checkpoint.options)))
    require_same(option, path, checkpoint, wanted, keys, remedies)
    if checkpoint.head.step > last:
        raise UsageError(
            f"{option} {printable(path)}: it is of step {checkpoint.head.step}, and this run ends with step {last}; "
            f"raise {remedy}"
        )
    return checkpoint


def compare_with_trace(
    path: str | os.PathLike, checkpoint: Checkpoint, option: str = "--restart"
) -> tuple[bool, str]:
    """Compares the blocks with the fingerprints of the same state in RUN/rank-*.h5, if `path` is in RUN/checkpoints.

    Returns (False for a trace that could not be compared, message for the log). Raises UsageError with step, name and
    block for a contradiction. An unreadable trace is no contradiction, nor is a run with injected faults, which strike
    between the checkpoint and the record.
    """
    where, folder = printable(os.fspath(path)), Path(os.path.realpath(path)).parent
    alone = f"restart from {where}: only its own hashes were checked"
    if folder.name != FOLDER:
        return True, f"{alone}, since it is not in RUN/{FOLDER}, beside the trace of its run"
    run, trouble = printable(str(folder.parent)), ""
    step = checkpoint.head.step + checkpoint.kind.recorded_after
    words: dict[str, np.ndarray] = {}
    compared, differing, faults = 0, [], False
    try:
        for trace in read_run(folder.parent, tables=["fingerprints"]):
            if not words:
                prints = checkpoint.prints(fingerprint_of(trace.attributes))
                words = {n: np.frombuffer(b"".join(p), ">u8").reshape(-1, 2) for n, p in prints.items()}
            faults |= _faults(trace.attributes)
            for order, (name, own) in enumerate(words.items()):
                blocks, theirs = _recorded(trace, checkpoint.head.repeat, step, name)
                compared += len(blocks)
                known = (blocks >= 0) & (blocks < len(own))
                same = known & (own[np.where(known, blocks, 0)] == theirs).all(axis=1)
                differing += [(order, name, block) for block in blocks[~same].tolist()]
    except (TraceError, OSError) as error:
        trouble = printable(str(error))
    if differing and not faults:
        _, name, block = min(differing)
        raise UsageError(
            f"{option} {where}: it contradicts the trace of {run}: step {step}, {name}, block {block} has other bits "
            f"there ({len(differing)} of {compared} fingerprints differ); restart from another checkpoint of that run, "
            f"or copy this one out of RUN/{FOLDER} to continue without the trace"
        )
    if trouble:
        return False, f"{alone}, since the trace beside it cannot be used ({trouble})"
    if differing:
        return False, f"{alone}, since {run} has injected faults, and its trace differs at step {step}"
    if not compared:
        return True, f"{alone}, since the trace of {run} has no fingerprints of step {step}"
    return True, f"restart from {where}: complete, and equal to the trace of {run} ({compared} fingerprints)"


def log_comparison(ctx, path: str, checkpoint: Checkpoint, option: str = "--restart") -> None:
    """Logs the message of `compare_with_trace`."""
    agreed, message = compare_with_trace(path, checkpoint, option)
    (ctx.log.info if agreed else ctx.log.warning)("%s", message)


def read_option(option: str, path: str, kind: Kind, most: int = MOST) -> Checkpoint:
    """Reads the checkpoint `path` of an `option`. Raises UsageError with option, file and remedy."""
    try:
        return read(path, kind, most)
    except Refused as error:
        raise UsageError(f"{option} {error}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{option} {printable(path)}: it cannot be read: {why}; give one of RUN/{FOLDER}/*.h5"
        ) from error


def require_same(
    option: str,
    path: str,
    checkpoint: Checkpoint,
    wanted: dict[str, Any],
    keys: tuple[str, ...],
    remedies: Mapping[str, str] | None = None,
) -> None:
    """Raise UsageError unless the options `keys` (or `seed`) of the checkpoint have the `wanted` values. The message
    ends with the first remedy of a key that differs."""
    stored = checkpoint.options | {"seed": checkpoint.head.seed}
    differing = [key for key in keys if key not in stored or key not in wanted or stored[key] != wanted[key]]
    if differing:
        texts = [
            f"{key} = {_shown(stored.get(key, 'unknown'))} there, {_shown(wanted.get(key, 'unknown'))} here"
            for key in differing
        ]
        known = remedies or {}
        remedy = next(
            (known[key] for key in differing if key in known), "start with the same deck and options"
        )
        raise UsageError(
            f"{option} {printable(path)}: it is of another problem: {'; '.join(texts)}; {remedy}"
        )


def _recorded(trace, repeat: int, step: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(blocks (n,), words uint64 (n, 2)) of the fingerprints `name` in the trace of one rank."""
    rows = trace.tables["fingerprints"]
    number = trace.names.index(name) if name in trace.names else -1
    here = (rows["repeat"] == repeat) & (rows["step"] == step) & (rows["name"] == number)
    return rows["block"][here], np.stack([rows["hi"][here], rows["lo"][here]], axis=1)


def _faults(attributes: dict[str, Any]) -> bool:
    """Whether the run of a trace injected faults, which strike after a checkpoint and before a record."""
    try:
        return bool(attributes["config"]["run"]["fault"])
    except (KeyError, TypeError):
        return False


def _shown(value: Any) -> str:
    return cut(str(value), SHOWN)
