"""Known solutions: a polynomial that is zero on the boundary of the box, and its right side.

They are polynomials because additions and multiplications have the same bits on every machine, at every place of an
array.
"""

from collections.abc import Callable

import numpy as np
from numpy.polynomial import Polynomial

from kernels.guarantees import known
from miniapps.linear.box import Box
from miniapps.linear.stencils import KINDS, checked

# One factor per axis (z, y, x) on [0, 1]: zero at both ends, of degree five, so that finite differences have errors.
_t = Polynomial([0.0, 1.0])
FACTORS = (_t * (1 - _t) * (1 + _t**3), _t * (1 - _t) * (2 - _t) ** 3, _t * (1 - _t) * (1 + _t) ** 3)


def manufactured(kind: str, box: Box, **parameters) -> tuple[Callable, Callable]:
    """Returns (solution, right side) of a kind of problem: functions of the coordinates (z, y, x) of `Box.coordinates`.

    With the matrix A of `stencil(kind, box.h, **parameters)`, A x = right side has the solution up to an error
    proportional to h^2 (upwind differences: h). Raises as `stencil` does.
    """
    known("kind of problem", kind, KINDS)
    parameters = checked(kind, parameters)
    diffusion = np.ones(3)
    velocity = np.zeros(3)
    if kind == "anisotropic":
        diffusion = np.array([parameters["eps_z"], parameters["eps_y"], 1.0])
    if kind == "convection-diffusion":
        velocity = np.array(parameters["velocity"], float)
    scale = box.h * box.h * (9.0 if kind == "poisson27" else 1.0)
    lengths = [(n + 1) * box.h for n in box.shape]
    values, slopes, curvatures = (
        [factor.deriv(order) for factor in FACTORS] for order in (0, 1, 2)
    )  # by t = coordinate / length

    def product(functions, at):
        z, y, x = (
            _horner(function, c / length) for function, c, length in zip(functions, at, lengths, strict=True)
        )
        return z * y * x

    def solution(z, y, x):
        return product(values, (z, y, x))

    def right_side(z, y, x):
        total = 0.0
        for axis, length in enumerate(lengths):
            slope, curvature = list(values), list(values)
            slope[axis], curvature[axis] = slopes[axis], curvatures[axis]
            total = total - diffusion[axis] / (length * length) * product(curvature, (z, y, x))
            if velocity[axis]:
                total = total + velocity[axis] / length * product(slope, (z, y, x))
        return scale * total

    return solution, right_side


def _horner(polynomial: Polynomial, t: np.ndarray) -> np.ndarray:
    result = np.zeros_like(t)
    for coefficient in polynomial.coef[::-1]:
        result = result * t + coefficient
    return result
