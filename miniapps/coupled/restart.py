"""Starting from a checkpoint: it is verified against the options of this run, and against the trace beside it."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.coupled.checkpoint import FIELDS, FOLDER, Checkpoint, block_prints, cut, read_checkpoint
from miniapps.coupled.closure import parameters
from miniapps.coupled.flow import view
from miniapps.coupled.physics import HALO
from miniapps.coupled.state import State, problem_of
from miniapps.errors import UsageError
from miniapps.layout import fields
from miniapps.layout.blocks import Blocks
from miniapps.received.regular import MOST, Refused
from miniapps.received.text import printable
from miniapps.system.device import put
from miniapps.trace import TraceError, read_run

RECORDED = ("vorticity", "streamfunction")  # names in the trace of what `block_prints` returns
# Bytes of a file that are read whatever the grid: so that a checkpoint of a larger one is refused as such.
ANY_GRID = 2**30
SHOWN = 60  # characters of a value in a message


def load_checkpoint(ctx, blocks: Blocks, state: State, surrogate) -> None:
    """Take up the checkpoint of `output.restart`, verified again, for it may have changed. Collective."""
    start, arrays = None, {}
    if ctx.rank == 0:
        path = ctx.config.output.restart
        checkpoint = verify(path, ctx.config, ctx.seed)
        agreed, message = compare_with_trace(path, checkpoint)
        (ctx.log.info if agreed else ctx.log.warning)("%s", message)
        start, arrays = (
            (checkpoint.head.step, checkpoint.head.time, checkpoint.head.last_dt, checkpoint.weights()),
            checkpoint.arrays,
        )
    state.step, state.time, state.last_dt, weights = ctx.comm.bcast(start)
    targets = (view(state.zeta, HALO), view(state.psi, HALO), state.slope, state.curvature)
    for name, target in zip(FIELDS, targets, strict=True):
        put(target, fields.scatter(blocks, ctx.comm, arrays.get(name)))
    if surrogate is not None:
        surrogate.load(weights)


def load_weights(ctx, surrogate) -> None:
    """Take up the network in the checkpoint of `closure.weights`, verified again. Collective."""
    weights = verify_weights(ctx.config).weights() if ctx.rank == 0 else None
    surrogate.load(ctx.comm.bcast(weights))


def check_restart(config, seed: int) -> None:
    """Raise UsageError unless this run can continue from the checkpoint of `output.restart`."""
    compare_with_trace(config.output.restart, verify(config.output.restart, config, seed))


def verify(path: str, config, seed: int) -> Checkpoint:
    """The checkpoint `path` of the same problem and seed, at a step that this run has.

    Raises UsageError naming option, file and remedy; the trace is not looked at.
    """
    wanted = problem_of(config) | {"seed": seed}
    need = (len(FIELDS) * config.grid.nx * config.grid.ny + 3 * parameters(config.closure.channels)) * 8
    checkpoint = _read("--restart", path, max(ANY_GRID, 2 * need))
    _same_problem("--restart", path, checkpoint, wanted, tuple(dict.fromkeys((*wanted, *checkpoint.options))))
    if checkpoint.head.step > config.time.last:
        remedy = "--steps" if config.time.until is None else "--until"
        raise UsageError(
            f"--restart {printable(path)}: of step {checkpoint.head.step}, and this run ends with step "
            f"{config.time.last}; raise {remedy}"
        )
    return checkpoint


def verify_weights(config) -> Checkpoint:
    """The checkpoint of `closure.weights`, whose network is of the same shape; the flow may be another.

    Raises UsageError naming option, file and remedy.
    """
    path = config.closure.weights
    checkpoint = _read("--weights", path, MOST)
    if not checkpoint.weights():
        raise UsageError(
            f"--weights {printable(path)}: it holds no weights, since its run had no network; give a checkpoint of a "
            "run with --closure surrogate or online"
        )
    _same_problem("--weights", path, checkpoint, problem_of(config), ("closure.channels",))
    return checkpoint


def compare_with_trace(path: str | os.PathLike, checkpoint: Checkpoint) -> tuple[bool, str]:
    """Compare the blocks with the fingerprints that RUN/rank-*.h5 hold of the same state, if `path` is in
    RUN/checkpoints: (whether some were compared or there is no such trace, what the log should say).

    Raises UsageError, naming step, name and block, where they contradict. A trace that cannot be read, or whose run
    injected faults between the checkpoint and the record, contradicts nothing.
    """
    where, folder = printable(os.fspath(path)), Path(os.path.realpath(path)).parent
    alone = f"restart from {where}: only its own hashes were checked"
    if folder.name != FOLDER:
        return True, f"{alone}, for it is not in RUN/{FOLDER}, beside the trace of its run"
    run, step, trouble = printable(str(folder.parent)), checkpoint.head.step + 1, ""
    words = {
        name: np.frombuffer(b"".join(prints), ">u8").reshape(-1, 2)
        for name, prints in zip(RECORDED, block_prints(checkpoint.blocks, checkpoint.arrays), strict=True)
    }
    compared, differing, faults = 0, [], False
    try:
        for trace in read_run(folder.parent, tables=["fingerprints"]):
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
            f"--restart {where}: it contradicts the trace of {run}: step {step}, {name}, block {block} has other bits "
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


def _read(option: str, path: str, most: int) -> Checkpoint:
    try:
        return read_checkpoint(path, most)
    except Refused as error:
        raise UsageError(f"{option} {error}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{option} {printable(path)}: cannot read it: {why}; give one of RUN/{FOLDER}/*.h5"
        ) from error


def _same_problem(
    option: str, path: str, checkpoint: Checkpoint, wanted: dict, keys: tuple[str, ...]
) -> None:
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
