"""Restarted GMRES with right preconditioning, by modified or classical Gram-Schmidt."""

from math import hypot, inf, nan, sqrt

from miniapps.linear.krylov.base import Iteration, Method, register

TERMS = 3  # vectors subtracted per step: a step of `kernels.vectors` has at most four terms


class LeastSquares:
    """min |beta e1 - H y| for a Hessenberg matrix H that grows by columns: Givens rotations (Saad 2003, 6.5.3)."""

    def __init__(self, beta: float):
        self.triangle: list[list[float]] = []  # columns of R
        self.right = [beta]
        self._rotations: list[tuple[float, float]] = []

    def add(self, column: list[float], below: float) -> float:
        """Add a column, `below` under its diagonal; returns the residual |beta e1 - H y|.

        A column that makes R singular is left out, and the residual stays.
        """
        for i, (c, s) in enumerate(self._rotations):
            column[i], column[i + 1] = c * column[i] + s * column[i + 1], c * column[i + 1] - s * column[i]
        diagonal = hypot(column[-1], below)
        if diagonal == 0.0:
            return abs(self.right[-1])
        c, s = column[-1] / diagonal, below / diagonal
        column[-1] = diagonal
        self.triangle.append(column)
        self._rotations.append((c, s))
        last = self.right.pop()
        self.right += [c * last, -s * last]
        return abs(self.right[-1])

    def solve(self) -> list[float]:
        """The solution y for the columns so far."""
        y = self.right[:-1]
        for k in reversed(range(len(y))):
            y[k] /= self.triangle[k][k]
            for i in range(k):
                y[i] -= self.triangle[k][i] * y[k]
        return y


class Gmres(Method):
    """Saad & Schultz, SIAM J. Sci. Stat. Comput. 7 (1986); preconditioned from the right (Saad 2003, alg. 9.5), so that
    its residual is the residual of x. A subclass orthogonalises.

    An iteration adds one basis vector. A cycle ends after `restart` vectors, when the recurrence meets the goal, or in
    a happy breakdown (A M v is in the basis). Then x is corrected and r = b - A x computed; only this r decides
    "converged". Scalars: `h`, the length of the new vector before it is normalised.

    Stagnation: a cycle does not reduce |r|. It minimises |r| over corrections that include 0, so without rounding |r|
    cannot grow. If |r| stays the same, x stays the same too, in all later cycles.
    Breakdown: A M v is in the basis and R is singular: A is singular on the space of the cycle.
    """

    def __init__(self, system, restart: int = 30):
        if restart < 1:
            raise ValueError(f"{self.name}: restart {restart} must be at least 1")
        super().__init__(system)
        self.restart = restart
        self.v = [system.vector() for _ in range(restart + 1)]
        self.w, self.z, self.trial = (system.vector() for _ in range(3))
        self.kept = self.columns = 0  # number of vectors in `basis`, and in the pending correction
        self._least = LeastSquares(0.0)
        self._normalised = system.fuse(dict(v=self.v[0], r=self.r), "v = c*r")
        self._correct = system.fuse(dict(x=self.x, z=self.z), "x = x + z")
        self._try = system.fuse(dict(t=self.trial, x=self.x, z=self.z), "t = x + z")
        self._planned: dict = {}

    def run(self, goal, begun=None):
        number, square = 0, self.square
        scalars: dict[str, float] = {}
        self._begin_cycle(square)
        yield Iteration(number, goal.relative(square), scalars)
        while not (end := goal.met(number, square)):
            before, ended = square, False
            while not ended:
                column = self.columns
                self._product(self.v[column], self.w)
                row, under = self.orthogonalise(column)
                below = sqrt(under) if under >= 0.0 else nan
                residual = self._least.add(row, below)
                number += 1
                self.columns = len(self._least.triangle)
                self._next_vector(column, below)
                square = residual * residual
                yield Iteration(number, goal.relative(square), {"h": below})
                end = goal.met(number, square)
                if end and end.reason == "not finite":
                    return end
                singular = self.columns == column
                ended = end or below == 0.0 or self.columns == self.restart
            self._correction(self._correct)
            _, square = self.residual()
            if end := goal.met(number, square):
                return end
            if singular:
                return goal.failed(number, square, "breakdown", f"R is singular in iteration {number}")
            if not square < before:
                return goal.failed(
                    number, square, "stagnation", f"|r| is not smaller after iteration {number}"
                )
            self._begin_cycle(square)
        return end

    def orthogonalise(self, column: int) -> tuple[list[float], float]:
        """Subtract from w its parts along v[0 ... column]; returns their lengths and |w|^2 of the rest."""
        raise NotImplementedError

    @property
    def basis(self) -> list:
        """The orthonormal vectors of the cycle."""
        return self.v[: self.kept]

    def state(self):
        return {"v": self.v[max(self.kept - 1, 0)]}

    def solution(self):
        if not self.columns:
            return self.x
        self._correction(self._try, keep=True)
        return self.trial

    def orthogonality(self) -> float | None:
        """|I - V^T V|_F of the basis of the cycle; one all-reduce per vector."""
        total = 0.0
        for k in range(self.kept):
            *others, own = self._plan(
                f"gram {k}", {f"v{i}": self.v[i] for i in range(k + 1)}, "", _dots(f"v{k}", k + 1)
            )()
            total += (1.0 - own) * (1.0 - own) + 2.0 * sum(dot * dot for dot in others)
        return sqrt(total)

    def _begin_cycle(self, square: float) -> None:
        beta = sqrt(square) if 0.0 < square < inf else inf
        self._least, self.columns, self.kept = LeastSquares(beta), 0, 1
        self._normalised(c=1.0 / beta)

    def _next_vector(self, column: int, below: float) -> None:
        """v[column + 1] = w / below; no vector after a happy breakdown."""
        if below > 0.0:
            vectors = dict(v=self.v[column + 1], w=self.w)
            self._plan(f"normalise {column}", vectors, "v = c*w")(c=1.0 / below)
            self.kept = column + 2

    def _correction(self, add, keep: bool = False) -> None:
        """Compute z = M V y and `add` it; w and z are free between iterations."""
        if not self.columns:
            return
        y = self._least.solve()
        names = [f"v{i}" for i in range(len(y))]
        terms = [f"y{i}*v{i}" for i in range(len(y))]
        groups = [" + ".join(terms[i : i + TERMS]) for i in range(0, len(y), TERMS)]
        steps = "; ".join(f"d = d + {group}" if k else f"d = {group}" for k, group in enumerate(groups))
        target = self.w if self.system.preconditioned else self.z
        vectors = dict(zip(names, self.v, strict=False)) | dict(d=target)
        self._plan(f"combine {len(y)}", vectors, steps)(**{f"y{i}": value for i, value in enumerate(y)})
        if self.system.preconditioned:
            self.system.precondition(self.w, self.z)
        add()
        if not keep:
            self.columns = 0

    def _product(self, v, w) -> None:
        if self.system.preconditioned:
            self.system.precondition(v, self.z)
            v = self.z
        self.system.apply(v, w)

    def _plan(self, key: str, vectors, steps: str, dots: str = ""):
        """A fused kernel, planned on first use, because the needed kernels depend on the length of the cycles."""
        if key not in self._planned:
            self._planned[key] = self.system.fuse(vectors, steps, dots)
        return self._planned[key]


@register
class ModifiedGramSchmidt(Gmres):
    """GMRES that subtracts the part along each basis vector before the dot product with the next.

    Iteration j of a cycle (from 0) has j + 2 sequential all-reduces and j + 2 passes over vectors, each with the
    previous subtraction: about 32 (j + 1) + 40 bytes per row in float64. |I - V^T V| grows at most like the condition
    of the basis (Bjorck, BIT 7, 1967).
    """

    name = "gmres-mgs"
    why = "needs no symmetry, minimises the residual; a sequential sum for every basis vector"
    reductions = 16.5  # the mean with restart=30

    def __init__(self, system, restart: int = 30):
        super().__init__(system, restart)
        self.reductions = (restart + 3) / 2

    def orthogonalise(self, column):
        w, v = self.w, self.v
        (h,) = self._plan("first", dict(w=w, v=v[0]), "", "w.v")()
        lengths = [h]
        for i in range(column):
            step = self._plan(f"next {i}", dict(w=w, v=v[i], n=v[i + 1]), "w = w - h*v", "w.n")
            (h,) = step(h=h)
            lengths.append(h)
        (under,) = self._plan(f"last {column}", dict(w=w, v=v[column]), "w = w - h*v", "w.w")(h=h)
        return lengths, under


@register
class ClassicalGramSchmidt(Gmres):
    """GMRES that computes all dot products with the basis from the same vector, in one all-reduce.

    Two all-reduces: the dot products with the basis, and (w, w) of the rest, which would cancel if computed by
    Pythagoras. Two passes over the basis: 16 (j + 1) + 40 bytes per row in float64. |I - V^T V| grows with the square
    of the condition of the basis (Giraud, Langou, Rozloznik & van den Eshof, Numer. Math. 101, 2005).
    """

    name = "gmres-cgs"
    why = "like gmres-mgs with two sums per iteration; loses orthogonality sooner"
    reductions = 2

    def orthogonalise(self, column):
        count = column + 1
        vectors = {f"v{i}": self.v[i] for i in range(count)} | dict(w=self.w)
        lengths = self._plan(f"project {column}", vectors, "", _dots("w", count))()
        terms = [f" - h{i}*v{i}" for i in range(count)]
        steps = "; ".join("w = w" + "".join(terms[i : i + TERMS]) for i in range(0, count, TERMS))
        subtract = self._plan(f"subtract {column}", vectors, steps, "w.w")
        (under,) = subtract(**{f"h{i}": h for i, h in enumerate(lengths)})
        return lengths, under


def _dots(name: str, count: int) -> str:
    """The dot products of vector `name` with v0 ... v(count - 1)."""
    return " ".join(f"{name}.v{i}" for i in range(count))
