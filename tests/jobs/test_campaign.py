"""A campaign is checked before anything runs, and every error names its line."""

import pytest

from jobs.campaign import CampaignError, lines_of_keys, read
from tests.jobs.campaigns import SMALL, write


def test_a_campaign_says_what_to_run_and_defaults_hold_where_it_says_nothing(tmp_path):
    campaign = read(write(tmp_path))
    (runs,) = campaign.runs
    assert (campaign.name, campaign.out) == ("small", tmp_path / "out")
    assert (runs.app, runs.ranks, runs.seconds, runs.seeds, runs.allocations) == (
        "reductions",
        (2,),
        60,
        (1,),
        1,
    )
    assert runs.options["run.guarantee"] == ("none", "layout")
    assert runs.options["problem.sizes"] == ((100,),), (
        "an option that takes several values gets one of them at a time"
    )


def test_what_runs_say_goes_before_the_defaults(tmp_path):
    text = SMALL.replace("ranks = [2]", 'ranks = [2]\ntime = "01:00:00"\nseeds = [3, 4]\nretries = 0')
    (runs,) = read(write(tmp_path, text)).runs
    assert (runs.seconds, runs.seeds, runs.retries) == (3600, (3, 4), 0)


def test_options_may_be_written_as_keys_of_their_section(tmp_path):
    text = SMALL.replace('"method.samples" = 2', "method = { samples = 2 }")
    text = text.replace(', "method.variants" = "sptr"', "")
    assert read(write(tmp_path, text)).runs[0].options["method.samples"] == (2,)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (
            'app = "reductions"',
            'app = "reduction"',
            8,
            "unknown application 'reduction'; did you mean reductions?",
        ),
        ("ranks = [2]", "ranks = [2, 0]", 9, "ranks must be a list of whole numbers, at least 1"),
        ("ranks = [2]", "rank = [2]", 9, "unknown key 'rank' in [[runs]]; did you mean ranks?"),
        ("ranks = [2]", "", 7, "this [[runs]] has no ranks"),
        ('"layout"]', '"layuot"]', 10, "run.guarantee cannot be 'layuot'; did you mean layout?"),
        ('["none", "layout"]', '["none", "none"]', 10, "has a value twice"),
        ('["none", "layout"]', "[]", 10, "is an empty list"),
        ('"problem.sizes"', '"problem.size"', 11, "no option problem.size; did you mean problem.sizes?"),
        (
            '"method.samples" = 2',
            '"method.samples" = "two"',
            11,
            "method.samples takes an integer",
        ),
        ('"method.samples" = 2', '"run.seed" = 2', 11, "write the key seeds instead"),
        (
            'time = "00:01:00"',
            'time = "1 hour"',
            5,
            "time must be a time, written \"HH:MM:SS\", not '1 hour'",
        ),
        (
            'time = "00:01:00"',
            "\nretries = -1",
            6,
            "retries must be a whole number, at least 0 and at most 1000, not -1",
        ),
        ('name = "small"', 'name = "a b"', 1, "letters, digits"),
        ('name = "small"', 'name = "small"\nnodes = 3', 2, "unknown key 'nodes' in a campaign"),
        ("[defaults]", "[sites.frontier]\nacount = 'x'\n[defaults]", 5, "did you mean account?"),
        ("[defaults]", "budget_node_hours = 0\n[defaults]", 4, "a number of hours above 0"),
    ],
)
def test_an_error_names_its_line_and_what_was_meant(tmp_path, old, new, line, message):
    assert old in SMALL
    path = write(tmp_path, SMALL.replace(old, new))
    with pytest.raises(CampaignError) as error:
        read(path)
    assert f"{path}, line {line}: " in str(error.value)
    assert message in str(error.value)


def test_a_file_that_is_not_there_or_not_toml_is_named(tmp_path):
    with pytest.raises(CampaignError, match=r"absent.toml: cannot be read: No such file"):
        read(tmp_path / "absent.toml")
    path = tmp_path / "broken.toml"
    path.write_text("name = \n")
    with pytest.raises(CampaignError, match=r"broken.toml: not valid TOML: .*line 1"):
        read(path)


def test_the_line_of_a_key_is_that_on_which_its_statement_begins_whatever_the_syntax():
    text = '''\
# a comment with a = 1
text = """
a = 2
"""
a = [   # of several lines
  1,
  2,
]
b.c = 3
[[table]]
x = 1
[[table]]

"x" = { y = 2 }
'''
    lines = {
        ("a",): 5,
        ("b", "c"): 9,
        ("table", 0, "x"): 11,
        ("table", 1, "x", "y"): 14,
        ("text",): 2,
        ("z",): None,
    }
    assert {key: lines_of_keys(text).get(key) for key in lines} == lines
