"""k-means: the algorithm against a plain one, its decisions, what it refuses."""

import numpy as np
import pytest
from mpi4py import MPI

from miniapps.clusters import APP
from miniapps.clusters.run import made, scaled
from miniapps.learning.samples.images import load
from miniapps.learning.seeds import INIT, generator
from miniapps.runner.main import main
from miniapps.trace import read


def run(out, *argv):
    return main(APP, [*argv, "--out", str(out)], MPI.COMM_SELF)


def recorded(out):
    """{name: {block: value}} of the values of a run, the last of each."""
    trace = read(out / "rank-00000.h5")
    found: dict[str, dict[int, float]] = {}
    columns = [trace.tables["values"][key].tolist() for key in ("name", "block", "value")]
    for name, block, value in zip(*columns, strict=True):
        found.setdefault(trace.names[name], {})[block] = value
    return found


def plain(points, centres):
    """Lloyd's algorithm as a textbook has it: (clusters, iterations)."""
    clusters, iterations = np.full(len(points), -1), 0
    while True:
        iterations += 1
        nearest = np.array([np.argmin(((x - centres) ** 2).sum(1)) for x in points])
        if (nearest == clusters).all():
            return clusters, iterations
        clusters = nearest
        for k in range(len(centres)):
            if (clusters == k).any():
                centres[k] = points[clusters == k].mean(0)


@pytest.mark.parametrize("seed", [1, 2])
def test_clusters_are_those_of_the_plain_algorithm(tmp_path, seed):
    assert run(tmp_path / "run", "--seed", str(seed), "--dtype", "float64", "--clusters", "7") == 0
    points = scaled(load("digits", "", 0).images, np.dtype("float64"))
    drawn = generator(seed, INIT).permutation(len(points))[:7]
    clusters, iterations = plain(points, points[drawn].copy())
    found = recorded(tmp_path / "run")
    assert list(found["decision:cluster"].values()) == clusters.tolist()
    assert found["decision:iterations"] == {-1: iterations} and found["decision:converged"] == {-1: 1}


def test_points_have_mean_0_and_deviation_1_unless_a_pixel_is_always_alike():
    images = np.random.default_rng(1).integers(0, 17, (5000, 3, 3), dtype=np.uint8)
    images[:, 0, 0] = 5
    points = scaled(images, np.dtype("float64"))
    assert (points[:, 0] == 0).all()
    assert points[:, 1:].mean(0) == pytest.approx(0, abs=1e-12) and points[:, 1:].std(0) == pytest.approx(1)
    order = np.random.default_rng(2).permutation(5000)
    assert scaled(images[order], np.dtype("float32")).tobytes() == points.astype("f4")[order].tobytes()


def test_a_margin_is_the_distance_to_the_second_cluster_relative_to_it():
    points = np.array([[0.0], [1.0], [3.0]])
    block = made(points, np.arange(3))
    centres = np.array([[0.0], [4.0]])
    total = block.assign(centres)
    assert block.clusters.tolist() == [0, 0, 1]
    assert block.margins.tolist() == pytest.approx([1.0, (9 - 1) / 9, (9 - 1) / 9])
    sums, numbers, (changed, squares) = total[:2], total[2:4], total[4:]
    assert (sums.tolist(), numbers.tolist(), changed, squares) == ([1.0, 3.0], [2.0, 1.0], 3, 2.0)
    assert block.assign(centres)[4] == 0


def test_equal_points_and_a_single_cluster_have_margins():
    block = made(np.ones((3, 2)), np.arange(3))
    block.assign(np.ones((2, 2)))
    assert block.clusters.tolist() == [0, 0, 0] and block.margins.tolist() == [0, 0, 0]
    block.assign(np.ones((1, 2)))
    assert np.isnan(block.margins).all()


def test_an_empty_cluster_keeps_its_centre(tmp_path):
    """As many clusters as points: equal points leave some of them empty."""
    assert run(tmp_path / "run", "--data", "blobs", "--clusters", "1024", "--iterations", "3") == 0


def test_a_run_that_ends_early_has_not_converged(tmp_path):
    assert run(tmp_path / "run", "--iterations", "2") == 0
    found = recorded(tmp_path / "run")
    assert found["decision:converged"] == {-1: 0} and found["decision:iterations"] == {-1: 2}


@pytest.mark.parametrize("argv, message", [
    (["--clusters", "1439"], "from 1 to 1024"),
    (["--clusters", "0"], "clusters"),
    (["--set", "clusters.block=0"], "clusters.block"),
    (["--data", "fashion", "--data-dir", "/nowhere"], "dataset-fashion-mnist"),
    (["--fault", "bitflip@step=2,block=10"], "block 10"),
    (["--fault", "kernel-bit@step=2,block=1"], "no block that kernel-bit could strike"),
])  # fmt: skip
def test_what_cannot_run_is_refused_before_it_starts(tmp_path, capsys, argv, message):
    assert run(tmp_path / "run", *argv) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_a_flipped_bit_of_a_centre_changes_the_run(tmp_path):
    prints = set()
    for name, more in (("whole", []), ("struck", ["--fault", "bitflip@step=2,block=3,bit=30"])):
        assert run(tmp_path / name, *more) in (0, 3)
        prints.add(tuple(recorded(tmp_path / name)["decision:cluster"].values()))
    assert len(prints) == 2
