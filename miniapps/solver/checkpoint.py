"""Checkpoints of an iteration: the vectors and scalars from which its method continues."""

import hashlib
import itertools
from dataclasses import asdict
from typing import Annotated, Any

import msgspec
import numpy as np

from miniapps.checkpoints import file, restart
from miniapps.checkpoints.file import Checkpoint, Head, Kind, as_struct
from miniapps.checkpoints.rounding import rounded
from miniapps.errors import UsageError
from miniapps.layout.rows import Rows
from miniapps.linear.krylov import METHODS
from miniapps.solver import files
from miniapps.solver.output import gather, scatter
from miniapps.solver.problem import box_of, box_rows, file_rows
from miniapps.system.device import host, put
from miniapps.trace import fingerprint
from miniapps.untrusted.regular import Refused

# Vectors beside x and r of each method that can continue; "+" marks vectors that exist only with a preconditioner.
VECTORS = {
    "cg": "p", "cg-chronopoulos-gear": "w p s +u", "cg-pipelined": "w n z s p +u +m +q", "bicgstab": "first p v",
    "jacobi": "k", "chebyshev": "d",
}  # fmt: skip
SCALARS = "scalars"
OPTION = "--continue"
# Options that may differ between a run and its continuation: length, files, ranks.
FREE = ("solve.max_iterations", "solve.until", "solve.reading", "solve.spmv", "problem.matrix",
        "problem.right_side_file", "grid.points_per_rank")  # fmt: skip

Edge = Annotated[int, msgspec.Meta(ge=1, le=2**40)]


class Shapes(msgspec.Struct):
    """The options that decide the arrays in a checkpoint and their blocks."""

    rows: Edge = msgspec.field(name="grid.rows")
    nx: Edge = msgspec.field(name="grid.nx")
    ny: Edge = msgspec.field(name="grid.ny")
    nz: Edge = msgspec.field(name="grid.nz")
    bx: Edge = msgspec.field(name="grid.bx")
    by: Edge = msgspec.field(name="grid.by")
    bz: Edge = msgspec.field(name="grid.bz")
    rows_per_block: Edge = msgspec.field(name="grid.rows_per_block")
    of_file: Annotated[int, msgspec.Meta(ge=0, le=1)] = msgspec.field(name="problem.of_file")
    method: str = msgspec.field(name="solve.method")
    dtype: str = msgspec.field(name="solve.dtype")
    preconditioner: str = msgspec.field(name="solve.preconditioner")
    watched: Annotated[int, msgspec.Meta(ge=0, le=1)] = msgspec.field(name="record.orthogonality")

    def vectors(self) -> list[str]:
        """The names of the vectors in the checkpoint."""
        pieces = VECTORS[self.method].split()
        own = [piece for piece in pieces if not piece.startswith("+")]
        more = [piece[1:] for piece in pieces if piece.startswith("+") and self.preconditioner != "none"]
        first = ["first"] if self.watched and self.method.startswith("cg") else []
        return ["x", "r", *own, *more, *first]

    def layout(self) -> Rows:
        """The blocks of rows."""
        return file_rows(self.rows, self, 1, 0, 0) if self.of_file else box_rows(box_of(self), 1, 0, 0)


def problem_of(config) -> dict[str, Any]:
    """The options that a run and the checkpoint that it continues from must share, flat."""
    sections = asdict(config)
    flat = {f"{s}.{k}": v for s in ("problem", "grid", "solve", "tuning") for k, v in sections[s].items()}
    kept = {key: _plain(value) for key, value in flat.items() if key not in FREE}
    given = config.problem.matrix
    rows = file_rows(files.header(given).rows, config.grid, 1, 0, 0).n if given else box_of(config.grid).n
    return kept | {
        "grid.rows": rows,
        "problem.of_file": int(bool(given)),
        "record.orthogonality": int(config.record.orthogonality),
    }


def save_checkpoint(ctx, step: int, rows: Rows, method) -> None:
    """Write RUN/checkpoints/repeat-R-step-S.h5, for any number of ranks. Collective."""
    whole = {name: gather(rows, ctx.comm, vector, ctx.tracer) for name, vector in method.vectors().items()}
    arrays = {name: array for name, array in whole.items() if array is not None}
    arrays[SCALARS] = np.array(list(method.scalars().values()))
    options = problem_of(ctx.config) if ctx.rank == 0 else {}
    file.write(ctx, KIND, step, options, arrays)


def round_vectors(rows: Rows, method, bits: int) -> None:
    """Round the vectors of the iteration to `bits` bits of mantissa, from which it continues; its scalars stay."""
    for vector in method.vectors().values():
        put(vector[: rows.m], rounded(host(vector[: rows.m]), bits))


def load_checkpoint(ctx, rows: Rows, method) -> tuple[int, dict[str, float]]:
    """Restore the checkpoint of `output.restart`, verified again, since it may have changed; returns the argument
    `begun` of `Method.iterate`. Collective."""
    start, arrays = None, {}
    if ctx.rank == 0:
        checkpoint = verify(ctx.config, ctx.seed)
        restart.log_comparison(ctx, ctx.config.output.restart, checkpoint, OPTION)
        arrays, head = checkpoint.arrays, checkpoint.head
        start = head.step, head.chain, arrays[SCALARS].tolist()
    step, before, scalars = ctx.comm.bcast(start)
    ctx.continue_chain(step, before)
    for name, vector in method.vectors().items():
        scatter(rows, ctx.comm, arrays.get(name), vector)
    return step, dict(zip(("norm", *method.goes_on_from), scalars, strict=True))


def check_restart(config, seed: int) -> None:
    """Raise UsageError unless this run can continue from the checkpoint of `output.restart`."""
    restart.compare_with_trace(config.output.restart, verify(config, seed), OPTION)


def verify(config, seed: int) -> Checkpoint:
    """Reads the checkpoint of `output.restart`; it must have the same problem and seed, and an iteration of this
    run."""
    problem, last = problem_of(config), config.solve.last
    remedy = "--max-iterations" if config.solve.until is None else "--until"
    return restart.verify(
        config.output.restart, KIND, problem, seed, last, remedy, 80 * problem["grid.rows"], OPTION
    )


def _plain(value: Any) -> int | float | str:
    return (
        value
        if isinstance(value, int | float | str)
        else "none"
        if value is None
        else " ".join(map(str, value))
    )


def _expected(shapes: Shapes) -> dict[str, tuple[str, tuple[int, ...]]]:
    if shapes.method not in VECTORS or shapes.dtype not in ("float64", "float32"):
        raise Refused(
            f"this program writes no checkpoint of --method {shapes.method} in {shapes.dtype}: leave it out"
        )
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        name: (shapes.dtype, (shapes.rows,)) for name in shapes.vectors()
    }
    expected[SCALARS] = ("float64", (1 + len(METHODS[shapes.method].goes_on_from),))
    return expected


def _check(head: Head, shapes: Shapes, arrays: dict[str, np.ndarray], where: str) -> None:
    """Raise Refused for an impossible state."""
    try:
        rows = shapes.layout()
    except (ValueError, UsageError) as error:
        raise Refused(f"{where}: {error}; this program did not write it: leave it out") from None
    if rows.n != shapes.rows or not arrays[SCALARS][0] > 0.0:
        raise Refused(
            f"{where}: no solve has its rows and its |b|^2; this program did not write it: leave it out"
        )


def _prints(shapes: Shapes, arrays: dict[str, np.ndarray], hashed: str = "xxh3") -> dict[str, list[bytes]]:
    starts = shapes.layout().starts.tolist()
    return {
        name: [fingerprint(arrays[name][i:j], hashed) for i, j in itertools.pairwise(starts)]
        for name in ("x", "r")
    }


def _fingerprint(shapes: Shapes, arrays: dict[str, np.ndarray]) -> str:
    prints = _prints(shapes, arrays)
    return hashlib.blake2b(b"".join([*prints["x"], *prints["r"]]), digest_size=16).hexdigest()


KIND = Kind("solver", 1, Head, as_struct(Shapes), _expected, _check, _prints, _fingerprint, recorded_after=0)
