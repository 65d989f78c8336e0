"""`record.fingerprint` accepts everything with a bit pattern, and refuses the rest with the record's name."""

import ml_dtypes
import numpy as np
import pandas as pd
import pytest

from miniapps.programs.buffers import numbers

torch = pytest.importorskip("torch")
T = torch.linspace(0.1, 1.7, 12).reshape(4, 3)


@pytest.mark.parametrize(
    ("given", "dtype", "shape"),
    [
        (1.5, "float64", ()),
        (3, "int64", ()),
        (2j, "complex128", ()),
        (np.float32(1), "float32", ()),
        (pd.Series([1.0, 2.0]), "float64", (2,)),
        (T.T.requires_grad_(), "float32", (3, 4)),
        (torch.nn.Parameter(T.clone()), "float32", (4, 3)),
        (T.to(torch.complex64).conj(), "complex64", (4, 3)),
        (T.to(torch.float8_e4m3fn), "float8_e4m3fn", (4, 3)),
        (np.ones(2, ml_dtypes.float8_e5m2), "float8_e5m2", (2,)),
    ],
)
def test_what_has_a_bit_pattern_is_taken(given, dtype, shape):
    array = numbers(given, "fingerprint 'q'")
    assert (array.dtype.name, array.shape) == (dtype, shape)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_complex_numbers_of_two_halves_are_taken_as_both_parts():
    array = numbers(T.to(torch.complex32), "fingerprint 'q'")
    assert (array.dtype.name, array.shape) == ("float16", (4, 3, 2))


def test_an_array_of_a_library_that_numpy_can_read_is_taken():
    class Foreign:
        def __array__(self, dtype=None, copy=None):
            return np.ones(3, ml_dtypes.bfloat16)

    assert numbers(Foreign(), "fingerprint 'q'").dtype == ml_dtypes.bfloat16


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize != 16, reason="no padding")
def test_padding_of_a_long_double_is_no_part_of_the_number():
    one, same = np.ones(1, np.longdouble), np.ones(1, np.longdouble)
    same.view(np.uint8)[10:] = 7
    assert numbers(one, "q").tobytes() == numbers(same, "q").tobytes()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (T.to_sparse(), "sparse_coo: record its values and its indices"),
        (torch.empty(3, device="meta"), "meta has no numbers"),
        (pd.Series(["a"]).astype(object), "object is not a type of numbers"),
        ([1.0], "list has no bit pattern"),
        (None, "NoneType has no bit pattern"),
        (10**30, "object is not a type of numbers"),
        (object(), "object is not a buffer"),
    ],
)
def test_what_has_none_is_refused_by_the_name_of_the_record(given, reason):
    with pytest.raises(TypeError, match=f"^fingerprint 'q': .*{reason}"):
        numbers(given, "fingerprint 'q'")


@pytest.mark.slow
def test_of_a_distributed_tensor_the_part_of_this_rank_is_taken():
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        tensor = distribute_tensor(T, init_device_mesh("cpu", (1,)), [Shard(0)])
        assert np.array_equal(numbers(tensor, "fingerprint 'q'"), T.numpy())
    finally:
        distributed.destroy_process_group()
