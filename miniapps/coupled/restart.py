"""Starts a flow from a checkpoint, and a network from the weights in a checkpoint."""

from miniapps.checkpoints import restart
from miniapps.checkpoints.file import Checkpoint
from miniapps.coupled.checkpoint import FIELDS, KIND, weights
from miniapps.coupled.flow import view
from miniapps.coupled.network import parameters
from miniapps.coupled.physics import HALO
from miniapps.coupled.state import State, problem_of
from miniapps.errors import UsageError
from miniapps.layout import fields
from miniapps.layout.blocks import Blocks
from miniapps.system.device import put
from miniapps.untrusted.text import printable


def load_checkpoint(ctx, blocks: Blocks, state: State, surrogate) -> None:
    """Restore the checkpoint of `output.restart`, verified again, since it may have changed. Collective."""
    start, arrays = None, {}
    if ctx.rank == 0:
        path = ctx.config.output.restart
        checkpoint = verify(path, ctx.config, ctx.seed)
        restart.log_comparison(ctx, path, checkpoint)
        head = checkpoint.head
        start = (head.step, head.time, head.last_dt, weights(checkpoint), head.chain)
        arrays = checkpoint.arrays
    state.step, state.time, state.last_dt, network, before = ctx.comm.bcast(start)
    ctx.continue_chain(state.step, before)
    targets = (view(state.zeta, HALO), view(state.psi, HALO), state.slope, state.curvature)
    for name, target in zip(FIELDS, targets, strict=True):
        put(target, fields.scatter(blocks, ctx.comm, arrays.get(name)))
    if surrogate is not None:
        surrogate.load(network)


def load_weights(ctx, surrogate) -> None:
    """Restore the network from the checkpoint of `closure.weights`, verified again. Collective."""
    network = weights(verify_weights(ctx.config)) if ctx.rank == 0 else None
    surrogate.load(ctx.comm.bcast(network))


def check_restart(config, seed: int) -> None:
    """Raise UsageError unless this run can continue from the checkpoint of `output.restart`."""
    restart.compare_with_trace(config.output.restart, verify(config.output.restart, config, seed))


def verify(path: str, config, seed: int) -> Checkpoint:
    """Reads the checkpoint `path`; it must have the same problem and seed, and a step of this run.

    Raises UsageError with option, file and remedy. Does not read the trace.
    """
    need = (len(FIELDS) * config.grid.nx * config.grid.ny + 3 * parameters(config.closure.channels)) * 8
    remedy = "--steps" if config.time.until is None else "--until"
    return restart.verify(path, KIND, problem_of(config), seed, config.time.last, remedy, need)


def verify_weights(config) -> Checkpoint:
    """Reads the checkpoint of `closure.weights`; its network must have the same shape, its flow may differ.

    Raises UsageError with option, file and remedy.
    """
    path = config.closure.weights
    checkpoint = restart.read_option("--weights", path, KIND)
    if not weights(checkpoint):
        raise UsageError(
            f"--weights {printable(path)}: it holds no weights, since its run had no network; give a checkpoint of a "
            "run with --closure surrogate or online"
        )
    restart.require_same("--weights", path, checkpoint, problem_of(config), ("closure.channels",))
    return checkpoint
