"""One repeat of the coupled mini-app, from start or checkpoint to the last step."""

import time

from miniapps.coupled.checkpoint import save_checkpoint
from miniapps.coupled.checks import verify
from miniapps.coupled.flow import view
from miniapps.coupled.model import Model
from miniapps.coupled.physics import HALO
from miniapps.coupled.restart import load_checkpoint, load_weights
from miniapps.coupled.state import state_fingerprint, together
from miniapps.layout import fields
from miniapps.runner.outcome import Outcome
from miniapps.runner.shares import Shares


def run(ctx) -> Outcome:
    """Run to `time.last`; collective. Raises RunError if the state is not finite."""
    model = Model(ctx)
    _start(model)
    last, first = model.config.time.last, model.state.step + 1
    shares = Shares(ctx, model.blocks.owner) if model.config.output.shares == "auto" else None
    begin = time.perf_counter()
    for step in range(first, last + 1):
        ctx.begin_step(step, last, model.peek)
        for _ in model.each():
            model.advance(step)
        if shares:
            shares.observe()
        _write_files(model, step)
        if shares and step % model.config.output.checkpoint_every == 0 and step < last:
            counts = shares.decide()
            if counts:
                model.redistribute(counts)
    wall = time.perf_counter() - begin
    ctx.end_steps(last + 1)
    digests = []
    for member in model.each():
        model.trace_state()
        weights = member.surrogate.parameters() if member.surrogate is not None else None
        digests.append(state_fingerprint(model.blocks, ctx.comm, member.state, weights))
    outcome = Outcome(_figures(model, last + 1 - first, wall), verify(model), together(digests))
    model.free()  # collective, so not in a `finally`: a rank that fails is alone
    return outcome


def _start(model: Model) -> None:
    ctx, config = model.ctx, model.config
    for member in model.each():
        if config.closure.weights:
            load_weights(ctx, member.surrogate)
        if config.output.restart:
            load_checkpoint(ctx, model.blocks, member.state, member.surrogate)
        else:
            model.start()
        model.measure()


def _write_files(model: Model, step: int) -> None:
    output, ctx = model.config.output, model.ctx
    start = ctx.tracer.clock()
    if output.checkpoint_every and step % output.checkpoint_every == 0:
        if output.checkpoint_bits:
            model.round_state(output.checkpoint_bits)
        save_checkpoint(ctx, model.blocks, model.state, model.member.surrogate)
        ctx.tracer.event(model.name["checkpoint"], start)
    if output.snapshot_every and step % output.snapshot_every == 0:
        whole = {
            name: fields.gather(model.blocks, ctx.comm, view(field, HALO), ctx.tracer)
            for name, field in (("zeta", model.state.zeta), ("psi", model.state.psi))
        }
        arrays = {name: array for name, array in whole.items() if array is not None}
        if ctx.rank == 0:
            attributes = {"format": "fpna-snapshot", "app": "coupled", "step": step, "time": model.state.time}
            name = f"snapshots/repeat-{ctx.repeat}-step-{step:06d}.h5"
            fields.save(ctx.directory(), name, attributes | {"spacing": model.h}, arrays)


def _figures(model: Model, steps: int, wall: float) -> dict[str, tuple[float, str]]:
    points, members = model.config.grid.nx * model.config.grid.ny, len(model.members)
    iterations = model.record.iterations
    figures = {
        "steps": (wall / max(steps, 1), "s/step"),
        "updates": (1e-6 * members * points * steps / wall if steps else 0.0, "Mpoint/s"),
        "cg_iterations": (sum(iterations) / max(len(iterations), 1), "per solve"),
    }
    if members > 1:
        figures["members"] = (members * steps / wall if steps else 0.0, "member step/s")
    if model.record.closure_errors:
        figures["closure_error"] = (model.record.closure_errors[-1][1], "relative")
    return figures
