"""Results of `fpna.torch` by definition: `exact` by Fraction, rounded once; `sorted` by one addition after the
other; `atomic` within the error bound of any order.

torch's own operator in float64 says which arguments each result adds: its derivative has the multiplicities.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import torch

from tests.rational import BFLOAT16, rational_sum

TYPES = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: BFLOAT16,
}


@dataclass
class Call:
    """One call: ours and torch's, as functions of the floating-point arguments."""

    mine: Callable
    theirs: Callable
    tensors: list
    sums: Callable | None = None  # (*tensors, order): the sums alone; None: `theirs`
    factor: float = 1  # of the last argument, each product rounded
    divides: bool = False  # each sum by the number of its terms
    reads: bool = False  # the value is torch's own; only gradients add
    descends: bool = False  # gradients add from the last term to the first
    spread: tuple | None = None  # the shape to which the last argument is broadcast
    check: Callable | None = None  # instead of all of these


def check(call: Call, order: str, theirs, value, grads, grad, v, twice) -> list[str]:
    """What is wrong with a value, its gradients for `grad`, and `twice`, the gradient of <last gradient, v> by `grad`.

    `theirs` is the value of torch.
    """
    if call.check is not None:
        return call.check(call, order, theirs, value, grads, grad, v, twice)
    kind, order = value.dtype, "exact" if order == "atomic" and call.descends else order
    tensors = [x.detach() for x in call.tensors]
    if call.spread is not None:
        tensors[-1] = tensors[-1].expand(call.spread)
    given = [x.double().requires_grad_() for x in tensors]
    m = matrix(lambda *x: call.sums(*x, order=order) if call.sums else call.theirs(*x), given)
    terms = [x.to(kind) for x in tensors]
    terms[-1] = scaled(terms[-1], call.factor)
    divisors = m.sum(1) if call.divides else None
    wrong = []
    if call.reads:
        if not same(value, theirs):
            wrong.append(f"value {value.tolist()}, not {theirs.tolist()}")
    else:
        wrong += forward(order, m, torch.cat([x.reshape(-1) for x in terms]), value, divisors)
    before = sum(x.numel() for x in terms[:-1])
    if twice is not None:
        second = scaled(v.detach().to(kind).expand(terms[-1].shape), call.factor).reshape(-1)
        wrong += [f"twice: {found}" for found in forward(order, m[:, before:], second, twice, divisors)]
    shares = grad.detach().reshape(-1)
    if call.divides:
        shares = divided(shares, divisors)
    column = 0
    for k, (x, found) in enumerate(zip(tensors, grads, strict=True)):
        of, parts = m[:, column : column + x.numel()].T, shares
        column += x.numel()
        if k and k == len(grads) - 1:
            parts = scaled(shares, call.factor)
            if (
                call.spread is not None
            ):  # each place has the gradient of one result; those of a value are added
                parts = parts[of.argmax(1)] if of.size else parts[:0]
                of = matrix(
                    lambda y: y.expand(call.spread), [call.tensors[k].detach().double().requires_grad_()]
                ).T
        wrong += [f"gradient {k}: {w}" for w in forward(order, of, parts, found, None, call.descends, kind)]
    return wrong


def forward(order, m, x, found, divisors=None, descending=False, between=None) -> list[str]:
    """What is wrong with `found`, the sums m x of elements of x, each added in a wider type, divided, rounded to the
    type `between` (None: that of `found`), and to that of `found`."""
    elements, wrong = wide(x), []
    for i, value in enumerate(found.detach().double().reshape(-1).tolist()):
        places = [j for j in np.flatnonzero(m[i]) for _ in range(int(m[i][j]))]
        terms = elements[places[::-1] if descending else places]
        divisor = None if divisors is None else divisors[i]
        problem = wrong_sum(order, terms, value, found.dtype, divisor, between)
        if problem:
            wrong.append(f"element {i}: {problem}")
    return wrong


def wrong_sum(
    order: str, terms: np.ndarray, found: float, narrow: torch.dtype, divisor=None, between=None
) -> str:
    """What is wrong with `found`, as `forward` says it; "" if nothing is."""
    if order == "atomic":
        return beyond_bound(terms, found, narrow, divisor)
    with np.errstate(all="ignore"):
        total = terms.dtype.type(0)
        for term in terms:
            total = total + term
        if order == "exact":
            to = (
                terms.dtype if divisor is None else np.dtype(TYPES[between or narrow])
            )  # a mean is rounded once
            total = np.float64(rational_sum(terms, 1 if divisor is None else int(divisor), to)[0])
        elif divisor is not None:
            total = total / terms.dtype.type(divisor)
    expected = torch.from_numpy(np.array(total)).to(between or narrow).to(narrow).double().item()
    if same_number(expected, found):
        return ""
    return f"{found!r}, not {expected!r}: {order} sum of {terms.tolist()}" + (
        f" / {divisor}" if divisor else ""
    )


def beyond_bound(terms, found, narrow, divisor) -> str:
    numbers = [Fraction(float(t)) for t in terms if np.isfinite(t)]
    size, info = sum(map(abs, numbers), Fraction(0)), torch.finfo(narrow)
    if len(numbers) < len(terms) or size > Fraction(info.max) / 2 or divisor == 0:
        return ""
    divisor = Fraction(1 if divisor is None else divisor)
    exact, unit = sum(numbers, Fraction(0)) / divisor, Fraction(float(np.finfo(terms.dtype).eps))
    bound = (len(numbers) + 2) * unit * size / divisor
    bound += Fraction(info.eps) * (abs(exact) + bound) + 2 * Fraction(info.smallest_normal) * Fraction(
        info.eps
    )
    if math.isfinite(found) and abs(Fraction(found) - exact) <= bound:
        return ""
    return f"{found!r}, not {float(exact)!r} within {float(bound)!r}"


def matrix(function, given) -> np.ndarray:
    """How often each element of all tensors of `given` is a term of each element of function(*given)."""
    out = function(*given).reshape(-1)
    rows = np.zeros((out.numel(), sum(x.numel() for x in given)))
    for i in range(out.numel()):
        grads = torch.autograd.grad(out[i], given, retain_graph=True)
        rows[i] = torch.cat([g.reshape(-1) for g in grads]).numpy()
    return rows


# ---- operators that are more than sums


def maxima(x, index, options, order):
    """torch's embedding_bag of mode max; for `exact` the row of least number has the gradient of equal ones."""
    if order == "exact" and index.ndim == 2:
        index = index.sort(1).values
    elif order == "exact":
        ends = [*options["offsets"].tolist(), len(index)]
        parts = [index[a:b].sort().values for a, b in pairwise(ends)]
        index = torch.cat([index[:0], *parts])
    return torch.nn.functional.embedding_bag(index, x, **options)


def shared(call, order, theirs, value, grads, grad, v, twice, dim) -> list[str]:
    """amax: each element that equals the largest has its share of the gradient."""
    (x,), wrong = call.tensors, []
    if not same(value, theirs + 0.0):
        wrong.append(f"value {value.tolist()}, not {theirs.tolist()}")
    given = x.detach().double().requires_grad_()
    m = matrix(lambda x: torch.sum(x, dim), [given])
    largest, flat = theirs.double().reshape(-1), x.detach().double().reshape(-1).numpy()
    equal = m * (flat[None, :] == largest.numpy()[:, None])
    counts = equal.sum(1)
    if np.isnan(largest.numpy()).any():
        return wrong  # the gradient is NaN there: beside torch's below
    shares, of = divided(grad.detach().reshape(-1), counts), m.argmax(0) if len(m) else []
    expected = scaled(shares[of], torch.from_numpy(equal.sum(0)))
    if not same(grads[0].reshape(-1), expected):
        wrong.append(f"gradient {grads[0].tolist()}, not {expected.tolist()}")
    sums = torch.zeros(len(counts), dtype=v.dtype)
    for i in range(len(counts)):
        terms = wide(v)[np.flatnonzero(equal[i])]
        with np.errstate(all="ignore"):
            total = (
                rational_sum(terms)[0]
                if order == "exact"
                else np.add.accumulate(np.append(terms[:0], terms))[-1]
            )
        sums[i] = torch.from_numpy(np.array(total)).to(v.dtype)
    expected = divided(sums, counts)
    if order != "atomic" and not same(twice.reshape(-1), expected):
        wrong.append(f"twice: {twice.tolist()}, not {expected.tolist()}")
    return wrong


def bags(call, order, theirs, value, grads, grad, v, twice, index, options) -> list[str]:
    """embedding_bag of sums and means, with weights or none: rows of the table, or their products with weights, each
    rounded, are added by bag; gradients by row, and by weight."""
    table, *weights = (x.detach() for x in call.tensors)
    flat, n, features = index.reshape(-1).long(), index.numel(), table.shape[1]
    padding = options["padding_idx"]
    kept = flat != (len(table) if padding is None else padding % len(table))
    # The rows of each bag, from torch's sums of a table of n rows; those of the padding are left out.
    own = {**options, "mode": "sum", "padding_idx": None}
    apart = torch.arange(n).reshape(index.shape).to(index.dtype)
    given = torch.zeros(n, features, dtype=torch.float64, requires_grad=True)
    m = matrix(lambda t: torch.nn.functional.embedding_bag(apart, t * kept[:, None], **own), [given])
    divisors = np.maximum(m.sum(1), 1) if options["mode"] == "mean" else None
    rows, factor = table[flat], weights[0].reshape(-1, 1) if weights else 1.0
    wrong = forward(order, m, scaled(rows, factor), value, divisors)
    second = scaled(rows, v.reshape(-1, 1)) if weights else v.detach()[flat]
    wrong += [f"twice: {w}" for w in forward(order, m, second, twice, divisors)]
    shares = grad.detach().reshape(-1)
    shares = shares if divisors is None else divided(shares, divisors)
    # The share of each row is that of its bag; some rows are in none.
    inside = m.sum(0)
    shares = torch.where(torch.from_numpy(inside > 0), shares[m.argmax(0)] if len(m) else 0, 0).reshape(
        n, features
    )
    places = np.arange(n * features)
    by_row = np.zeros((table.numel(), n * features))
    by_row[flat.numpy()[places // max(features, 1)] * features + places % max(features, 1), places] = inside
    wrong += [f"gradient of the table: {w}" for w in forward(order, by_row, scaled(shares, factor), grads[0])]
    if weights and features == 1:  # nothing is added; rows in no bag give +0.0
        expected = torch.where(torch.from_numpy(inside > 0), scaled(shares, rows)[:, 0], 0)
        if not same(grads[1], expected):
            wrong.append(f"gradient of weights: {grads[1].tolist()}, not {expected.tolist()}")
    elif weights:
        by_weight = np.zeros((n, n * features))
        by_weight[places // max(features, 1), places] = inside
        wrong += [
            f"gradient of weights: {w}" for w in forward(order, by_weight, scaled(shares, rows), grads[1])
        ]
    return wrong


# ---- elements


def wide(x: torch.Tensor) -> np.ndarray:
    """The elements of `x` in the type in which they are added."""
    return x.detach().to(torch.float64 if x.dtype == torch.float64 else torch.float32).reshape(-1).numpy()


def scaled(x: torch.Tensor, factor) -> torch.Tensor:
    """x * factor in the wider type, each rounded to the type of x."""
    if isinstance(factor, torch.Tensor):
        factor = wide(factor.expand(x.shape).contiguous()).reshape(x.shape)
    with np.errstate(all="ignore"):
        product = wide(x).reshape(x.shape) * np.asarray(factor, dtype=wide(x).dtype)
    return torch.from_numpy(np.asarray(product)).to(x.dtype)


def divided(x: torch.Tensor, counts: np.ndarray) -> torch.Tensor:
    """x / counts in the wider type, each rounded to the type of x."""
    with np.errstate(all="ignore"):
        return torch.from_numpy(wide(x) / counts.astype(wide(x).dtype)).to(x.dtype)


def same_number(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the bits agree, but for those of NaN."""
    pairs = zip(a.double().reshape(-1).tolist(), b.double().reshape(-1).tolist(), strict=True)
    return all(same_number(x, y) for x, y in pairs)
