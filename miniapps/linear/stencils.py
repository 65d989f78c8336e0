"""Stencils of the problems on a box, and the Galerkin coefficients of its coarser boxes.

A stencil couples a point with the 27 points around it (itself included). On the finest box the coefficients are the
same everywhere. On coarser boxes only the last points of an axis have other coefficients. So there are two classes of
points per axis, 0: ordinary, 1: the last one. Points outside the box are zero (Dirichlet), so their coefficients are
not used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.guarantees import known

KINDS = ("poisson27", "poisson7", "anisotropic", "convection-diffusion")
SCHEMES = ("upwind", "central")


@dataclass(frozen=True, eq=False)
class Stencil:
    """`coefficients`: float64 (2, 2, 2, 3, 3, 3), by class of the point (z, y, x) and offset + 1 (z, y, x)."""

    coefficients: np.ndarray

    @property
    def symmetric(self) -> bool:
        """Whether the matrix is symmetric."""
        ordinary = self.coefficients[0, 0, 0]
        return bool((ordinary == ordinary[::-1, ::-1, ::-1]).all())

    def bound(self) -> float:
        """Upper bound of the eigenvalues of D^-1 A: the largest sum of |a_ij| / |a_ii| of a row (Gershgorin)."""
        rows = np.abs(self.coefficients.reshape(8, 27))
        return float((rows.sum(axis=1) / rows[:, 13]).max())

    def couplings(self) -> np.ndarray:
        """(3,) the couplings of points along z, y, x: the diffusion coefficients in units of the grid."""
        a = self.coefficients[0, 0, 0]
        along = [a.sum(axis=others) for others in ((1, 2), (0, 2), (0, 1))]
        return np.array([-0.5 * (before + after) for before, _, after in along])


def stencil(kind: str, h: float = 1.0, **parameters) -> Stencil:
    """The stencil of a kind of problem: h^2 times (poisson27: 9 h^2 times) the operator.

    | kind | operator | parameters |
    |---|---|---|
    | poisson27 | -Laplacian; 26 and -1, the matrix of HPCG (Dongarra, Heroux & Luszczek 2016) | |
    | poisson7 | -Laplacian; 6 and -1 | |
    | anisotropic | -(eps_z d2/dz2 + eps_y d2/dy2 + d2/dx2) | eps_z, eps_y |
    | convection-diffusion | -Laplacian + velocity . grad | velocity (z, y, x), scheme: upwind, central |

    `h`: distance of points, used only with a velocity: velocity * h is the cell Peclet number. Raises ChoiceError for
    an unknown kind or scheme, ValueError for unknown parameters and for parameters out of range.
    """
    known("kind of problem", kind, KINDS)
    return Stencil(np.broadcast_to(_MAKERS[kind](h, **checked(kind, parameters)), (2, 2, 2, 3, 3, 3)).copy())


def checked(kind: str, parameters: dict) -> dict:
    """The parameters of a kind with defaults filled in. Raises ValueError for unknown ones."""
    allowed = PARAMETERS[kind]
    for name in parameters:
        if name not in allowed:
            raise ValueError(f"{kind} has no parameter {name!r}; it has: {', '.join(allowed) or 'none'}")
    return {**allowed, **parameters}


def _poisson27(h):
    a = np.full((3, 3, 3), -1.0)
    a[1, 1, 1] = 26.0
    return a


def _diffusion(z: float, y: float, x: float) -> np.ndarray:
    a = np.zeros((3, 3, 3))
    a[0, 1, 1] = a[2, 1, 1] = -z
    a[1, 0, 1] = a[1, 2, 1] = -y
    a[1, 1, 0] = a[1, 1, 2] = -x
    a[1, 1, 1] = 2.0 * z + 2.0 * y + 2.0 * x
    return a


def _poisson7(h):
    return _diffusion(1.0, 1.0, 1.0)


def _anisotropic(h, eps_z, eps_y):
    for name, value in (("eps_z", eps_z), ("eps_y", eps_y)):
        if not 0.0 < value < np.inf:
            raise ValueError(f"{name} = {value}: the diffusion along an axis must be positive and finite")
    return _diffusion(eps_z, eps_y, 1.0)


def _convection_diffusion(h, velocity, scheme):
    known("scheme", scheme, SCHEMES)
    if len(velocity) != 3 or not np.isfinite(velocity).all():
        raise ValueError(f"velocity = {velocity}: three finite numbers are needed (z, y, x)")
    a = _diffusion(1.0, 1.0, 1.0)
    for axis, speed in enumerate(velocity):
        peclet = speed * h
        before, after = ([1, 1, 1] for _ in range(2))
        before[axis], after[axis] = 0, 2
        if scheme == "central":
            a[tuple(before)] -= 0.5 * peclet
            a[tuple(after)] += 0.5 * peclet
        else:  # upwind
            a[tuple(before if peclet > 0 else after)] -= abs(peclet)
            a[1, 1, 1] += abs(peclet)
    return a


_MAKERS: dict[str, Callable[..., np.ndarray]] = {
    "poisson27": _poisson27,
    "poisson7": _poisson7,
    "anisotropic": _anisotropic,
    "convection-diffusion": _convection_diffusion,
}
PARAMETERS: dict[str, dict[str, Any]] = {  # of each kind, with their defaults
    "poisson27": {},
    "poisson7": {},
    "anisotropic": {"eps_z": 0.01, "eps_y": 0.1},
    "convection-diffusion": {"velocity": (10.0, 20.0, 30.0), "scheme": "upwind"},
}


def galerkin(fine: Stencil, shape, axes=(True, True, True)) -> Stencil:
    """The stencil of R A P on the box of every second point along `axes`; `shape`: (nz, ny, nx) of the fine box.

    P interpolates linearly along each coarsened axis (weights 1/2, 1, 1/2) and is the identity along the others;
    R is its transpose. P is a product over the axes, so the coefficients are transformed axis by axis. All weights are
    powers of two, so sums of dyadic coefficients, such as Poisson's, are exact.
    """
    a = fine.coefficients
    for axis, (n, chosen) in enumerate(zip(shape, axes, strict=True)):
        if chosen:
            a = np.moveaxis(a, (axis, 3 + axis), (0, 1))
            rest = a.shape[2:]
            a = _along_axis(a.reshape(2, 3, -1), n).reshape(2, 3, *rest)
            a = np.moveaxis(a, (0, 1), (axis, 3 + axis))
    return Stencil(np.ascontiguousarray(a))


def _along_axis(a: np.ndarray, n: int) -> np.ndarray:
    """Along one axis of n points: a (class, offset + 1, ...) of the fine box -> the same of the coarse one.

    Coarse point I is fine point 2I + 1 and reaches the fine points 2I + 1 + s, s in -1, 0, 1. From there offset d
    leads to 2I + 1 + s + d, which coarse point I + D reaches as its t = s + d - 2D.
    """
    weight = {-1: 0.5, 0: 1.0, 1: 0.5}
    coarse = np.zeros_like(a)
    for last in (0, 1):
        beyond = (
            2 if not last else 1 if n % 2 else 0
        )  # fine points from the coarse one to the end of the axis
        for s in (-1, 0, 1):
            for d in (-1, 0, 1):
                for shift in (-1, 0, 1):
                    t = s + d - 2 * shift
                    if t not in weight or s > beyond or s + d > beyond or (last and shift == 1):
                        continue
                    kind = int(last and s == beyond)  # class of the fine point
                    coarse[last, shift + 1] += weight[s] * weight[t] * a[kind, d + 1]
    return coarse
