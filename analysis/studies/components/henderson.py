"""Variance components of unbalanced, crossed and nested designs by Henderson's method 3.

Henderson, Estimation of variance and covariance components, Biometrics 9 (1953) 226-252; Searle, Casella & McCulloch,
Variance Components (1992), section 5.5. The factors enter a linear model one after the other. Factor i raises the
explained sum of squares by R(i | factors before), whose expectation is

    sum over j >= i of  tr(Z_j' (P_i - P_{i-1}) Z_j) s_j  +  (rank P_i - rank P_{i-1}) s_e

with s_j the variance of factor j, Z_j its incidence matrix and P_i the projection on the factors up to i: factors
before i drop out. The equations are solved from the last to the first. For a balanced, nested design, the solutions are
the estimators of the analysis of variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RANK = 1e-9  # relative to the norm of the incidence matrix: smaller singular values are rounding
ROUNDING = (
    64 * np.finfo(float).eps
)  # relative to the numbers, per observation: smaller remainders are rounding of this module


@dataclass(frozen=True)
class Rows:
    """Observations, with one row for equal levels of all factors: `codes` int (m, factors), `weight` (m,) number of
    observations, `mean` (m, outcomes), `within` (m, outcomes) sums of squares about the mean."""

    codes: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    within: np.ndarray


@dataclass(frozen=True)
class Estimate:
    """`variance` (factors + 1, outcomes): of each factor and, last, of the residual. It is unbiased, so it can be below
    0; NaN if the factor adds no rank. `df` (factors + 1,): the rank that each adds."""

    variance: np.ndarray
    df: np.ndarray


def rows_of(codes: np.ndarray, y: np.ndarray) -> Rows:
    """The Rows of observations `y` (n, outcomes) with the levels `codes` (n, factors)."""
    levels, first, place = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    place = place.ravel()
    weight = np.bincount(place).astype(float)
    beyond = y - y[first][place]  # exactly 0 for equal numbers, unlike the difference from their mean
    mean = y[first] + np.stack([np.bincount(place, column) for column in beyond.T], axis=1) / weight[:, None]
    left = (y - mean[place]) ** 2
    within = np.stack([np.bincount(place, column) for column in left.T], axis=1)
    return Rows(levels, weight, mean, within)


def estimate(rows: Rows) -> Estimate:
    """The components of the factors of `rows`, which enter in the order of their columns. All are NaN if no degree of
    freedom is left for the residual."""
    m, factors = rows.codes.shape
    root = np.sqrt(rows.weight)
    n = rows.weight.sum()
    y = root[:, None] * rows.mean
    basis = root[:, None] / np.sqrt(n)
    y = y - basis @ (basis.T @ y)  # keeps the sums of squares independent of the mean
    left = (y**2).sum(axis=0)
    noise = (ROUNDING * np.sqrt(n)) ** 2 * left
    incidence = [_incidence(column) * root[:, None] for column in rows.codes.T]
    df = np.zeros(factors + 1)
    reduction = np.zeros((factors, y.shape[1]))
    traces = np.zeros((factors, factors))
    for i, z in enumerate(incidence):
        if z.shape[1] == m:  # every row has its own level: the factor spans the rest of the space
            share = 1.0 - (basis**2).sum(axis=1)
            df[i] = m - basis.shape[1]
            reduction[i] = left
            for j in range(i, factors):
                # tr(Z'(I - P)Z): with one level per row, only the diagonal counts.
                other = incidence[j]
                traces[i, j] = (
                    (share * rows.weight).sum()
                    if other.shape[1] == m
                    else (other**2).sum() - ((basis.T @ other) ** 2).sum()
                )
            left, basis = np.zeros_like(left), np.eye(m)
            continue
        new = _added(basis, z)
        df[i] = new.shape[1]
        if not df[i]:
            continue
        reduction[i] = _above(((new.T @ y) ** 2).sum(axis=0), noise)
        y = y - new @ (new.T @ y)  # left - reduction[i] would round relative to both
        left = _above((y**2).sum(axis=0), noise)
        for j in range(i, factors):
            traces[i, j] = ((new.T @ incidence[j]) ** 2).sum()
        basis = np.concatenate([basis, new], axis=1)
    df[factors] = n - basis.shape[1]
    variance = np.full((factors + 1, y.shape[1]), np.nan)
    if df[factors] < 0.5:
        return Estimate(variance, df)
    variance[factors] = (left + rows.within.sum(axis=0)) / df[factors]
    for i in reversed(range(factors)):
        if df[i]:
            later = sum(traces[i, j] * variance[j] for j in range(i + 1, factors) if df[j])
            others = later + df[i] * variance[factors]
            rest = reduction[i] - others
            # The difference of two equal numbers is rounding: neither a variance nor an estimate below 0.
            rest = np.where(np.abs(rest) > ROUNDING * (reduction[i] + np.abs(others)), rest, 0.0)
            variance[i] = rest / traces[i, i]
    return Estimate(variance, df)


def ranks(codes: np.ndarray) -> np.ndarray:
    """(factors,) rank that each column of `codes` (n, factors) adds to a model of the mean and the columns before."""
    totals = [1, *(_rank(np.unique(codes[:, : k + 1], axis=0)) for k in range(codes.shape[1]))]
    return np.diff(totals)


def _rank(codes: np.ndarray) -> int:
    """The rank of a model of the mean and the columns of `codes` (n, factors), whose rows differ."""
    n = len(codes)
    if len(np.unique(codes[:, -1])) == n:  # a level for every row, as launches within allocations
        return n
    basis = np.full((n, 1), 1 / np.sqrt(n))
    for column in codes.T:
        basis = np.concatenate([basis, _added(basis, _incidence(column))], axis=1)
    return basis.shape[1]


def _incidence(codes: np.ndarray) -> np.ndarray:
    levels, place = np.unique(codes, return_inverse=True)
    z = np.zeros((len(codes), len(levels)))
    z[np.arange(len(codes)), place.ravel()] = 1.0
    return z


def _above(squares: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The sums of `squares`, with 0 for those at the level of rounding."""
    return np.where(squares > noise, squares, 0.0)


def _added(basis: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span what `z` adds to `basis`."""
    if basis.shape[1] >= len(z):
        return np.zeros((len(z), 0))
    rest = z - basis @ (basis.T @ z)
    rest -= basis @ (basis.T @ rest)  # a second projection removes the rounding of the first
    u, s, _ = np.linalg.svd(rest, full_matrices=False)
    return u[:, s > RANK * np.linalg.norm(z)]
