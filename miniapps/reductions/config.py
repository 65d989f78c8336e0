"""Options of the reductions mini-app."""

from dataclasses import dataclass

from miniapps.runner.config import INT32, VALUES, option, section

OPERATIONS = ("sum", "dot")
DISTRIBUTIONS = ("uniform", "centred", "normal", "lognormal", "ill-conditioned", "file")
DTYPES = ("float64", "float32", "float16", "bfloat16")
SPLITS = ("elements", "arrays")
LENGTH = 2**40  # elements of an array, at most
ARRAYS = 100_000  # of one size, at most: rank 0 keeps one number per array and variant
DEFAULT_REFERENCE = "sptr"


@dataclass
class Problem:
    """The numbers to add. Random numbers are keyed by seed, array, size and logical block, never by rank."""

    operation: str = option(
        "sum", help="sums or dot products of the arrays", choices=OPERATIONS, flag="--operation"
    )
    sizes: tuple[int, ...] = option(
        (10, 100, 1000, 10000, 100000),
        help="length of the arrays (a file has its own); may be given several times",
        unit="elements",
        minimum=1,
        flag="--size",
        maximum=LENGTH,
        count=(1, VALUES),
        effect="size",
    )
    arrays: int = option(
        4,
        help="arrays of each size (a file has its own number)",
        minimum=1,
        flag="--arrays",
        maximum=ARRAYS,
        effect="size",
    )
    distribution: str = option(
        "uniform",
        help="uniform in (0, 10); centred: uniform in (-10, 10); normal (0, 1); lognormal (0, sigma); "
        "ill-conditioned: heavy cancellation; or from a file",
        choices=DISTRIBUTIONS,
        flag="--distribution",
    )
    sigma: float = option(
        1.0, help="lognormal: standard deviation of the logarithm", minimum=0.0, flag="--sigma", maximum=80.0
    )
    condition: float = option(
        1e8, help="ill-conditioned: sum|x| / |sum x|", minimum=2.0, flag="--condition", maximum=1e300
    )
    file: str = option(
        "", help="file: path of a .npy file, or FILE.h5:/DATASET of an HDF5 dataset", flag="--file"
    )
    dtype: str = option("float64", help="type of the elements", choices=DTYPES, flag="--dtype")
    block: int = option(65536, help="length of a logical block", unit="elements", minimum=1, maximum=LENGTH)


@dataclass
class Method:
    """The variants that add, and the number of their sums."""

    variants: tuple[str, ...] = option(
        (),
        help="a variant, NAME or NAME@BACKEND, or `all` for the guarantee and the device; may be given several times; "
        "none given: all",
        role="control",
        flag="--variant",
    )
    reference: str | None = option(
        None,
        help=f"the variant with which others are compared, which always runs; none: {DEFAULT_REFERENCE}, or else the "
        "one with the strongest guarantee",
        role="control",
        flag="--reference",
    )
    samples: int = option(
        10,
        help="sums of every array by every variant",
        role="control",
        minimum=1,
        flag="--samples",
        maximum=1_000_000_000,
        records=("values:*:*",),
    )
    worst: bool = option(
        False,
        help="search for the orders of arrival of `ao` and `spa` that drive a sum furthest down and up",
        role="control",
        flag="--worst",
        records=("values:worst-low:*", "values:worst-high:*"),
    )
    split: str = option(
        "elements",
        help="unit assigned to ranks: elements, the logical blocks of each array; or arrays, whole arrays, without "
        "sums across ranks",
        choices=SPLITS,
        role="method",
        flag="--split",
    )


@dataclass
class LaunchShape:
    """Launch shape of the variants that have one. It fixes the tree of additions, on the CPU too."""

    block: int | None = option(
        None, help="threads per GPU block; none: 256", role="method", minimum=32, maximum=1024
    )
    items: int | None = option(
        None, help="elements per thread, at least; none: 8", role="method", minimum=1, maximum=INT32
    )
    grid: int | None = option(
        None, help="GPU blocks, at most; none: 4096", role="method", minimum=1, maximum=INT32
    )
    resident: int | None = option(
        None,
        help="emulated: GPU blocks in flight at once; none: all",
        role="method",
        minimum=1,
        maximum=INT32,
    )


@dataclass
class ReductionsConfig:
    """All options of `python -m miniapps.reductions` beside the common ones."""

    problem: Problem = section(Problem)
    method: Method = section(Method)
    launch: LaunchShape = section(LaunchShape)
