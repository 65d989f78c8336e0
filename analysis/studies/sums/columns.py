"""The columns of the tables of sums."""

from __future__ import annotations

from kernels.as_json import Column

OF = {"case": Column("str"), "operation": Column("str"), "variant": Column("str"), "backend": Column("str")}
SERIES = {**OF, "n": Column("int64", "elements")}
REFERENCE = Column("str", "source of the reference of V_s; empty without one")
BOUND = Column("float64", "if all are equal: upper bound of the probability of another result")
ARRAYS = {
    **SERIES, "array": Column("int64"), "samples": Column("float64"), "distinct": Column("float64", "results"),
    "effective": Column("float64", "number of outcomes"), "bound": BOUND,
    "median": Column("float64", "sum"), "pair_max": Column("float64", "V_s of any two samples"),
    "pair_median": Column("float64", "V_s of pairs of samples"), "least": Column("float64", "sum"),
    "most": Column("float64", "sum"), "own_ulp": Column("float64", "from the least to the largest", "ULP"),
    "shift": Column("float64", "V_s of the median from the reference"),
    "v_s_max": Column("float64", "of samples from the reference"),
    "v_s_quantile": Column("float64", "of samples from the reference"),
    "v_s_median": Column("float64", "of samples from the reference"),
    "ulp_max": Column("float64", "from the reference", "ULP"),
    "undefined": Column("float64", "samples without a V_s"),
    "error_median": Column("float64", "from the correctly rounded sum", "ULP"),
    "error_max": Column("float64", "from the correctly rounded sum", "ULP"),
    "s_d": Column("float64", "reference of V_s"), "reference": REFERENCE,
}  # fmt: skip
OVER_ARRAYS = {
    **SERIES, "reference": REFERENCE, "arrays": Column("int64"),
    "samples": Column("float64", "fewest of an array"),
    "differing": Column("int64", "arrays with more than one result"), "undefined": Column("float64"),
    "distinct": Column("float64", "of the array with the most"),
    "effective": Column("float64", "of the array with the most"), "pair_max": Column("float64", "the largest"),
    "own_ulp": Column("float64", "the largest", "ULP"), "shift": Column("float64", "the largest"),
    "v_s_max": Column("float64", "the largest"), "v_s_quantile": Column("float64", "the largest"),
    "ulp_max": Column("float64", "the largest", "ULP"), "error_max": Column("float64", "the largest", "ULP"),
    "pair_median": Column("float64", "median"), "error_median": Column("float64", "median", "ULP"), "bound": BOUND,
}  # fmt: skip
PRICES = {
    **SERIES, "guarantee": Column("str"), "samples": Column("int64"), "median_s": Column("float64", "of one call", "s"),
    "low_s": Column("float64", "", "s"), "high_s": Column("float64", "", "s"),
    "gb_per_s": Column("float64", "", "GB/s"), "ratio": Column("float64", "to the base"),
    "ratio_low": Column("float64"), "ratio_high": Column("float64"),
    "base": Column("str", "the fastest variant without a guarantee or from a library"),
}  # fmt: skip
SHAPES = {
    **SERIES, "shaped": Column("int64", "arrays"), "samples": Column("int64"),
    "discrete": Column("int64", "arrays with few values"),
    "kl": Column("float64", "divergence from a normal distribution, nats"),
    "normal_95": Column("float64", "95 % quantile of `kl` for normal samples"),
    "not_normal": Column("int64", "arrays"), "modes": Column("int64", "the fewest"),
    "modes_most": Column("int64", "the most"),
}  # fmt: skip
FITS = {
    **OF, "metric": Column("str", "`v_s_max` or `v_s_quantile`"), "sizes": Column("int64", "sizes of the fit"),
    "left_out": Column("int64", "sizes where half of the arrays do not differ"),
    "arrays": Column("int64", "fewest of a size"), "samples": Column("int64", "fewest of an array"),
    "samples_most": Column("int64", "most of an array"), "alpha": Column("float64", "of beta N^alpha"),
    "alpha_low": Column("float64"), "alpha_high": Column("float64"), "beta": Column("float64"),
    "beta_low": Column("float64"), "beta_high": Column("float64"),
    "nothing": Column("str", "why there is no fit; empty with a fit"),
}  # fmt: skip
WORST = {
    **SERIES, "array": Column("int64"), "low": Column("float64", "least sum of the search"),
    "high": Column("float64", "largest sum of the search"), "bound": Column("float64", "largest V_s of the search"),
    "v_s_max": Column("float64", "of the samples"),
    "share": Column("float64", "range of the samples over that of the search"),
    "outside": Column("bool", "a sample is outside the range of the search"),
}  # fmt: skip
