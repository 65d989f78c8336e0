"""What a choice costs: ratios of paired launches that are right, and withheld where launches do not show them."""

import json
import sys

import numpy as np
import pytest

from fpna.command import main as fpna
from miniapps.cost import command as cost
from miniapps.cost.launches import Launch, command
from miniapps.cost.ratios import prices


def launches(seconds, cpu=0.9, others=0.0):
    return [Launch(each, cpu * each, others) for each in seconds]


def drawn(factor, pairs, seed, scatter=0.05):
    """Launches of A and of B, which takes `factor` times as long; the mood of the machine is that of the pair."""
    rng = np.random.default_rng(seed)
    mood, a, b = (np.exp(scatter * rng.standard_normal(pairs) * by) for by in (5, 1, 1))
    return launches(2.0 * mood * a), launches(2.0 * factor * mood * b)


def test_the_interval_holds_the_ratio_as_often_as_it_says():
    held, shown = 0, 0
    for seed in range(400):
        _, wall = prices(*drawn(1.3, 10, seed), ranks=1, cores=2)
        held += wall.low <= 1.3 <= wall.high
        shown += not wall.why
    assert held >= 0.95 * 400 - 3 * np.sqrt(400 * 0.95 * 0.05)
    assert shown >= 390


def test_no_price_is_named_where_there_is_none():
    named = sum(not prices(*drawn(1.0, 10, seed), ranks=1, cores=2)[1].why for seed in range(400))
    assert named <= 0.05 * 400 + 3 * np.sqrt(400 * 0.95 * 0.05)


@pytest.mark.parametrize(
    ("a", "b", "ranks", "clock", "why"),
    [
        (launches([1.0] * 5), launches([2.0] * 5), 1, "wall time", "launch six times or more"),
        (launches([1.0] * 6), launches([2.0] * 6), 4, "wall time", "4 ranks share 2 cores"),
        (launches([1.0] * 6, others=1.5), launches([2.0] * 6, others=1.5), 1, "wall time", "other programs used 1.5"),
        (launches([1.0] * 6, cpu=0.01), launches([2.0] * 6, cpu=0.01), 1, "CPU time", "hardly any processor"),
        (launches([1.0] * 6, cpu=0.0), launches([2.0] * 6), 1, "CPU time", "took no time"),
        (launches([1.0, 2.0] * 3), launches([2.0, 1.0] * 3), 1, "wall time", "does not distinguish them"),
    ],
)  # fmt: skip
def test_a_ratio_is_withheld_where_launches_do_not_show_it(a, b, ranks, clock, why):
    price = next(each for each in prices(a, b, ranks, cores=2) if each.clock == clock)
    assert why in price.why


@pytest.mark.parametrize("ranks", [1, 2])
def test_six_equal_pairs_show_their_ratio(ranks):
    for price in prices(launches([1.0] * 6), launches([2.0] * 6), ranks, cores=2):
        assert (price.why, price.ratio, price.low, price.high) == ("", 2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("text", "common", "ranks", "application"),
    [
        ("mpirun -n 4 ./app", (), 4, False),
        ("srun --ntasks 3 ./app -n 9", (), 3, False),
        ("./app 'unclosed", (), 1, False),
        ("--guarantee none", ("mpirun", "-np", "2", "fpna", "coupled"), 2, True),
        ("--guarantee none", ("python", "-m", "miniapps.solver"), 1, True),
        ("--out x", ("fpna", "coupled"), 1, False),
        ("", ("fpna", "report", "runs"), 1, False),
        ("", ("fpna", "cost"), 1, False),
    ],
)
def test_ranks_and_applications_are_seen_in_commands(text, common, ranks, application):
    one = command("A", text, common)
    assert (one.ranks, one.application) == (ranks, application)


def test_commands_are_launched_in_pairs_and_the_answer_is_a_document(capfd, tmp_path):
    script = f'{sys.executable} -c \'open("{tmp_path}/log", "a").write("%s"); sum(range(10 ** %d))\''
    code = fpna(["cost", script % ("a", 4), script % ("b", 7), "--pairs", "6", "--json", "--quiet"])
    answer = json.loads(capfd.readouterr().out)
    assert (tmp_path / "log").read_text() == "ab" + "baab" * 3
    assert code == (0 if any(each["shown"] for each in answer["prices"]) else 4)
    cpu = answer["prices"][0]
    assert cpu["clock"] == "CPU time" and cpu["ratio"] > 1.5
    assert len(answer["launches"]["a"]) == 6


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_no_launch_is_given_no_time(capfd, seconds):
    with pytest.raises(SystemExit) as end:
        cost.main(["true", "false", "--timeout", seconds])
    assert end.value.code == 2 and f"give seconds above 0, not {seconds}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["true", "echo to the end; exit 7"], "B ended with 7: echo to the end; exit 7\nto the end"),
        (["true", "true"], "A and B are the same command"),
        (["", "true"], "A is empty"),
        (["true", "false", "--pairs", "0"], "--pairs 0: choose 1 to 1000"),
        (["sleep 30", "true", "--timeout", "0.2"], "A has not ended after 0.2 s"),
        (["-x", "-y", "--", "/nowhere/app"], "A cannot be started: /nowhere/app"),
        (["'", "b", "--", "ls"], "close the quotes"),
    ],
)
def test_what_cannot_be_launched_is_named(capfd, argv, why):
    assert cost.main([*argv, "--quiet"]) == 2
    assert why in capfd.readouterr().err
