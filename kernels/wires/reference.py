"""The definition of every codec, cell by cell, in NumPy; the other implementations have the same bits.

A cell of m elements is a head and a stream of m codes of `bits` bits each. Element i is in bits [i bits, (i + 1) bits)
of the stream, low bits first, padded with zeros to a whole byte. All numbers are little-endian. No bit depends on the
order of a sum: maxima, counts and histograms have none, and `in_lanes` fixes the order for means and lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LANES = 16
BINS = 512  # of a histogram: 16 powers of two, 32 bins in each
BIN_SHIFT = 18  # bits of a float32 below those that make the bin
INFINITY = 0x7F800000  # bits of float32
QUIET_NAN = np.array(0x7FC00000, "<u4").view("<f4")[()]


@dataclass(frozen=True)
class Format:
    """A floating-point format with 1 sign bit, an exponent with a bias, and a mantissa."""

    bits: int
    mantissa: int
    bias: int
    top: int  # numbers of magnitude below 2^(top + 1) stay finite
    infinity: int  # least code of an infinity or NaN; e4m3 has only the NaN 0x7F
    most: int  # bits of the float32 that replaces larger finite magnitudes: the largest number, or infinity


FORMATS = {
    "float16": Format(16, 10, 15, 15, 0x7C00, INFINITY),
    "bfloat16": Format(16, 7, 127, 127, 0x7F80, INFINITY),
    "e4m3": Format(8, 3, 7, 8, 0x7F, INFINITY),
    "e5m2": Format(8, 2, 15, 15, 0x7C, INFINITY),
    "fp8": Format(8, 2, 15, 15, 0x7C, 0x47600000),  # 57344
}
INTEGERS = {"int8": 7, "int16": 15}  # bits without the sign
FOUR = {  # formats of 4 bits, which have no infinity and no NaN: larger magnitudes become the largest number
    "e2m1": Format(4, 1, 1, 2, 8, 0x40C00000),  # 6
    "e3m0": Format(4, 0, 3, 4, 8, 0x41800000),  # 16
}
BLOCKED = {"int4": 2} | dict.fromkeys(FOUR, 1)  # codecs in blocks of a cell: bytes of a block's head
TINY = 0x0D800000  # bits of 2^-100: a block whose magnitudes are all smaller becomes zero
GROUP = 32  # elements that a rotation mixes


def bits_of(x: np.ndarray) -> np.ndarray:
    """The bits of float32 as uint32."""
    return np.ascontiguousarray(x, "<f4").view("<u4")


def power(e: int) -> np.float32:
    """2^e, with e limited to [-126, 126], so that the power and its inverse are normal numbers."""
    return np.float32(2.0) ** np.float32(min(max(e, -126), 126))


def exponent(magnitude: int) -> int:
    """The e with 2^e <= magnitude < 2^(e + 1), for the bits of a float32; -127 for zero and subnormal numbers."""
    return (int(magnitude) >> 23) - 127


def in_lanes(x: np.ndarray) -> np.float64:
    """The sum of float64 numbers: lane l adds x[l], x[l + 16], ... to 0; then lane i adds i + w for w = 8, 4, 2, 1."""
    rows = np.zeros((-(-len(x) // LANES), LANES))
    rows.reshape(-1)[: len(x)] = x
    lanes = np.zeros(LANES)
    for row in rows:
        lanes = lanes + row
    for w in (8, 4, 2, 1):
        lanes = lanes[:w] + lanes[w : 2 * w]
    return lanes[0]


def cast(x: np.ndarray, to: Format) -> np.ndarray:
    """The codes of float32 numbers, uint32, rounded to nearest, ties to even."""
    b = bits_of(x)
    sign, magnitude = b >> 31, b & 0x7FFFFFFF
    nan, infinite = magnitude > INFINITY, magnitude == INFINITY
    magnitude = np.minimum(magnitude, to.most)
    shift = 23 - to.mantissa
    half = (1 << (shift - 1)) - 1
    normal = (magnitude + half + ((magnitude >> shift) & 1) >> shift) - ((127 - to.bias) << to.mantissa)
    # The unit of subnormal numbers is the last place of `unit`.
    unit = np.float32(2.0) ** np.float32(24 - to.bias - to.mantissa)
    small = np.where(magnitude < (128 - to.bias) << 23, magnitude, 0).astype("<u4").view("<f4")
    subnormal = bits_of(small + unit) - bits_of(np.array([unit]))
    code = np.where(magnitude < (128 - to.bias) << 23, subnormal, normal).astype("<u4")
    code = np.where(infinite, to.infinity, np.minimum(code, to.infinity))
    payload = (b >> shift) & ((1 << to.mantissa) - 1) if to.bits == 16 else 0  # 16 bits: as processors do
    quiet = payload | to.infinity | (1 << to.mantissa) >> 1
    return (np.where(nan, quiet, code) | sign << (to.bits - 1)).astype("<u4")


def widen(code: np.ndarray, of: Format) -> np.ndarray:
    """The float32 numbers of codes; the bits of a NaN are not defined."""
    code = code.astype("<u4")
    sign, magnitude = code >> (of.bits - 1), code & ((1 << (of.bits - 1)) - 1)
    shift = 23 - of.mantissa
    number = np.where(magnitude < of.infinity, magnitude << shift, 0).astype("<u4").view("<f4")
    number = number * np.float32(2.0) ** np.float32(127 - of.bias)
    other = np.where((magnitude == of.infinity) & (of.infinity != 0x7F), INFINITY, 0x7FC00000)
    return (np.where(magnitude >= of.infinity, other, bits_of(number)) | sign << 31).astype("<u4").view("<f4")


def largest(x: np.ndarray) -> int:
    """The largest magnitude of finite elements, as bits of float32; 0 if there are none."""
    magnitude = bits_of(x) & 0x7FFFFFFF
    return int(magnitude[magnitude < INFINITY].max(initial=0))


def finite(x: np.ndarray) -> bool:
    """Whether all elements are finite."""
    return bool(((bits_of(x) & 0x7FFFFFFF) < INFINITY).all())


def percentiles(x: np.ndarray, entries: int) -> np.ndarray:
    """The percentiles 99 k / entries of abs(x), k = 1 ... entries, as bfloat16 codes; x finite, not empty.

    Percentile p of m elements is the lowest bin such that it and the bins below have at least p m / 100 elements. A bin
    has one exponent and 5 bits of the mantissa, counted down from the largest magnitude; its value is its middle. The
    lowest bin has all elements below about 2^-16 of the largest; its value is zero.
    """
    key = (bits_of(x) & 0x7FFFFFFF) >> BIN_SHIFT
    top = int(key.max())
    least = max(top - (BINS - 1), 0)
    count = np.bincount(np.maximum(key, least) - least, minlength=BINS)
    below = np.cumsum(count)
    needed = -(-99 * np.arange(1, entries + 1) * len(x) // (100 * entries))
    chosen = np.searchsorted(below, needed)
    return np.where(chosen == 0, 0, (chosen + least) << 2 | 2).astype("<u2")


def table_codes(x: np.ndarray, table: np.ndarray, n: int) -> np.ndarray:
    """Codes of the sign and the place of the entry nearest to abs(x), the lower of two; `table` float32, ascending.

    The place is the number of means (t[j] + t[j + 1]) / 2 that abs(x) exceeds.
    """
    middle = (table[:-1] + table[1:]) * np.float32(0.5)
    place = (np.abs(x)[:, None] > middle).sum(1)
    return place.astype("<u4") | (bits_of(x) >> 31) << (n - 1)


def pack(codes: np.ndarray, bits: int) -> bytes:
    """The bit stream of codes."""
    each = (codes[:, None] >> np.arange(bits, dtype="<u4")) & 1
    return np.packbits(each.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def unpack(data: bytes, bits: int, m: int) -> np.ndarray:
    """The m codes of a bit stream, uint32."""
    each = np.unpackbits(np.frombuffer(data, np.uint8), count=m * bits, bitorder="little").reshape(m, bits)
    return (each.astype("<u4") << np.arange(bits, dtype="<u4")).sum(1, dtype="<u4")


def rotated(x: np.ndarray) -> np.ndarray:
    """The products of a Hadamard matrix of order 32 (Sylvester's, of +1 and -1) and each 32 neighbours of x; the rest,
    fewer than 32, stay. The sums and differences of elements 1, 2, 4, 8, 16 apart, in this order, each rounded to
    float32. Twice gives 32 x."""
    y = x.copy()
    groups = y[: len(x) // GROUP * GROUP].reshape(-1, GROUP)
    for apart in (1, 2, 4, 8, 16):
        pairs = groups.reshape(-1, 2, apart)
        sums, differences = pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]
        pairs[:, 0], pairs[:, 1] = sums, differences
    return y


def encode_blocks(name: str, block: int, rotate: bool, x: np.ndarray) -> bytes:
    """The bytes of a cell in blocks: the heads of all blocks, then a stream of 4 bits for each element.

    `int4`: the head is the least bfloat16 of which the largest magnitude is at most 7 times; an element is its nearest
    multiple, in two's complement. `e2m1`, `e3m0`: elements are divided by a power of two, so that the largest magnitude
    lies in the format's last binade; the head is its exponent plus 127 (E8M0 of the OCP Microscaling Formats)."""
    x = rotated(x) if rotate else x
    made = [_block(name, x[first : first + block]) for first in range(0, len(x), block)]
    return b"".join(head for head, _ in made) + pack(np.concatenate([codes for _, codes in made]), 4)


def _block(name: str, x: np.ndarray) -> tuple[bytes, np.ndarray]:
    """The head of a block, and its codes. A block with a NaN or an infinity has a NaN as its head."""
    if not finite(x):
        head = np.array([0x7FC0], "<u2").tobytes() if name == "int4" else b"\xff"
        return head, np.zeros(len(x), "<u4")
    top = largest(x)
    if name == "int4":
        seventh = bits_of(np.array([top], "<u4").view("<f4") / np.float32(7))[0]
        number = (int(seventh) + 0xFFFF) >> 16 if top >= TINY else 0
        unit = np.array([number << 16], "<u4").view("<f4")[0]
        whole = np.rint(x * (np.float32(1) / unit if unit else np.float32(0)))
        codes = np.clip(whole, -7, 7).astype("<i4").view("<u4") & 15
        return np.array([number], "<u2").tobytes(), codes
    form = FOUR[name]
    e = exponent(top + (1 << (22 - form.mantissa))) - form.top
    by = power(-e) if top >= TINY else np.float32(0)
    return bytes([e + 127 if top >= TINY else 0]), cast(x * by, form)


def decode_blocks(name: str, block: int, rotate: bool, data: bytes, m: int) -> np.ndarray:
    """The m elements of a cell in blocks, float32."""
    count = -(-m // block)
    heads, codes = data[: BLOCKED[name] * count], unpack(data[BLOCKED[name] * count :], 4, m)
    if name == "int4":
        units = (np.frombuffer(heads, "<u2").astype("<u4") << 16).view("<f4")
        values = ((codes ^ 8).astype("<i4") - 8).astype("<f4")
    else:
        units = np.array([power(head - 127) if head < 255 else QUIET_NAN for head in heads], "<f4")
        values = widen(codes, FOUR[name])
    units = np.repeat(units, block)[:m]
    if not rotate:
        return values * units
    whole = m // GROUP * GROUP
    return np.concatenate(
        [rotated(values)[:whole] * (units[:whole] * np.float32(1 / GROUP)), (values * units)[whole:]]
    )


def encode_values(name: str, n: int, x: np.ndarray, rotate: bool = False) -> bytes:
    """The bytes of a cell without scale: head and stream. `n`: bits of a table, or elements of a block."""
    if name == "float32":
        return x.tobytes()
    if name in BLOCKED:
        return encode_blocks(name, n, rotate, x)
    if name in FORMATS:
        return pack(cast(x, FORMATS[name]), FORMATS[name].bits)
    if name in INTEGERS:
        return _integers(x, INTEGERS[name])
    sign = bits_of(x) >> 31
    if name == "sign":
        return _means(x, sign).tobytes() + pack(sign, 1)
    entries = 1 << (n - 1)
    if not finite(x):
        return np.full(entries, 0x7FC0, "<u2").tobytes() + pack(sign << (n - 1), n)
    table = percentiles(x, entries)
    return table.tobytes() + pack(table_codes(x, widen(table, FORMATS["bfloat16"]), n), n)


def _integers(x: np.ndarray, bits: int) -> bytes:
    """The bytes of a cell of integers; the head is the unit, float32, a power of two for which the largest magnitude
    fits."""
    to = f"<i{(bits + 1) // 8}"
    if not finite(x):
        return QUIET_NAN.tobytes() + np.zeros(len(x), to).tobytes()
    unit = power(exponent(largest(x)) + 1 - bits)
    whole = np.clip(np.rint(x * (np.float32(1) / unit)), 1 - 2**bits, 2**bits - 1)
    return unit.tobytes() + whole.astype(to).tobytes()


def _means(x: np.ndarray, sign: np.ndarray) -> np.ndarray:
    """(mean of the elements without a sign bit, mean of those with one), float32; 0 without elements."""
    if not finite(x):
        return np.full(2, QUIET_NAN, "<f4")
    of = [
        (in_lanes(np.where(sign == s, x, 0).astype(np.float64)), np.count_nonzero(sign == s)) for s in (0, 1)
    ]
    return np.array([total / count if count else 0 for total, count in of], "<f4")


def decode_values(name: str, n: int, data: bytes, m: int, rotate: bool = False) -> np.ndarray:
    """The m elements of a cell without scale, float32."""
    if name == "float32":
        return np.frombuffer(data, "<f4", m)
    if name in BLOCKED:
        return decode_blocks(name, n, rotate, data, m)
    if name in FORMATS:
        return widen(unpack(data, FORMATS[name].bits, m), FORMATS[name])
    if name in INTEGERS:
        whole = np.frombuffer(data[4:], f"<i{(INTEGERS[name] + 1) // 8}", m).astype("<f4")
        return whole * np.frombuffer(data, "<f4", 1)
    if name == "sign":
        return np.frombuffer(data, "<f4", 2)[unpack(data[8:], 1, m)]
    entries = 1 << (n - 1)
    table = widen(np.frombuffer(data, "<u2", entries), FORMATS["bfloat16"])
    return np.concatenate([table, -table])[unpack(data[2 * entries :], n, m)]


def factor(x: np.ndarray, decoded: np.ndarray) -> np.float32:
    """The ratio of the Euclidean lengths of x and `decoded`; 1 where `decoded` has length 0, or one is not finite."""
    a, b = (in_lanes(v.astype(np.float64) ** 2) for v in (x, decoded))
    return np.float32(np.sqrt(a) / np.sqrt(b)) if np.isfinite(a + b) and b > 0 else np.float32(1)


def encode_cell(name: str, n: int, scale: str, x: np.ndarray, rotate: bool = False) -> bytes:
    """The bytes of a cell with the elements x, float32 (m,); a scale precedes the head of the codec."""
    if scale == "tensor":
        s = power(exponent(largest(x)) - (FORMATS[name].top - 1))
        return s.tobytes() + encode_values(name, n, x * (np.float32(1) / s))
    data = encode_values(name, n, x, rotate)
    return (
        factor(x, decode_values(name, n, data, len(x), rotate)).tobytes() + data if scale == "match" else data
    )


def decode_cell(name: str, n: int, scale: str, data: bytes, m: int, rotate: bool = False) -> np.ndarray:
    """The m elements of a cell, float32."""
    if scale == "none":
        return decode_values(name, n, data, m, rotate)
    return decode_values(name, n, data[4:], m, rotate) * np.frombuffer(data, "<f4", 1)


def quality(x: np.ndarray, decoded: np.ndarray) -> tuple[float, float, float]:
    """(relative error, cosine of the angle, ratio of lengths) of `decoded` against `x`, in float64.

    error = |decoded - x| / |x|, ratio = |decoded| / |x|, Euclidean. For x = 0: (0, 1, 1) if `decoded` is zero too, else
    (inf, 0, inf). If only `decoded` is zero: (1, 0, 0).
    """
    x, decoded = (np.asarray(v, np.float64).reshape(-1) for v in (x, decoded))
    # Not by BLAS, whose order of additions follows the processor.
    a, b, apart = (float(np.sqrt(np.sum(v * v))) for v in (x, decoded, decoded - x))
    if not a:
        return (float("inf"), 0.0, float("inf")) if b else (0.0, 1.0, 1.0)
    return apart / a, float(np.sum(x * decoded)) / (a * b) if b else 0.0, b / a
