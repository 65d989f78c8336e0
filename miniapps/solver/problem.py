"""The linear system of a run: matrix, right-hand side and, if known, the solution."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import xxhash

import kernels.sparse  # noqa: F401 - registers its variants
from kernels import draws, registry
from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.layout.blocks import require_few
from miniapps.layout.owners import shuffled
from miniapps.layout.rows import Rows
from miniapps.linear import entries
from miniapps.linear.box import Box
from miniapps.linear.krylov import METHODS
from miniapps.linear.matrix import Matrix
from miniapps.linear.stencils import Stencil, stencil
from miniapps.solver import files
from miniapps.solver.decomposition import box_owner
from miniapps.solver.manufactured import manufactured
from miniapps.solver.matrixfile import opened
from miniapps.solver.scale import scaled, shift_of
from miniapps.system.device import host, put
from miniapps.trace.records import INPUT

HASHED_BYTES = 1 << 20  # read from a file at once
GENERAL = "bicgstab, gmres-mgs or gmres-cgs"  # methods for any matrix
NOT_INJECTED: Mapping[int, int] = MappingProxyType({})
# Purposes of random numbers, each with separate numbers.
SOLUTION, UNITS, ONE, OTHER = range(4)


@dataclass
class LinearSystem:
    """A x = b on this rank. `box` and `stencil` are None for a matrix from a file, `solution` if unknown.

    `entries`: of the own rows, None after `Workspace.release`. `largest`: the largest sum of |a_ij| of a row, `most`:
    the largest number of entries of a row, both over all ranks. `b`, `solution`: vectors of `matrix`, with room for
    ghosts.

    `shifts` = (a, b): the run solves the matrix times 2^a and the right side times 2^b, so the requested solution is
    2^(a - b) times the solution of this system.
    """

    matrix: Matrix
    entries: tuple | None
    largest: float
    most: int
    box: Box | None
    stencil: Stencil | None
    b: Any
    solution: Any | None
    shifts: tuple[int, int] = (0, 0)

    @property
    def shift(self) -> int:
        """The exponent of two by which the solution of this system is multiplied to get the requested one."""
        return self.shifts[0] - self.shifts[1]

    def asked(self, x) -> Any:
        """The own elements of the requested solution, from `x`, the solution of this system; on the host if scaled."""
        return x if self.shift == 0 else scaled(host(x[: self.matrix.rows.m]), self.shift)

    def free(self) -> None:
        """Free the matrix. Collective."""
        self.matrix.free()


def build(ctx) -> LinearSystem:
    """Builds the system of the configuration. Collective; raises UsageError on all ranks."""
    config, problem = ctx.config, ctx.config.problem
    box = pattern = None
    if problem.matrix:
        n = ctx.comm.bcast(files.header(problem.matrix).rows if ctx.rank == 0 else None)
        rows = file_rows(n, config.grid, ctx.size, ctx.rank, ctx.options.shuffle_blocks)
        entries_of_file = files.read(problem.matrix, ctx.comm, rows, config.solve.reading)
        if asks_for_symmetry(config):
            _require_symmetry(ctx, rows, entries_of_file)
    else:
        box, pattern = box_of(config.grid), stencil_of(problem, config.grid)
        rows = box_rows(box, ctx.size, ctx.rank, ctx.options.shuffle_blocks)
        entries_of_file = entries.rows(box, pattern, rows.own)
    if problem.spread:
        other = ctx.other_seeds(
            range(rows.count)
        )  # for all blocks: a rank also draws the units of other ranks' columns
        entries_of_file = in_units(rows, entries_of_file, problem.spread, ctx.seed, other)
    indptr, _, data = entries_of_file
    starts = indptr[rows.local_starts].tolist()
    record_input(ctx, "matrix", rows, [data[i:j] for i, j in itertools.pairwise(starts)])
    narrowest = "float32" if config.solve.method == "refinement" else config.solve.dtype
    shift = shift_of(ctx.comm, data, narrowest) if problem.matrix or problem.spread else 0
    entries_of_file = (*entries_of_file[:2], scaled(data, shift))
    matrix = matrix_of(ctx, rows, entries_of_file, config.solve.dtype)
    b, solution, of_b = _right_side(ctx, matrix, box, narrowest)
    norms, shifts = _row_norms(ctx.comm, entries_of_file), (shift, shift if of_b is None else of_b)
    return LinearSystem(matrix, entries_of_file, *norms, box, pattern, b, solution, shifts)


def contents_of(problem) -> str:
    """The hash of the bytes of the problem's files, in hex; empty without files.

    Raises FileError for an unreadable file, and for one whose header is not that of a matrix or vector, before hashing.
    """
    paths = []
    if problem.matrix:
        files.header(problem.matrix)
        paths.append(problem.matrix)
    if problem.right_side == "file" and problem.right_side_file:
        files.check_vector(problem.right_side_file)
        paths.append(problem.right_side_file)
    hashed = xxhash.xxh3_128()
    for path in paths:
        with opened(Path(path)) as file:
            while piece := file.read(HASHED_BYTES):
                hashed.update(piece)
    return hashed.hexdigest() if paths else ""


def asks_for_symmetry(config) -> bool:
    """Whether the method, or its inner method, needs a symmetric matrix."""
    names = [config.solve.method, *([config.tuning.inner] if config.solve.method == "refinement" else [])]
    return any(METHODS[name].symmetric for name in names)


def _require_symmetry(ctx, rows: Rows, csr) -> None:
    pair = files.symmetry(ctx.comm, rows, csr)
    if pair:
        i, j, a, b = pair
        raise UsageError(
            f"{ctx.config.problem.matrix}: not symmetric: {a:g} in row {i + 1}, column {j + 1}, but {b:g} across "
            f"(counted from 1), and --method {ctx.config.solve.method} needs symmetry; choose {GENERAL}"
        )


def in_units(
    rows: Rows, csr: entries.Entries, spread: float, seed: int, other: Mapping[int, int] = NOT_INJECTED
) -> entries.Entries:
    """D A D for D = diag(2^k), k = spread g rounded. It is exact, so D A D is the same problem in other units.

    Every rank draws the normal numbers g of all blocks that contain its columns, so no messages are needed.
    """
    indptr, columns, data = csr
    blocks = np.unique(np.searchsorted(rows.starts, columns, side="right") - 1)
    lengths = rows.starts[blocks + 1] - rows.starts[blocks]
    drawn = by_block(blocks, lengths, (seed, UNITS), draws.normal, other)
    units = np.ldexp(1.0, np.rint(spread * drawn).astype(np.int32))
    begins = np.concatenate([[0], np.cumsum(lengths)])[:-1] - rows.starts[blocks]

    def of(at):
        block = np.searchsorted(blocks, np.searchsorted(rows.starts, at, side="right") - 1)
        return units[at + begins[block]]

    of_rows = np.repeat(of(rows.global_rows()), np.diff(indptr))
    return indptr, columns, data * (of_rows * of(columns))


def _row_norms(comm, csr) -> tuple[float, int]:
    indptr, _, data = csr
    sums = np.add.reduceat(np.append(np.abs(data), 0.0), indptr[:-1]) * (np.diff(indptr) > 0)
    own = float(sums.max(initial=0.0)), int(np.diff(indptr).max(initial=0))
    return tuple(max(values) for values in zip(*comm.allgather(own), strict=True))


def matrix_of(ctx, rows: Rows, csr, dtype: str) -> Matrix:
    """The matrix of these entries with the requested product; drawn orders depend on seed and repeat."""
    solve, options = ctx.config.solve, ctx.options
    drawn = {"seed": options.seed + ctx.repeat} if solve.spmv == "coo-emulated" else {}
    backend = backend_of(solve.spmv, options.device)
    matrix = Matrix(
        ctx.comm, rows, rows, csr, solve.spmv, backend, dtype, options.threads, ctx.tracer, **drawn
    )
    return matrix if ctx.watch is None else matrix.watched(ctx.watch)


def backend_of(product: str, device: str) -> str:
    """The backend that computes a sparse product on the device. Raises ChoiceError if there is none."""
    backends = [v.backend for v in registry.variants("spmv") if v.name == product]
    if device == "cuda":
        if "cupy" not in backends:
            there = dict.fromkeys(v.name for v in registry.variants("spmv") if v.backend == "cupy")
            raise ChoiceError(
                f"--spmv {product} cannot run with --device cuda; there are: {', '.join(there)}"
            )
        return "cupy"
    return next(b for b in ("native", "emulated", "scipy") if b in backends)


def box_of(grid) -> Box:
    """The box of the configuration; raises BlocksError."""
    return Box(grid.nz, grid.ny, grid.nx, (grid.bz, grid.by, grid.bx))


def parameters_of(problem) -> dict:
    """The parameters of the kind of problem beside the box."""
    if problem.kind == "anisotropic":
        return {"eps_z": problem.eps_z, "eps_y": problem.eps_y}
    if problem.kind == "convection-diffusion":
        return {"velocity": problem.velocity, "scheme": problem.scheme}
    return {}


def stencil_of(problem, grid) -> Stencil:
    """The stencil of the configuration. Raises UsageError for parameters out of range."""
    try:
        return stencil(problem.kind, box_of(grid).h, **parameters_of(problem))
    except ValueError as error:
        raise UsageError(f"problem.kind = {problem.kind}: {error}") from error


def box_rows(box: Box, size: int, rank: int, shuffle: int) -> Rows:
    """The rows of a box: every rank owns a box of blocks if possible, else a run of blocks."""
    owner = box_owner(box, size) if size <= box.count else None
    if owner is None:
        return Rows(box.starts, size, rank, shuffle)
    return Rows(box.starts, size, rank, shuffle, shuffled(owner, shuffle))


def file_rows(n: int, grid, size: int, rank: int, shuffle: int) -> Rows:
    """The `n` rows of a matrix from a file in blocks of grid.rows_per_block. Raises BlocksError for too many ranks."""
    require_few(-(-n // grid.rows_per_block), "set grid.rows_per_block to more")
    return Rows(np.append(np.arange(0, n, grid.rows_per_block), n), size, rank, shuffle)


def _right_side(ctx, matrix: Matrix, box: Box | None, narrowest: str) -> tuple[Any, Any | None, int | None]:
    """Returns (b, solution or None, exponent by which b is scaled, None for b = A x). Random numbers are keyed by seed
    and block."""
    problem, rows = ctx.config.problem, matrix.rows
    b, solution = matrix.operand(), matrix.operand()
    if problem.right_side in ("unit", "file"):
        values = np.ones(rows.m)
        if problem.right_side == "file":
            values = files.vector(problem.right_side_file, ctx.comm, rows)
        shift = shift_of(ctx.comm, values, narrowest)
        put(b[: rows.m], scaled(values, shift).astype(matrix.dtype))
        record_input(ctx, "right_side", rows, rows.parts(b))
        return b, None, shift
    if problem.right_side == "manufactured" and box is not None:  # `validate` requires a box
        exact, load = manufactured(problem.kind, box, **parameters_of(problem))
        at = box.coordinates(rows.own)
        put(solution[: rows.m], exact(*at).astype(matrix.dtype))
        put(b[: rows.m], load(*at).astype(matrix.dtype))
        record_input(ctx, "right_side", rows, rows.parts(b))
        return b, solution, 0
    values = np.ones(rows.m)
    if problem.right_side == "random":
        values = random_by_block(rows, (ctx.seed, SOLUTION), ctx.other_seeds(rows.own))
    put(solution[: rows.m], values.astype(matrix.dtype))
    record_input(ctx, "solution", rows, rows.parts(solution))
    matrix.apply(solution, b)
    return b, solution, None


def record_input(ctx, name: str, rows: Rows, parts) -> None:
    """Record the bits of an input of the run: `parts`, one array for each own block."""
    for block, part in zip(rows.own.tolist(), parts, strict=True):
        ctx.tracer.array(INPUT + name, block, host(part))


def random_by_block(rows: Rows, key: tuple[int, int], other: Mapping[int, int] = NOT_INJECTED) -> np.ndarray:
    """Random numbers in (-1, 1), float64 (m,), keyed by two integers and the block; `other` as for `by_block`."""

    def draw(source, n):
        return draws.uniform(source, -1.0, 1.0, n)

    return by_block(rows.own, np.diff(rows.local_starts), key, draw, other)


def by_block(
    blocks, lengths, key: tuple[int, int], draw, other: Mapping[int, int] = NOT_INJECTED
) -> np.ndarray:
    """The concatenated draw(generator, length) of all `blocks`, float64; each generator is keyed by seed, purpose and
    block. `other`: {block: seed} of blocks with another seed."""
    parts = (
        draw(
            np.random.Generator(np.random.Philox(key=[other.get(block, key[0]), key[1] << 32 | block])),
            length,
        )
        for block, length in zip(blocks.tolist(), lengths.tolist(), strict=True)
    )
    return np.concatenate([*parts, np.empty(0)])
