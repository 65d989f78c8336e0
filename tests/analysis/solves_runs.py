"""Runs of `solver`, written by the real tracer: from numbers that a test gives, or from small solves in NumPy whose dot
products are added in drawn orders."""

import math

import numpy as np

from miniapps.trace import Tracer, fingerprint
from miniapps.trace.schema import rank_file
from tests.analysis.synthetic import attributes, region, write_result

METHOD = {
    "run.device": "cpu", "run.threads": 1, "run.fault": [], "solve.method": "cg", "solve.preconditioner": "none",
    "solve.dtype": "float64", "solve.spmv": "csr", "tuning.restart": 30,
}  # fmt: skip
PROBLEM = {"kind": "poisson27", "matrix": ""}
GRID = {"nx": 8, "ny": 8, "nz": 8}
TOLERANCE = 1e-8
FALLING = 10.0 ** -np.arange(10.0)  # residuals; the tolerance is reached at iteration 8


def solve(residual, converged=None, **more):
    """One solve as `write_solves` takes it: the residuals of iterations 0, 1, ..., and whatever else was recorded."""
    return {"residual": residual, "iterations": len(residual) - 1,
            "converged": residual[-1] <= TOLERANCE if converged is None else converged} | more  # fmt: skip


def write_solves(
    out, solves, size=1, guarantee="none", ordering="arrival", method=None, problem="p0", kind="poisson27",
    tolerance=TOLERANCE, complete=True, result=True, config=None, **more,
):  # fmt: skip
    """Write a run of `solver` with one repeat for each of `solves` into the new directory `out` and return it.

    A solve is a dict: "residual", "error", "orthogonality", ... (iterations + 1,), where None is not recorded;
    "iterations", "converged"; "x" (iterations + 1, blocks, n), the iterates; "difference", "drift_residual" (samples,
    iterations + 1), "drift_iterations" (samples,).
    """
    out.mkdir(parents=True)
    given = {
        "app": "solver", "problem": problem, "run_id": str(out), "repeats": len(solves),
        "config": config or {
            "run": {"seed": 1}, "problem": PROBLEM | {"kind": kind}, "grid": GRID, "solve": {"tolerance": tolerance},
        },
        "method": METHOD | {"run.guarantee": guarantee} | (method or {}),
    } | more  # fmt: skip
    for rank in range(size):
        tracer = Tracer(
            out / rank_file(rank), attributes(rank, size, guarantee, ordering, **given), size=size
        )
        for repeat, one in enumerate(solves):
            for step in range(len(one["residual"])):
                tracer.at(repeat, step)
                begin = tracer.clock()
                if rank == 0:
                    _record(tracer, one, step)
                tracer.event(region(tracer, "iteration"), begin)
        tracer.close(complete=complete)
    if result:
        write_result(out)
    return out


def _record(tracer, one, step):
    last = step == len(one["residual"]) - 1
    for name, values in one.items():
        if name in ("iterations", "converged"):
            if last:
                tracer.decision(name, float(values))
        elif name == "x":
            for block, part in enumerate(values[step]):
                tracer.fingerprint("x", block, fingerprint(part))
        elif name == "drift_iterations":
            if last:
                tracer.values(name, np.arange(len(values)), values)
        elif name in ("difference", "drift_residual"):
            tracer.values(name, np.arange(len(values)), np.asarray(values)[:, step])
        elif values[step] is not None:
            tracer.value(name, values[step])


def laplacian(edge=12, contrast=1.0):
    """A five-point Laplacian (edge^2, edge^2); its coefficient in y grows along y up to `contrast`."""
    weights = np.logspace(0, math.log10(contrast), edge + 1)
    graded = np.diag(weights[1:] + weights[:-1]) - np.diag(weights[1:-1], 1) - np.diag(weights[1:-1], -1)
    line = 2 * np.eye(edge) - np.eye(edge, k=1) - np.eye(edge, k=-1)
    return np.kron(graded, np.eye(edge)) + np.kron(np.eye(edge), line)


def iterates(matrix, b, limit, seed=None):
    """(limit + 1, n) iterates and (limit + 1,) relative residuals of conjugate gradients; dot products are exact (by
    math.fsum), or, with a seed, added left to right in an order drawn for every product."""
    rng = None if seed is None else np.random.default_rng(seed)

    def dot(u, v):
        if rng is None:
            return math.fsum(u * v)
        return float(np.cumsum((u * v)[rng.permutation(len(u))])[-1])

    x, r = np.zeros_like(b), b.copy()
    p, rr = r.copy(), dot(r, r)
    first, xs, residuals = rr, [x.copy()], [1.0]
    for _ in range(limit):
        q = matrix @ p
        alpha = rr / dot(p, q)
        x, r = x + alpha * p, r - alpha * q
        new = dot(r, r)
        p, rr = r + new / rr * p, new
        xs.append(x.copy())
        residuals.append(math.sqrt(rr / first))
    return np.array(xs), np.array(residuals)


def studied(samples=8, limit=120, contrast=1e4, seed=1):
    """A solve by exact sums with a drift study of `samples` drawn orders, as `write_solves` takes it."""
    matrix = laplacian(contrast=contrast)
    b = np.random.default_rng(seed).normal(size=len(matrix))
    xs, residuals = iterates(matrix, b, limit)
    star = np.linalg.solve(matrix, b)
    drawn = [iterates(matrix, b, limit, [seed, k]) for k in range(samples)]
    stop = [int(np.argmax(res <= TOLERANCE)) or limit for _, res in drawn]
    return solve(
        residuals,
        true_residual=np.linalg.norm(b - xs @ matrix, axis=1) / np.linalg.norm(b),
        error=np.linalg.norm(xs - star, axis=1) / np.linalg.norm(star),
        x=xs.reshape(limit + 1, 4, -1),
        difference=[np.linalg.norm(x - xs, axis=1) / np.linalg.norm(star) for x, _ in drawn],
        drift_residual=[res for _, res in drawn],
        drift_iterations=stop,
    )
