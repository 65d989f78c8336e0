"""The reductions app: its numbers, its choice of variants, its errors."""

import zlib
from fractions import Fraction

import h5py
import ml_dtypes
import numpy as np
import pytest

from kernels import registry
from kernels.guarantees import ChoiceError, meets
from kernels.sums.launch import shape
from miniapps.errors import UsageError
from miniapps.reductions import APP, data, files, illconditioned
from miniapps.reductions.choice import EMULATED, choose, label
from miniapps.reductions.config import DTYPES, OPERATIONS, Problem, ReductionsConfig
from miniapps.reductions.parts import Parts
from miniapps.reductions.validate import launch_shape, validate
from miniapps.runner import commandline
from miniapps.runner.options import RunOptions
from tests.fuzz.sandbox import forget_memory, tree_memory


def whole(problem, array=0, n=None, seed=1):
    """The vectors of one array, on one rank."""
    return data.vectors(problem, seed, array, Parts(n or problem.sizes[0], problem.block))


def configured(**settings):
    """A configuration with `section__name=value`."""
    config = ReductionsConfig()
    for key, value in settings.items():
        part, name = key.split("__")
        assert hasattr(getattr(config, part), name), key
        setattr(getattr(config, part), name, value)
    return config


def policy(level):
    """What a run with that guarantee, and no other option, goes by."""
    return RunOptions(guarantee=level).policy


def condition(vectors):
    """sum|t| / |sum t| of the terms t, in exact arithmetic."""
    terms = [Fraction(1)] * len(vectors[0])
    for vector in vectors:
        terms = [term * Fraction(float(x)) for term, x in zip(terms, vector, strict=True)]
    return float(sum(abs(term) for term in terms) / abs(sum(terms)))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("shuffle", [0, 5])
def test_every_block_has_one_owner_however_many_ranks_there_are(size, shuffle):
    parts = [Parts(1000, 64, size, rank, shuffle) for rank in range(size)]
    assert sorted(block for part in parts for block in part.own) == list(range(16))
    assert sum(part.elements for part in parts) == 1000
    for part in parts:
        lengths = [stop - start for start, stop in part.cuts]
        assert lengths == [1000 - 15 * 64 if block == 15 else 64 for block in part.own]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("distribution", ["uniform", "centred", "normal", "lognormal", "ill-conditioned"])
def test_the_numbers_depend_on_no_layout(distribution, operation):
    problem = Problem(distribution=distribution, operation=operation, block=100, condition=1e5)
    expected = whole(problem, n=1050)
    for shuffle in (0, 3):
        for rank in range(3):
            part = Parts(1050, 100, 3, rank, shuffle)
            for vector, reference in zip(data.vectors(problem, 1, 0, part), expected, strict=True):
                for block, (start, stop) in zip(part.own, part.cuts, strict=True):
                    same = reference[block * 100 : block * 100 + stop - start]
                    assert vector[start:stop].tobytes() == same.tobytes()


def test_seed_array_and_size_each_give_other_numbers():
    problem = Problem(sizes=(50,))
    drawn = [
        whole(problem, array, n, seed)[0][:50].tobytes()
        for array, n, seed in ((0, 50, 1), (1, 50, 1), (0, 51, 1), (0, 50, 2))
    ]
    assert len(set(drawn)) == 4


def test_distributions_have_their_moments():
    n = 200_000
    for settings, mean, deviation in (
        (dict(distribution="uniform"), 5.0, 10 / 12**0.5),
        (dict(distribution="centred"), 0.0, 20 / 12**0.5),
        (dict(distribution="normal"), 0.0, 1.0),
        (dict(distribution="lognormal", sigma=0.5), np.exp(0.125), (np.exp(0.5) - np.exp(0.25)) ** 0.5),
    ):
        x = whole(Problem(**settings), n=n)[0]
        assert abs(x.mean() - mean) < 5 * deviation / n**0.5
        assert abs(x.std() - deviation) < 0.02 * deviation
    assert whole(Problem(), n=n)[0].min() >= 0 and whole(Problem(), n=n)[0].max() <= 10


@pytest.mark.parametrize("dtype", DTYPES)
def test_narrower_types_hold_the_same_numbers_rounded(dtype):
    x = whole(Problem(dtype=dtype, distribution="normal"), n=1000)[0]
    wide = whole(Problem(distribution="normal"), n=1000)[0]
    assert x.dtype == data.element_type(dtype) and x.tobytes() == wide.astype(x.dtype).tobytes()


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("dtype", "n", "block", "wanted"),
    [
        ("float64", 10, 4096, 1e10),
        ("float64", 1000, 300, 2.0),
        ("float64", 1001, 100, 1e16),  # a block of one element at the end
        ("float64", 2000, 700, 1e100),
        ("float64", 1500, 1500, 1e250),
        ("float32", 1000, 500, 1e20),
        ("float16", 600, 600, 1e4),
        ("bfloat16", 1000, 1000, 1e12),
    ],
)
def test_ill_conditioned_numbers_have_the_condition_number_asked_for(operation, dtype, n, block, wanted):
    problem = Problem(
        distribution="ill-conditioned", condition=wanted, dtype=dtype, block=block, operation=operation
    )
    for array in range(3):
        number = condition(whole(problem, array, n))
        assert abs(number / wanted - 1) < 1 / 16, number


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 3, 17, 1000])
def test_the_largest_condition_number_that_is_admitted_can_be_built(operation, dtype, n):
    vectors, kind = data.vectors_of(operation), data.element_type(dtype)
    most = illconditioned.limit(n, n, kind, vectors)
    if most < 1:
        pytest.skip("none is admitted")
    problem = Problem(distribution="ill-conditioned", condition=2.0**most, dtype=dtype, operation=operation)
    for array in range(10):
        assert abs(condition(whole(problem, array, n)) / problem.condition - 1) < 1 / 16


def test_lognormal_numbers_that_the_type_cannot_hold_are_refused():
    with pytest.raises(UsageError, match=r"problem\.sigma = 30.*float16"):
        whole(Problem(distribution="lognormal", sigma=30.0, dtype="float16"), n=100)


class TestFiles:
    @pytest.fixture
    def stored(self, tmp_path):
        """{name for --file: contents}, one array of each kind."""
        x = np.random.default_rng(1).normal(size=(3, 1000))
        np.save(tmp_path / "one.npy", x[0])
        np.save(tmp_path / "three.npy", x)
        np.save(tmp_path / "big-endian.npy", x.astype(">f8"))
        with h5py.File(tmp_path / "some.h5", "w") as file:
            file["group/x"] = x
        names = ("one.npy", "three.npy", "big-endian.npy", "some.h5:/group/x")
        return {f"{tmp_path}/{name}": np.atleast_2d(x[0] if name == "one.npy" else x) for name in names}

    def test_arrays_come_from_files_as_they_are_whoever_reads_them(self, stored):
        for name, x in stored.items():
            problem = Problem(distribution="file", file=name, block=64)
            assert data.extent(problem) == ([1000], len(x))
            for array, row in enumerate(x):
                assert whole(problem, array, 1000)[0].tobytes() == row.tobytes()
                part = Parts(1000, 64, 3, 1, 7)
                (vector,) = data.vectors(problem, 1, array, part)
                for block, (start, stop) in zip(part.own, part.cuts, strict=True):
                    assert (vector[start:stop] == row[block * 64 : block * 64 + stop - start]).all()

    def test_a_dot_product_takes_two_rows_for_an_array(self, tmp_path):
        x = np.random.default_rng(1).normal(size=(4, 2, 50)).astype(np.float32)
        np.save(tmp_path / "x.npy", x)
        problem = Problem(distribution="file", file=f"{tmp_path}/x.npy", operation="dot", dtype="float32")
        assert data.extent(problem) == ([50], 4)
        a, b = whole(problem, 2, 50)
        assert (a == x[2, 0]).all() and (b == x[2, 1]).all()

    def test_bfloat16_is_what_numpy_stores_without_a_name(self, tmp_path):
        x = np.arange(40).astype(ml_dtypes.bfloat16)
        np.save(tmp_path / "x.npy", x)
        problem = Problem(distribution="file", file=f"{tmp_path}/x.npy", dtype="bfloat16")
        assert data.extent(problem) == ([40], 1)
        assert whole(problem, 0, 40)[0].tobytes() == x.tobytes()

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (lambda path: None, r"cannot be read: No such file"),
            (lambda path: path.write_bytes(b"\x93NUMPY"), "cannot be read"),
            (lambda path: path.write_text("1 2 3"), "cannot be read"),
            (lambda path: np.save(path, np.arange(5)), r"holds int64, but problem\.dtype is float64"),
            (lambda path: np.save(path, np.zeros(5, np.float32)), "holds float32"),
            (lambda path: np.save(path, np.zeros((2, 2, 2))), r"shape \(2, 2, 2\); expected \(n,\)"),
            (lambda path: np.save(path, np.zeros(0)), "none of them empty"),
            (lambda path: np.save(path, np.array([{}]), allow_pickle=True), "cannot be read"),
            (lambda path: np.savez(path.open("wb"), a=np.zeros(3)), "cannot be read"),
            (lambda path: truncated(path), "cannot be read"),
        ],
    )
    def test_a_file_that_is_not_what_it_says_is_refused(self, tmp_path, make, reason):
        path = tmp_path / "x.npy"
        make(path)
        with pytest.raises(UsageError, match=reason) as caught:
            data.extent(Problem(distribution="file", file=str(path)))
        assert str(path) in str(caught.value)

    def test_an_hdf5_file_without_the_dataset_says_what_it_has(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["group/values"] = np.zeros(3)
        for name, reason in (
            (":/group/value", "did you mean /group/values"),
            (":/group", "no dataset /group .* There are: /group/values"),
            ("", "name the dataset too"),
        ):
            with pytest.raises(UsageError, match=reason):
                data.extent(Problem(distribution="file", file=f"{tmp_path}/x.h5{name}"))
        with h5py.File(tmp_path / "many.h5", "w") as file:
            for i in range(1500):
                file.create_group(f"{i:04}")
            file["z"] = np.zeros(3)
        with pytest.raises(UsageError, match=r"no dataset /y .* There are: none"):
            data.extent(Problem(distribution="file", file=f"{tmp_path}/many.h5:/y"))
        (tmp_path / "y.h5").write_text("no HDF5")
        with pytest.raises(UsageError, match="cannot be read"):
            data.extent(Problem(distribution="file", file=f"{tmp_path}/y.h5:/x"))

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("soft", "soft is a link, which may lead to another file"),
            ("external", "external is a link, which may lead to another file"),
            ("group/up/x", "up is a link, which may lead to another file"),
            ("elsewhere", "the data of elsewhere are in another file"),
            ("virtual", "the data of virtual are in another file"),
            ("lzf", "lzf needs another filter than deflate and shuffle"),
            ("text", "text does not hold plain numbers"),
            ("compound", "compound does not hold plain numbers"),
            ("nothing", r"has shape \(\); expected"),
            ("float", "cannot be read: Insufficient precision"),
            ("chunks", "has chunks of shape .*store it in chunks of at most"),
        ],
    )
    def test_a_dataset_lies_in_the_file_itself(self, tmp_path, name, reason):
        secret = tmp_path / "secret"
        secret.write_bytes(np.ones(3).tobytes())
        with h5py.File(tmp_path / "other.h5", "w") as file:
            file["x"] = np.zeros(3)
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["good"], file["group/x"] = np.zeros(3), np.zeros(3)
            file["soft"] = h5py.SoftLink("/good")
            file["external"] = h5py.ExternalLink("other.h5", "/x")
            file["group/up"] = h5py.SoftLink("/group")
            file.create_dataset("elsewhere", (3,), "f8", external=[(str(secret), 0, 24)])
            layout = h5py.VirtualLayout((3,), "f8")
            layout[:] = h5py.VirtualSource("other.h5", "x", (3,))
            file.create_virtual_dataset("virtual", layout)
            file.create_dataset("lzf", data=np.zeros(300), compression="lzf")
            file["text"] = "abc"
            file["compound"] = np.zeros(3, [("a", "f8")])
            file["nothing"] = h5py.Empty("f8")
            no_dtype = h5py.h5t.IEEE_F64LE.copy()
            no_dtype.set_ebias(99999)
            h5py.h5d.create(file.id, b"float", no_dtype, h5py.h5s.create_simple((3,)))
            file.create_dataset("chunks", (10**9,), "f8", chunks=(10**8,))
            file.create_dataset("deflated", data=np.arange(300.0), compression="gzip", shuffle=True)
        problem = Problem(distribution="file", file=f"{tmp_path}/x.h5:/deflated")
        assert whole(problem, 0, 300)[0].tolist() == list(range(300))
        with pytest.raises(UsageError, match=reason) as caught:
            data.extent(Problem(distribution="file", file=f"{tmp_path}/x.h5:/{name}"))
        assert f"--file {tmp_path}/x.h5:/{name}" in str(caught.value)

    def test_a_forged_chunk_is_not_unpacked_beyond_what_it_should_hold(self, tmp_path):
        """HDF5 would follow a chunk to whatever it unpacks to, in the process that asks for one element."""
        bomb = zlib.compress(bytes(2**27), 1)
        with h5py.File(tmp_path / "x.h5", "w") as file:
            for name, chunk, more in (
                ("long", 1000, bomb), ("short", 1000, zlib.compress(bytes(7999))), ("torn", 1000, bomb[:5000]),
                ("claim", 1000, bytes(10**6)), ("bomb", 10**5, bomb),
            ):  # fmt: skip
                file.create_dataset(
                    name, (2000,), "f8", maxshape=(None,), chunks=(chunk,), compression="gzip"
                )
                file[name].id.write_direct_chunk((0,), more)
        for name, words in (
            ("long", "packed"), ("short", "does not have 8,000 bytes"), ("torn", "cannot be unpacked|more or less"),
            ("claim", "packed"), ("bomb", "more or less"),
        ):  # fmt: skip
            problem = Problem(distribution="file", file=f"{tmp_path}/x.h5:/{name}")
            assert data.extent(problem) == ([2000], 1)
            forget_memory()
            before = tree_memory()
            with pytest.raises(UsageError, match=f"--file {tmp_path}/x.h5:/{name}: damaged.*({words})"):
                whole(problem, 0, 2000)
            assert tree_memory() - before < 2**24

    @pytest.mark.parametrize("dtype", ["<f8", ">f4"])
    @pytest.mark.parametrize("chunks", [(1, 1, 7), (2, 1, 100), (1, 2, 33)])
    def test_packed_parts_are_those_that_hdf5_reads(self, tmp_path, chunks, dtype):
        """Blocks across chunks, several arrays of two vectors in one chunk, chunks that were never written."""
        rng = np.random.default_rng(3)
        with h5py.File(tmp_path / "x.h5", "w") as file:
            x = file.create_dataset(
                "x", (3, 2, 100), dtype, chunks=chunks, compression="gzip", shuffle=True, fillvalue=-1.5
            )
            x[:, :, :40], x[1, :, 60:] = rng.standard_normal((3, 2, 40)), rng.standard_normal((2, 40))
            expected = x[...].astype(dtype[1:])
        name = f"{tmp_path}/x.h5:/x"
        for array in range(3):
            parts = Parts(100, 13, size=2, rank=1, shuffle=5)
            into = [np.empty(parts.elements, dtype[1:]) for _ in range(2)]
            files.read(name, np.dtype(dtype[1:]), array, parts, into)
            for vector, whole_vector in zip(into, expected[array], strict=True):
                own = [whole_vector[13 * block : 13 * block + 13] for block in parts.own]
                assert vector.tobytes() == np.concatenate(own).tobytes()

    def test_bfloat16_comes_from_hdf5_too(self, tmp_path):
        x = np.arange(40).astype(ml_dtypes.bfloat16)
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["x"] = x
        problem = Problem(distribution="file", file=f"{tmp_path}/x.h5:/x", dtype="bfloat16")
        assert whole(problem, 0, 40)[0].tobytes() == x.tobytes()


def truncated(path):
    np.save(path, np.zeros(1000))
    path.write_bytes(path.read_bytes()[:2000])


class TestChoice:
    @pytest.mark.parametrize("guarantee", ["none", "run", "layout", "exact"])
    def test_all_are_those_that_suit_the_guarantee(self, guarantee):
        needed = {"none": "none", "run": "run", "layout": "run", "exact": "exact"}[guarantee]
        chosen = choose("sum", (), None, policy(guarantee), "cpu")
        assert chosen and all(meets(v.guarantee, needed) for v in chosen)
        assert chosen[0].guarantee != "none"
        assert {label(v) for v in chosen} == {
            label(v) for v in choose("sum", ("all",), None, policy(guarantee), "cpu")
        }
        assert len({label(v) for v in chosen}) == len(chosen)
        assert guarantee in ("none",) or not [v for v in chosen if v.backend == EMULATED]

    def test_names_may_name_a_backend_and_the_reference_comes_first(self):
        chosen = choose("sum", ("numpy", "lanes@native"), "pairwise", policy("none"), "cpu")
        assert [label(v) for v in chosen] == ["sum:pairwise:native", "sum:numpy:numpy", "sum:lanes:native"]

    @pytest.mark.parametrize(
        ("wanted", "reference", "guarantee", "device", "reason"),
        [
            (("lames",), None, "none", "cpu", "unknown sum 'lames'.*lanes"),
            (("lanes@torch",), None, "none", "cpu", "unknown backend.*native"),
            (("omp-atomic",), None, "layout", "cpu", "--guarantee layout.*promises 'none'.*lanes.*exact"),
            (("lanes",), None, "exact", "cpu", "promises 'run'.*These meet 'exact': exact"),
            (("numpy",), None, "none", "cuda", "does not run with --device cuda"),
            ((), "omp-atomic", "none", "cpu", "promises 'none'"),
        ],
    )
    def test_what_cannot_be_chosen_is_told_with_what_can(self, wanted, reference, guarantee, device, reason):
        with pytest.raises(ChoiceError, match=reason):
            choose("sum", wanted, reference, policy(guarantee), device)

    def test_numpys_dot_product_is_not_had_over_blocks(self):
        assert "dot:numpy:numpy" in {label(v) for v in choose("dot", (), None, policy("run"), "cpu")}
        assert "dot:numpy:numpy" not in {label(v) for v in choose("dot", (), None, policy("layout"), "cpu")}
        with pytest.raises(ChoiceError, match="BLAS"):
            choose("dot", ("numpy",), None, policy("layout"), "cpu")


@pytest.mark.parametrize(
    ("settings", "options", "reason"),
    [
        (dict(problem__distribution="file"), {}, "--file"),
        (dict(problem__file="x.npy"), {}, "--file"),
        (dict(launch__block=100), {}, r"launch\.block 100: choose a power of two"),
        (
            dict(problem__distribution="ill-conditioned", problem__condition=1e40, problem__sizes=(100, 4)),
            {},
            r"condition = 1e\+40 cannot be built from blocks of 4 elements of float64 \(at most",
        ),
        (
            dict(problem__distribution="ill-conditioned", problem__sizes=(1,)),
            {},
            r"blocks of 1 elements of float64 \(none",
        ),
        (
            dict(problem__distribution="ill-conditioned", problem__condition=1e9, problem__dtype="float16"),
            {},
            "float16",
        ),
        (dict(method__split="arrays"), dict(allreduce="arrival"), "--split arrays"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_to_do(settings, options, reason):
    with pytest.raises(UsageError, match=reason):
        validate(configured(**settings), RunOptions(**options), 2)


@pytest.mark.parametrize("deck", commandline.decks(APP))
def test_every_deck_can_be_run(deck):
    options, config, _ = commandline.parse(APP, ["--deck", deck], {})
    validate(config, options, 4)
    for name in config.method.variants:
        assert name == "all" or registry.get("sum", name)


def test_the_deck_of_the_published_study_has_its_numbers():
    _, config, _ = commandline.parse(APP, ["--deck", "paper"], {})
    assert (config.problem.arrays, max(config.problem.sizes), config.method.reference) == (100, 10**6, "sptr")
    assert shape(10**6, **launch_shape(config.launch)).blocks == 7813
