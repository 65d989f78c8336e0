"""DLRM: its samples, its definition, its errors."""

import importlib.util

import numpy as np
import pytest
from mpi4py import MPI
from msgspec import convert

from miniapps.dlrm import APP, perceptrons, ratings, recorded
from miniapps.dlrm.clicknet import ClickNetwork
from miniapps.dlrm.clicks import Clicks, as_recorded, by_zipf
from miniapps.embeddings.histogram import as_values, described
from miniapps.embeddings.sharding import Table
from miniapps.errors import UsageError
from miniapps.learning.gradients.network import aligned
from miniapps.learning.weights import initial
from miniapps.runner.main import main
from miniapps.trace import Tracer, read
from miniapps.trace.schema import rank_file
from miniapps.untrusted.lookups import Asked
from tests.analysis.synthetic import attributes

needs_ratings = pytest.mark.skipif(
    importlib.util.find_spec("recbole") is None, reason="no package recbole, which has MovieLens 100k"
)
N, TABLES, COLUMNS, FEATURES, HIDDEN = 6, 3, 4, 2, 5


def network():
    shapes = perceptrons.shapes(HIDDEN, COLUMNS, FEATURES, TABLES)
    weights = [aligned(shape, np.float32) for shape in shapes.values()]
    for array, drawn in zip(weights, initial(shapes, 3), strict=True):
        array[...] = drawn + np.float32(0.1)
    return ClickNetwork(weights, FEATURES, TABLES, COLUMNS, N), weights


def by_definition(weights, dense, pooled):
    """Logits in float64, product by product."""
    w1, b1, w2, b2, w3, b3, w4, b4 = (w.astype(float) for w in weights)
    bottom = np.maximum(np.maximum(dense @ w1.T + b1, 0) @ w2.T + b2, 0)
    vectors = np.concatenate([bottom[:, None], pooled], 1)
    products = [(vectors[:, i] * vectors[:, j]).sum(1) for i in range(TABLES + 1) for j in range(i)]
    x = np.concatenate([bottom, np.stack(products, 1)], 1)
    return (np.maximum(x @ w3.T + b3, 0) @ w4.T + b4)[:, 0]


def test_scores_loss_and_gradient_are_those_of_the_definition():
    net, weights = network()
    rng = np.random.default_rng(1)
    dense = rng.standard_normal((N, FEATURES)).astype(np.float32)
    pooled = rng.standard_normal((N, TABLES, COLUMNS)).astype(np.float32)
    labels = np.array([0, 1, 1, 0, 1, 0], np.uint8)

    def loss_of(sums):
        z = by_definition(weights, dense, sums)
        return np.logaddexp(0, z).sum() - (z * labels).sum()

    np.testing.assert_allclose(net.scores(dense, pooled), by_definition(weights, dense, pooled), rtol=1e-5)
    taken = {}
    loss, gradient = net.learn(dense, pooled, labels, lambda t, g: taken.update({t: g.copy()}))
    assert loss == pytest.approx(loss_of(pooled), rel=1e-5) and sorted(taken) == list(range(8))
    for place in ((0, 0, 0), (3, 2, 1), (5, 1, 3)):
        step = np.zeros(pooled.shape)
        step[place] = 1e-5
        slope = (loss_of(pooled + step) - loss_of(pooled - step)) / 2e-5
        assert gradient[place] == pytest.approx(slope, rel=1e-3, abs=1e-5)


def zipf(seed, tables, rows, exponent, pooling, features):
    return Clicks(seed, by_zipf(seed, tables, rows, exponent, pooling), features)


def test_a_drawn_sample_depends_on_its_number_alone():
    drawn = zipf(7, tables=3, rows=50, exponent=1.05, pooling=2, features=4)
    many, few = drawn.take(10, 20), drawn.take(15, 3)
    chosen = many.take(np.arange(5, 8))
    assert few.dense.tobytes() == chosen.dense.tobytes() and few.labels.tolist() == chosen.labels.tolist()
    assert all(a.rows.tolist() == b.rows.tolist() for a, b in zip(few.bags, chosen.bags, strict=True))
    other = zipf(8, tables=3, rows=50, exponent=1.05, pooling=2, features=4).take(15, 3)
    assert other.dense.tobytes() != few.dense.tobytes()


@pytest.mark.parametrize("exponent", [0.0, 1.05])
def test_rows_follow_the_law_that_was_asked_for(exponent):
    drawn = zipf(1, tables=1, rows=40, exponent=exponent, pooling=5, features=1).take(0, 8000)
    counts = np.sort(np.bincount(drawn.bags[0].rows, minlength=40))[::-1]
    share = np.arange(1, 41) ** -exponent
    expected = 40000 * share / share.sum()
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()


def counted(drawn, asked, samples):
    """What the first samples of a drawing ask of its table, as a run records it."""
    bags = drawn.take(0, samples).bags[0]
    return bags, described(Table("0", asked.rows, 4, len(asked.shares)), samples, 1, bags.rows)


@pytest.mark.parametrize("mean", [1.0, 3.0, 2.3, 0.4])
def test_samples_like_recorded_ones_have_their_lookups_classes_and_blocks(mean):
    rng = np.random.default_rng(1)
    rows = np.minimum(rng.zipf(1.6, int(4000 * mean)) - 1, 499)
    asked = convert(described(Table("0", 500, 4, 7), 4000, 1, rows), Asked)
    bags, found = counted(Clicks(3, [as_recorded(asked)], 2), asked, 4000)
    assert set(bags.lengths.tolist()) <= {int(mean), int(np.ceil(mean))}
    assert found["lookups"] == pytest.approx(asked.lookups, rel=0.1 if mean < 1 else 0.02)
    # The most popular row is looked up as often: its class has one row.
    assert np.bincount(bags.rows).max() == pytest.approx(np.bincount(rows).max(), rel=0.1)
    np.testing.assert_allclose(found["shares"], asked.shares, atol=0.05)
    assert len(np.unique(bags.rows)) == pytest.approx(len(np.unique(rows)), rel=0.3)


def test_a_table_without_lookups_has_empty_bags():
    asked = convert(described(Table("0", 5, 4, 2), 8, 1, np.empty(0, int)), Asked)
    bags, _ = counted(Clicks(3, [as_recorded(asked)], 2), asked, 8)
    assert bags.lengths.tolist() == [0] * 8 and not len(bags.rows)


def test_the_rows_of_a_sample_say_something_of_its_label():
    drawn = zipf(1, tables=2, rows=10, exponent=0.0, pooling=1, features=1).take(0, 4000)
    first = drawn.bags[0].rows
    shares = np.array([drawn.labels[first == row].mean() for row in range(10)])
    assert shares.max() - shares.min() > 0.2


@needs_ratings
def test_ratings_are_as_published():
    given = ratings.load()
    assert len(given.labels) == 100_000 == sum(ratings.COUNTS)
    assert [int(bags.rows.max()) + 1 for bags in given.bags] == list(ratings.ROWS)
    assert np.bincount(given.bags[0].rows).min() == 20  # every user has at least so many
    assert int(given.labels.sum()) == 55_375
    assert given.bags[-1].lengths.min() == 1 and given.bags[-1].lengths.max() == 6
    assert given.dense.min() >= 0 and given.dense.max() <= 1 and ratings.is_test(100_000).sum() == 20_000


def test_ratings_that_are_missing_or_changed_are_refused_with_what_helps(tmp_path):
    with pytest.raises(UsageError, match="pip install --no-deps recbole"):
        ratings.load(str(tmp_path))
    for name in ratings.SOURCE.files:
        (tmp_path / name).write_text("user_id:token\n")
    with pytest.raises(UsageError, match=r"ml-100k\.inter: damaged, or another version"):
        ratings.load(str(tmp_path))


ZIPF = ["--rows", "60", "--tables", "2", "--pooling", "2", "--batch", "32",
        "--set", "training.micro=8", "--steps", "2", "--quiet"]  # fmt: skip


def run(tmp_path, *options):
    return main(APP, [*ZIPF, "--out", str(tmp_path / "run"), *options], MPI.COMM_SELF)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--sharding", "rows"], "unknown sharding"),
        (["--sharding", "row,row,row"], "3 shardings for 2 tables"),
        (["--sharding", "row-pooled", "--guarantee", "layout"], "choose --aggregate exact, or"),
        (["--aggregate", "atomic"], "There are: sorted, exact"),
        (["--guarantee", "exact"], "choose --aggregate exact"),
        (["--data", "ml-100k"], "not to --data ml-100k; choose --data zipf"),
        (["--seconds", "9", "--guarantee", "layout"], "--seconds decides by a clock"),
        (["--duplicate", "0.5"], "--duplicate"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_helps(tmp_path, capsys, options, message):
    assert run(tmp_path, *options) == 2
    shown = capsys.readouterr().err
    assert message.replace("\\", "") in shown
    assert not (tmp_path / "run").exists()


def test_a_rate_that_is_too_large_ends_the_run_with_a_sentence(tmp_path, capsys):
    assert run(tmp_path, "--rate", "1e9", "--guarantee", "layout", "--steps", "20") == 1
    assert "choose a smaller --rate, or a smaller embeddings.rate_ratio" in capsys.readouterr().err


def test_tables_are_recorded_as_often_as_asked_for(tmp_path):
    assert (
        run(tmp_path, "--steps", "5", "--set", "embeddings.fingerprints=2", "--set", "embeddings.blocks=3")
        == 0
    )
    trace = read(tmp_path / "run" / "rank-00000.h5")
    prints = trace.tables["fingerprints"]
    own = prints["name"] == trace.names.index("table.1")
    assert sorted(set(prints["step"][own].tolist())) == [1, 3, 5, 6]
    assert set(prints["block"][own].tolist()) == {0, 1, 2}


# ---- samples like those of a run

SHORT = ["--batch", "32", "--set", "training.micro=8", "--steps", "2", "--quiet"]
ASKED = [*SHORT, "--rows", "60", "--tables", "2", "--pooling", "2"]
LIKE = [*SHORT, "--data", "recorded"]


def test_a_run_draws_samples_like_those_of_another(tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(APP, [*ASKED, "--out", str(first)], MPI.COMM_SELF) == 0
    assert main(APP, [*LIKE, "--lookups", str(first), "--out", str(second)], MPI.COMM_SELF) == 0
    both = [recorded.read(str(run)) for run in (first, second)]
    assert [(of.rows, of.lookups, of.samples) for of in both[0]] == [(60, 64.0, 32.0)] * 2
    assert [(of.rows, of.lookups) for of in both[0]] == [(of.rows, of.lookups) for of in both[1]]
    capsys.readouterr()
    for given, message in (
        ([], "--lookups DIR is missing"),
        (["--lookups", str(tmp_path / "none")], "cannot be read"),
        (
            ["--lookups", str(first), "--rows", "9"],
            "embeddings.rows applies to --data zipf, not to --data recorded",
        ),
        (["--lookups", str(first), "--data", "zipf"], "embeddings.lookups applies to --data recorded"),
    ):
        words = LIKE[:-2] if "--data" in given else LIKE
        assert main(APP, [*words, *given, "--out", str(tmp_path / "no")], MPI.COMM_SELF) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["input:asked.rows:0", "input:asked.shares:0", "input:asked.lookups:1", "input:asked.class:0"]
)
@pytest.mark.parametrize("value", [float("nan"), -1.0, 1e300, 1e9])
def test_a_trace_with_numbers_of_no_table_is_refused(tmp_path, name, value):
    run = tmp_path / "run"
    run.mkdir()
    with Tracer(run / rank_file(0), attributes(0, 1, "none", "ring", run_id=str(run)), size=1) as tracer:
        tracer.at(0, 0)
        for t in range(2):
            rows = np.random.default_rng(t).integers(0, 40, 256)
            for each, array in as_values(described(Table(str(t), 60, 8, 4), 64, 1, rows)).items():
                array[0] = value if each == name else array[0]
                tracer.values(each, np.arange(len(array)), array)
    if name == "input:asked.rows:0" and value == 1e9:
        assert recorded.read(str(run))[0].rows == 10**9
        return
    with pytest.raises(UsageError, match="--lookups"):
        recorded.read(str(run))
