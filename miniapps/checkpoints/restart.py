"""Starting from a checkpoint: it is verified against the options of this run, and against the trace beside it."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.checkpoints.file import FOLDER, Checkpoint, Kind, cut, read
from miniapps.errors import UsageError
from miniapps.trace import TraceError, read_run
from miniapps.trace.heads import fingerprint_of
from miniapps.untrusted.regular import MOST, Refused
from miniapps.untrusted.text import printable

# Bytes of a file that are read whatever the problem: so that a checkpoint of a larger one is refused as such.
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
) -> Checkpoint:
    """The checkpoint `path` of the same `problem` (its options, flat) and `seed`, at a step up to `last`.

    `option` names the path, `remedy` is that by which a run gets longer; `need`: bytes of the arrays of this problem.
    Raises UsageError naming option, file and remedy; the trace is not looked at.
    """
    wanted = problem | {"seed": seed}
    checkpoint = read_option(option, path, kind, max(ANY_PROBLEM, 2 * need))
    require_same(option, path, checkpoint, wanted, tuple(dict.fromkeys((*wanted, *checkpoint.options))))
    if checkpoint.head.step > last:
        raise UsageError(
            f"{option} {printable(path)}: of step {checkpoint.head.step}, and this run ends with step {last}; raise "
            f"{remedy}"
        )
    return checkpoint


def compare_with_trace(
    path: str | os.PathLike, checkpoint: Checkpoint, option: str = "--restart"
) -> tuple[bool, str]:
    """Compare the blocks with the fingerprints that RUN/rank-*.h5 hold of the same state, if `path` is in
    RUN/checkpoints: (whether some were compared or there is no such trace, what the log should say).

    Raises UsageError, naming step, name and block, where they contradict. A trace that cannot be read, or whose run
    injected faults between the checkpoint and the record, contradicts nothing.
    """
    where, folder = printable(os.fspath(path)), Path(os.path.realpath(path)).parent
    alone = f"restart from {where}: only its own hashes were checked"
    if folder.name != FOLDER:
        return True, f"{alone}, for it is not in RUN/{FOLDER}, beside the trace of its run"
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
        return False, f"{alone}, for the trace beside it cannot be used ({trouble})"
    if differing:
        return False, f"{alone}, for faults were injected into {run}, and its trace differs at step {step}"
    if not compared:
        return True, f"{alone}, for the trace of {run} has no fingerprints of step {step}"
    return True, f"restart from {where}: whole, and as the trace of {run} has it ({compared} fingerprints)"


def log_comparison(ctx, path: str, checkpoint: Checkpoint, option: str = "--restart") -> None:
    """`compare_with_trace`, with what it says in the log."""
    agreed, message = compare_with_trace(path, checkpoint, option)
    (ctx.log.info if agreed else ctx.log.warning)("%s", message)


def read_option(option: str, path: str, kind: Kind, most: int = MOST) -> Checkpoint:
    """The checkpoint that an `option` names; raises UsageError naming option, file and remedy."""
    try:
        return read(path, kind, most)
    except Refused as error:
        raise UsageError(f"{option} {error}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{option} {printable(path)}: cannot read it: {why}; give one of RUN/{FOLDER}/*.h5"
        ) from error


def require_same(
    option: str, path: str, checkpoint: Checkpoint, wanted: dict[str, Any], keys: tuple[str, ...]
) -> None:
    """Raise UsageError unless the options `keys` (or `seed`) of the checkpoint are those `wanted`."""
    stored = checkpoint.options | {"seed": checkpoint.head.seed}
    differing = [
        f"{key} = {_shown(stored.get(key, 'unknown'))} there, {_shown(wanted.get(key, 'unknown'))} here"
        for key in keys
        if key not in stored or key not in wanted or stored[key] != wanted[key]
    ]
    if differing:
        raise UsageError(
            f"{option} {printable(path)}: of another problem: {'; '.join(differing)}; start with the same deck and "
            "options"
        )


def _recorded(trace, repeat: int, step: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(blocks (n,), words uint64 (n, 2)) of the fingerprints `name` in the trace of one rank."""
    rows = trace.tables["fingerprints"]
    number = trace.names.index(name) if name in trace.names else -1
    here = (rows["repeat"] == repeat) & (rows["step"] == step) & (rows["name"] == number)
    return rows["block"][here], np.stack([rows["hi"][here], rows["lo"][here]], axis=1)


def _faults(attributes: dict[str, Any]) -> bool:
    """Whether the run of a trace was asked to inject faults: they strike after a checkpoint and before a record."""
    try:
        return bool(attributes["config"]["run"]["fault"])
    except (KeyError, TypeError):
        return False


def _shown(value: Any) -> str:
    return cut(str(value), SHOWN)
