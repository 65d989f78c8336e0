"""The source of an option's value, and the messages for wrong values."""

import json

import pytest

from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.runner import commandline, config
from miniapps.runner.options import Common
from miniapps.trace.head import problem_hash
from tests.miniapps.tiny import APP


def parse(*argv, **environ):
    """(common options, own configuration) of `tiny` for a command line and environment variables."""
    return commandline.parse(APP, list(argv), environ)[:2]


def refusal(*argv, **environ):
    """The message with which they are refused."""
    with pytest.raises(UsageError) as refused:
        parse(*argv, **environ)
    return str(refused.value)


def deck(tmp_path, text):
    """The path of a deck with that text."""
    path = tmp_path / "own.toml"
    path.write_text(text)
    return str(path)


def problem(*argv):
    """The hash of the options that define the experiment."""
    options, own = parse(*argv)
    values = config.effective(commandline.known_options(APP), Common(options), own)
    return problem_hash("tiny", config.of_role(commandline.known_options(APP), values, "problem"))


def test_the_command_line_wins_over_the_environment_over_the_deck_over_the_default(tmp_path):
    path = deck(tmp_path, "[work]\nsteps = 3\nblocks = 5\ncells = 7")
    options, own = parse("--deck", path, "--steps", "1", FPNA_WORK_STEPS="2", FPNA_WORK_BLOCKS="4")
    assert (own.work.steps, own.work.blocks, own.work.cells, own.work.scale) == (1, 4, 7, 1.0)
    assert options.deck == path


def test_the_deck_s_is_the_default_and_others_are_called_by_name():
    assert parse()[0].deck == "S"
    assert parse()[1].work.steps == 6
    assert parse("--deck", "M")[1].work.steps == 12
    assert parse(FPNA_RUN_DECK="M")[1].work.blocks == 16


def test_a_deck_may_set_common_options(tmp_path):
    assert parse("--deck", deck(tmp_path, '[run]\nguarantee = "layout"'))[0].guarantee == "layout"


def test_quiet_and_verbose_stand_for_log_level_and_progress():
    def shown(*argv, **environ):
        options, _ = parse(*argv, **environ)
        return options.log_level, options.progress

    assert shown() == ("info", True)
    assert shown("--quiet") == ("warning", False)
    assert shown("--verbose") == ("debug", True)
    assert shown("--verbose", "--no-progress") == ("debug", False)
    assert shown("--quiet", FPNA_RUN_LOG_LEVEL="debug", FPNA_RUN_PROGRESS="true") == ("warning", False)
    assert shown("--quiet", "--log-level", "warning", "--set", "run.progress=no") == ("warning", False)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--quiet", "--log-level", "error"], "--quiet and another run.log_level are both given"),
        (["--quiet", "--set", "run.progress=true"], "--quiet and another run.progress are both given"),
        (["--verbose", "--log-level", "info"], "--verbose and another run.log_level are both given"),
        (["--quiet", "--verbose"], "not allowed with argument --quiet"),
        (["--quite"], "unknown argument --quite; did you mean --quiet?"),
    ],
)
def test_shorthands_that_contradict_are_refused(argv, message):
    assert message in refusal(*argv)


def test_values_have_the_type_of_their_option(tmp_path):
    path = deck(tmp_path, "[work]\nscale = 2\nlimit = 1e3")
    options, own = parse("--deck", path, "--check-ranks", "--no-progress", "--set", "work.limit=none")
    assert isinstance(own.work.scale, float)
    assert own.work.limit is None
    assert options.check_ranks is True
    assert options.progress is False
    assert parse(FPNA_RUN_CHECK_RANKS="yes")[0].check_ranks is True


def test_a_repeatable_option_collects():
    faults = "nan@step=1,block=0", "kill@step=2,rank=1"
    assert parse("--fault", faults[0], "--fault", faults[1])[0].fault == faults
    assert parse(FPNA_RUN_FAULT=" ".join(faults))[0].fault == faults


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[wrok]\nsteps = 1", ["own.toml", "[wrok]", "did you mean work?", "run"]),
        ("[work]\nstep = 1", ["own.toml", "work.step", "did you mean work.steps?"]),
        ('[work]\nsteps = "three"', ["own.toml", "work.steps", "an integer", "'three'"]),
        ("[work]\nsteps = 1.5", ["own.toml", "work.steps", "an integer", "1.5"]),
        ("[work]\nsteps = true", ["own.toml", "work.steps", "an integer"]),
        ("[work]\nscale = inf", ["own.toml", "work.scale", "a number"]),
        ("[work]\nsteps = 0", ["own.toml", "work.steps", "from 1 to 1000000", "0"]),
        ('[work]\nmethod = "fency"', ["own.toml", "work.method", "did you mean fancy?", "plain"]),
        ("steps = 1", ["own.toml", "steps"]),
        ("work = 1", ["own.toml", "[work]"]),
        ("[work\nsteps = 1", ["own.toml", "TOML", "line 1"]),
    ],
)
def test_a_wrong_deck_is_refused_with_file_key_and_what_would_do(tmp_path, text, parts):
    message = refusal("--deck", deck(tmp_path, text))
    assert all(part in message for part in parts), message


def test_an_unknown_deck_is_refused_with_those_there_are(tmp_path):
    assert "There are: M, S" in refusal("--deck", "XL")
    missing = str(tmp_path / "none.toml")
    assert missing in refusal("--deck", missing)


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--guarante", "run"], ["--guarante", "did you mean --guarantee?"]),
        (["--guarantee", "layot"], ["--guarantee", "did you mean layout?", "none, run, layout, exact"]),
        (["--allreduce", "rings"], ["--allreduce", "did you mean ring?", "recursive-doubling"]),
        (["--allreduce", "rings:k=3"], ["--allreduce", "did you mean ring?"]),
        (["--accumulate", "float"], ["--accumulate", "did you mean float64?"]),
        (["--allreduce", "exact"], ["--allreduce direct --accumulate exact"]),
        (["--repeats", "0"], ["--repeats", "from 1 to 1000000", "not '0'"]),
        (["--repeats"], ["--repeats", "expected one argument"]),
        (["--set", "work.steps"], ["--set work.steps", "section.name=value"]),
        (["--set", "work.stepz=1"], ["--set work.stepz=1", "did you mean work.steps?"]),
        (["--set", "wurk.steps=1"], ["wurk.steps", "did you mean work.steps?"]),
        (["--steps", "1", "--set", "work.steps=2"], ["work.steps", "twice"]),
        (["surplus"], ["surplus"]),
    ],
)
def test_a_wrong_command_line_is_refused_with_what_would_do(argv, parts):
    message = refusal(*argv)
    assert all(part in message for part in parts), message


def test_a_misspelt_variable_is_refused_and_a_foreign_one_ignored():
    assert "FPNA_WORK_STEPS" in refusal(FPNA_WORK_STEP="1")
    assert "FPNA_RUN_GUARANTEE" in refusal(FPNA_RUM_GUARANTEE="run")
    assert "environment variable FPNA_WORK_STEPS" in refusal(FPNA_WORK_STEPS="x")
    parse(FPNA_OPENMPI="/somewhere", HOME="/root")


def test_the_effective_configuration_is_complete_and_survives_json():
    options, own = parse("--fault", "kill@step=1,rank=0")
    values = config.effective(commandline.known_options(APP), Common(options), own)
    assert {f"{section}.{name}" for section in values for name in values[section]} == {
        option.key for option in commandline.known_options(APP)
    }
    assert json.loads(json.dumps(values)) == values


def test_only_options_that_define_the_problem_enter_its_hash():
    plain = problem()
    assert (
        problem("--guarantee", "exact", "--set", "work.method=fancy", "--repeats", "3", "--out", "x") == plain
    )
    assert problem("--deck", "S", "--steps", "6") == plain
    assert problem("--steps", "7") != plain
    assert problem("--seed", "2") != plain


def test_one_policy_says_what_a_guarantee_and_the_options_come_to():
    scalars, vectors = 2, 1000

    def policy(*argv):
        return parse(*argv)[0].policy

    levels = {level: policy("--guarantee", level) for level in ("none", "run", "layout", "exact")}
    exact = ("direct", "exact")
    plain, doubling = ("library", "working"), ("recursive-doubling", "working")
    assert [p.of(scalars) for p in levels.values()] == [plain, doubling, exact, exact]
    assert [p.of(vectors) for p in levels.values()] == [plain, ("direct", "working"), exact, exact]
    assert [p.kernel for p in levels.values()] == ["none", "run", "layout", "layout"]
    assert [p.partial_sum for p in levels.values()] == ["none", "run", "run", "exact"]
    assert [p.per_block for p in levels.values()] == [False, False, True, True]
    assert [p.exact_products for p in levels.values()] == [False, False, False, True]
    for more, accumulation in (((), "working"), (("--accumulate", "exact"), "exact")):
        named = policy("--guarantee", "layout", "--allreduce", "ring", *more)
        assert {named.of(n) for n in (scalars, vectors)} == {("ring", accumulation)}
    assert policy("--guarantee", "layout", "--accumulate", "exact").of(vectors) == exact
    with pytest.raises(ChoiceError, match=r"'ring' promises 'run'.*'layout'"):
        policy("--guarantee", "layout", "--allreduce", "ring").check()


def test_help_shows_every_flag_with_its_unit_default_and_examples(capsys):
    with pytest.raises(SystemExit) as end:
        parse("--help")
    shown = capsys.readouterr().out
    assert end.value.code == 0
    assert all(option.flag in shown for option in commandline.known_options(APP) if option.flag)
    assert "{none,run,layout,exact}" in shown
    assert "(default: 6)" in shown
    assert "mpirun -n 4 python -m tests.miniapps.tiny" in shown
    assert max(map(len, shown.splitlines())) <= 110


def test_an_option_of_an_unknown_type_or_role_is_a_mistake_of_the_program():
    with pytest.raises(ValueError, match="problem, method, control"):
        config.option(1, help="", role="other")
    with pytest.raises(TypeError, match="an option is int, float"):
        config.type_of(dict[str, int], "Work.table")
