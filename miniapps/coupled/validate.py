"""Checks the configuration before a run creates anything."""

import importlib.util
from math import isqrt

from kernels import stencil
from miniapps.checkpoints import options as checkpoints
from miniapps.coupled import waves
from miniapps.coupled.chunks import CHUNK_POINTS
from miniapps.coupled.closure import NETWORKS, closure_batch, inference_variant, network_device
from miniapps.coupled.multigrid import coarsest
from miniapps.coupled.physics import HALO
from miniapps.coupled.restart import check_restart, verify_weights
from miniapps.errors import UsageError
from miniapps.layout.blocks import Blocks, BlocksError
from miniapps.runner.faults import Fault, Struck, Targets
from miniapps.system.resources import Need


def complete(config, options, size: int) -> None:
    """Fill in the calls of the network, by the guarantee unless an option decides, and the interval of roundings."""
    checkpoints.complete(config.output)
    config.closure.batch = closure_batch(config, options)


def validate(config, options, size: int) -> None:
    """Raises UsageError, BlocksError or ChoiceError, with the option, its allowed values and the remedy."""
    grid, closure = config.grid, config.closure
    Blocks(grid.ny, grid.nx, grid.by, grid.bx, size)
    for name, points in (("grid.bx", grid.bx), ("grid.by", grid.by)):
        if points < HALO:
            raise BlocksError(
                f"{name} = {points}: the closure reads {HALO} points around a block; use at least {HALO}"
            )
    if config.flow.initial == "decaying" and (
        config.flow.forcing or config.flow.drag or closure.kind != "none"
    ):
        raise UsageError(
            "flow.initial = decaying is exact only without forcing, drag and closure: "
            "add --set flow.forcing=0 --set flow.drag=0 --closure none"
        )
    if closure.kind in NETWORKS and importlib.util.find_spec("torch") is None:
        raise UsageError(
            f"--closure {closure.kind} needs torch, which is not installed; pip install torch, or "
            "choose --closure physics or none"
        )
    checkpoints.require_movable(config.output, options)
    if config.flow.ensemble > 1:
        _ensemble(config)
        if options.duplicate:
            raise UsageError(
                f"--duplicate {options.duplicate:g} with --ensemble {config.flow.ensemble}: only blocks of a single "
                "flow can be computed twice; run each member alone"
            )
    inference_variant(config, options)
    if closure.kind in NETWORKS and options.device == "cuda":
        network_device(stencil.backend("cupy").xp)
    steps = config.time.steps
    if config.time.last > steps:
        raise UsageError(
            f"--until {config.time.last}: this problem has {steps} steps (time.steps); choose 0 to {steps}, or raise "
            "--steps"
        )
    if config.output.restart:
        check_restart(config, options.seed)
    if closure.weights:
        if closure.kind not in NETWORKS:
            raise UsageError(
                f"--weights {closure.weights}: --closure {closure.kind} has no network; choose --closure surrogate or "
                "online"
            )
        verify_weights(config)


def _ensemble(config) -> None:
    count, output = config.flow.ensemble, config.output
    if config.flow.initial != "random" and config.closure.kind not in NETWORKS:
        raise UsageError(
            f"--ensemble {count}: all members would be equal, since flow.initial = {config.flow.initial} and closure "
            f"{config.closure.kind} do not depend on the seed; choose --set flow.initial=random"
        )
    files = {
        "--checkpoint-every": output.checkpoint_every,
        "--restart": output.restart,
        "--snapshot-every": output.snapshot_every,
    }
    if asked := [name for name, value in files.items() if value]:
        raise UsageError(
            f"--ensemble {count} with {asked[0]}: files hold one flow; run the member alone, with "
            "--seed SEED + member, which gives the same bits"
        )


def follows(config, options) -> str | None:
    """What follows the processor: a backend that chooses its kernels by it."""
    closure = config.closure
    if closure.kind in NETWORKS and closure.inference not in ("torch", "static"):
        return f"--inference {closure.inference} chooses kernels by the processor; choose --inference static or torch"
    return None


# Measured peak bytes: of a point; of a point in a block with its halo; of a point and channel of the network in a call
# for many blocks; of a block in the lists of every rank; of a point of the coarsest grid, which every rank holds whole.
POINT, PADDED, CHANNEL, LISTED, COARSEST = 83, 108, 30, 20, 60


def targets(config, options, size: int) -> Targets:
    """The targets of faults: blocks of all members; seeds only if the initial state is drawn."""
    grid = config.grid
    count = Blocks(grid.ny, grid.nx, grid.by, grid.bx, size).count * config.flow.ensemble

    drawn = config.flow.initial != "decaying" and not config.output.restart

    def blocks(fault: Fault) -> Struck:
        if fault.kind == "seed":
            return Struck(count if drawn else 0)
        state = fault.kind in ("nan", "bitflip")
        return Struck(count, (lambda block: grid.by * grid.bx) if state else None, 64)

    return Targets(config.time.last, blocks=blocks, exchanges=True)


def memory(config, options, size: int) -> Need:
    """The memory of a rank with the most blocks."""
    grid, closure = config.grid, config.closure
    points = grid.bx * grid.by
    count = (grid.nx // grid.bx) * (grid.ny // grid.by)
    each = POINT * points + PADDED * (grid.bx + 2 * HALO) * (grid.by + 2 * HALO)
    each *= config.flow.ensemble  # an upper bound: members share the solver's fields
    of_block = CHANNEL * closure.channels * points if closure.kind in NETWORKS else 0
    if closure_batch(config, options) == "rank":
        each, network = each + of_block, 0
    else:
        network = min(count, max(1, CHUNK_POINTS // points)) * of_block
    last = coarsest(Blocks(grid.ny, grid.nx, grid.by, grid.bx))
    fixed = (
        network
        + LISTED * count
        + COARSEST * last.ny * last.nx
        + waves.nbytes(last.ny)
        + waves.nbytes(last.nx)
    )

    def fitting(share: int) -> str:
        edge = isqrt(max(0, share - fixed) // each * size * points)
        return f"choose at most about {edge} x {edge} points on {size} rank{'s' * (size > 1)}, or more nodes"

    return Need(-(-count // size) * each + fixed, f"grid.nx = {grid.nx}, grid.ny = {grid.ny}", fitting)
