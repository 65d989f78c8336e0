"""Campaigns and sites that ask for too much, or are none, are refused by counting, before anything is made of them."""

import itertools
import os
import re
import tomllib

import pytest

from jobs import __main__ as jobs_main
from jobs import campaign, sites
from jobs import plan as planning
from jobs.campaign import TASKS, CampaignError, lines_of_keys, read
from jobs.job import Job, JobError
from jobs.plan import NAME_MOST, plan
from tests.jobs.campaigns import SMALL, write

BIG, LONG = "9" * 5000, "9" * 390  # more digits than are read, and fewer


def refused(tmp_path, text):
    """What is said against the campaign `text`, for which nothing is created."""
    path = write(tmp_path, text)
    with pytest.raises(CampaignError) as error:
        plan(read(path))
    assert [other.name for other in tmp_path.iterdir()] == [path.name]
    assert str(error.value).isprintable() and len(str(error.value)) < 5000
    return str(error.value)


NUMBERS = ["problem.arrays", "problem.block", "problem.sizes", "method.samples", "launch.items", "launch.grid",
           "launch.resident", "run.shuffle_blocks"]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "values", "count"),
    [(NUMBERS[:2], 216, "10,077,696 tasks"), (NUMBERS, 10**4, r"more than 10\^15 tasks")],
    ids=["10^7", "10^36"],
)
def test_tasks_are_counted_before_one_is_made(tmp_path, monkeypatch, names, values, count):
    def guard(*_):
        raise AssertionError("a product was built")

    monkeypatch.setattr(planning, "product", guard)
    some = ", ".join(map(str, range(1, values + 1)))
    options = ", ".join(f'"{name}" = [{some}]' for name in names)
    text = SMALL.replace(SMALL[SMALL.index("options =") :].strip(), f"options = {{ {options} }}")
    text = text.replace('["none", "layout"]', '"none"').replace("ranks = [2]", f"ranks = [{some}]")
    assert re.search(
        f"line 7: {count} up to here, and a campaign has at most {TASKS:,}", refused(tmp_path, text)
    )


def test_a_campaign_of_the_most_tasks_is_one(tmp_path):
    text = SMALL.replace("[2]", "[1, 2]").replace(
        "[defaults]", "[defaults]\nallocations = 1000\nseeds = [1, 2, 3]"
    )
    assert read(write(tmp_path, text.replace(", 3]", "]"))).runs[0].tasks == 8000
    assert "12,000 tasks up to here" in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ranks = [2]", f"ranks = [{10**30}]", "line 9: ranks must be a list of whole numbers, at least 1 and at most"),
        ("ranks = [2]", "ranks = [-1]", "line 9: ranks must"),
        ("ranks = [2]", "ranks = [true]", "line 9: ranks must"),
        ("ranks = [2]", "ranks = [nan]", "line 9: ranks must"),
        ("ranks = [2]", "ranks = [2.0]", "line 9: ranks must"),
        ("ranks = [2]", "ranks = 1979-05-27", "line 9: ranks must"),
        ("ranks = [2]", f"ranks = [{', '.join(map(str, range(10**4)))}]", "line 9: ranks must"),
        ("ranks = [2]", f"ranks = [2]\nthreads = {10**30}", "line 10: threads must be a whole number"),
        ("ranks = [2]", "ranks = [2]\nthreads = true", "line 10: threads must be a whole number"),
        ("ranks = [2]", f"ranks = [2]\nrepeats = {10**30}", "line 10: repeats must be a whole number"),
        ("ranks = [2]", f"ranks = [2]\nallocations = {10**30}", "line 10: allocations must be a whole number"),
        ("ranks = [2]", f"ranks = [2]\nretries = {10**30}", "line 10: retries must be a whole number"),
        ("ranks = [2]", f"ranks = [2]\nseeds = [{10**30}]", "line 10: seeds must be a list"),
        ("ranks = [2]", "ranks = [2]\nseeds = [false]", "line 10: seeds must be a list"),
        ('"00:01:00"', f'"{LONG}:00:00"', "line 5: time must be a time"),
        ('"00:01:00"', '"١٢:00:00"', "line 5: time must be a time"),
        ('"00:01:00"', "nan", "line 5: time must be a time"),
        ("[defaults]", f"budget_node_hours = {LONG}\n[defaults]", "line 4: budget_node_hours 999"),
        ("[defaults]", "budget_node_hours = nan\n[defaults]", "line 4: budget_node_hours nan"),
        ("[defaults]", "budget_node_hours = inf\n[defaults]", "line 4: budget_node_hours inf"),
        ("[defaults]", "budget_node_hours = true\n[defaults]", "line 4: budget_node_hours True"),
        ("[defaults]", f"shuffle = {10**30}\n[defaults]", "line 4: shuffle must be a whole number"),
        ("[defaults]", f"[sites.local]\nnodes = {10**30}\n[defaults]", "line 5: nodes must be a whole number"),
        ("[defaults]", f"[sites.local]\ngpus_per_node = {10**30}\n[defaults]", "line 5: gpus_per_node must"),
        ('name = "small"', f'name = "{"x" * 10**5}"', "line 1: name 'xxx"),
        ('name = "small"', r'name = "a\u001b[2J"', "line 1: name must be text on one line, not 'a"),
        ('out = "out"', r'out = "a\u0000b"', "line 2: out must be text on one line"),
        ('app = "reductions"', f'app = "{"r" * 10**6}"', "line 8: unknown application 'rrr"),
        ('app = "reductions"', 'app = "../../evil"', "line 8: unknown application '../../evil'"),
        ('"method.samples" = 2', f'"method.samples" = {10**30}', "line 11: reductions: method.samples"),
        ('"method.samples" = 2', f'"method.samples" = {LONG}', "line 11: reductions: method.samples"),
        ('"method.samples" = 2', '"method.samples" = inf', "line 11: reductions: method.samples"),
        ('"method.samples" = 2', f'"{"m" * 10**6}" = 2', "line 11: reductions has no option mmm"),
        ('"sptr"', f'"{"s" * 10**6}"', "line 11: reductions: "),
        ("ranks = [2]", f"ranks = {'[' * 5000}{']' * 5000}", "not valid TOML: brackets more than 64 deep"),
        ("ranks = [2]", f"ranks = [{BIG}]", "not valid TOML: a number of more than 400 digits in line 9"),
        ("ranks = [2]", f"ranks = [0x{'F' * 5000}]", "not valid TOML: a number of more than 400 digits in line 9"),
        ("ranks = [2]", f"ranks = [2]\n{'a.' * 5000}b = 1", "not valid TOML: a key of more than 64 parts"),
        ("ranks = [2]", f"ranks = [2]\n{'x' * 10**5} = 1\n{'x' * 10**5} = 1", "not valid TOML: "),
        ("ranks = [2]", f"ranks = [2] # {'x' * 2**21}", "at most 1,048,576 are read"),
    ],
    ids=lambda value: value[:40],
)  # fmt: skip
def test_what_is_too_large_or_of_another_type_is_refused_by_its_line(tmp_path, old, new, message):
    assert old in SMALL
    assert message in refused(tmp_path, SMALL.replace(old, new, 1))


@pytest.mark.parametrize("kind", ["fifo", "directory", "sparse", "bytes"])
def test_a_file_that_is_none_ends_with_code_2_and_is_not_waited_for(tmp_path, capsys, kind):
    path = tmp_path / "file.toml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "sparse":
        with open(path, "wb") as file:
            file.truncate(40 * 2**30)
    else:
        path.write_bytes(b"\xff\xfe")
    for argv in (["plan", str(path)], ["plan", str(write(tmp_path)), "--site", str(path)]):
        with pytest.raises(SystemExit) as end:
            jobs_main.main(argv)
        assert end.value.code == 2
        assert f"{path}: " in capsys.readouterr().err


def test_a_campaign_may_be_a_link_because_the_user_typed_it(tmp_path):
    write(tmp_path)
    (tmp_path / "link.toml").symlink_to("campaign.toml")
    assert read(tmp_path / "link.toml").name == "small"


def test_a_directory_behind_links_in_a_circle_is_refused(tmp_path):
    (tmp_path / "out").symlink_to("out")
    with pytest.raises(CampaignError, match="line 2: out 'out': leads nowhere"):
        read(write(tmp_path))


def test_names_that_no_directory_can_have_are_refused(tmp_path, monkeypatch):
    messages = {}

    class Long(planning.Task):
        id = property(lambda self: "x" * (NAME_MOST + 1))

    monkeypatch.setattr(planning, "Task", Long)
    messages["long"] = refused(tmp_path, SMALL)

    class Same(planning.Task):
        id = "same"

    monkeypatch.setattr(planning, "Task", Same)
    messages["same"] = refused(tmp_path, SMALL)
    assert f"line 7: names of {NAME_MOST + 1} bytes" in messages["long"]
    assert "line 7: a task has the name of one of line 7, same" in messages["same"]


# --- lines of mistakes ---


def counted(monkeypatch):
    """The characters that are parsed, one number per call."""
    parsed = []
    loads = tomllib.loads
    monkeypatch.setattr(campaign.tomllib, "loads", lambda text: parsed.append(len(text)) or loads(text))
    return parsed


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("".join(f"a{n} = {n}\n" for n in range(20_000)) + "wrong = 1\n", 20_001),
        ("\n" * 500_000 + "wrong = 1\n", 500_001),
        ("a = [\n" + "[1],\n" * 60_000 + "]\nwrong = 1\n", None),
        ('a = """\n' + "x\n" * 100_000 + '"""\nwrong = 1\n', None),
    ],
    ids=["statements", "nothing", "rows", "text"],
)
def test_the_search_for_a_line_is_bounded_whatever_the_file(monkeypatch, text, line):
    parsed = counted(monkeypatch)
    assert lines_of_keys(text).get(("wrong",)) == line
    assert sum(parsed) <= len(text) + campaign.SEARCHED


def test_the_lines_of_tables_in_arrays_of_tables_and_of_values_in_tables_in_one_line():
    text = '\n[[runs]]\napp = "a"\n[runs.options]\nx.y = 1\n# [[runs]]\n\n[[runs]]\nt = { u = [1,\n{ v = 2 }] }\n[z]\n'
    lines = {("runs",): 2, ("runs", 0): 2, ("runs", 0, "app"): 3, ("runs", 0, "options"): 4,
             ("runs", 0, "options", "x", "y"): 5, ("runs", 1): 8, ("runs", 1, "t", "u", 1, "v"): 9, ("z",): 11,
             ("runs", 2): None}  # fmt: skip
    assert {keys: lines_of_keys(text).get(keys) for keys in lines} == lines


# --- sites and jobs ---

SITE = """
scheduler = "slurm"
page = "https://example.org"
date = 2026-11-21
launch = ["srun -n {ranks}", "as ever"]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{ranks}", "{ranks:>1000000000}", "{ranks} as it is, without ':' and '!'"),
        ("{ranks}", "{ranks!r}", "{ranks} as it is, without ':' and '!'"),
        ("{ranks}", "{ranks.__class__}", "no {ranks.__class__}"),
        ("{ranks}", "{" * 61, "launch = "),
        ("as ever", r"\u001b[2J", "launch: "),
        ("https://example.org", r"\u001b]0;gone\u0007", "page: "),
        ("https://example.org", r"x\n#SBATCH --evil", "page: "),
        ("page =", f"cores = {10**30}\npage =", "cores = 1000"),
        ("page =", f"cores = {LONG}\npage =", "cores = 999"),
        ("page =", "memory = true\npage =", "memory = True: must be of type int"),
        ("page =", r'setup = "printf \u009b2J"' + "\npage =", "setup: "),
        ("page =", r'queue = "a\n#SBATCH --evil"' + "\npage =", "queue: "),
        ("page =", r'unchecked = ["\u202e"]' + "\npage =", "unchecked: "),
        ("as ever\"]", "as ever\"]\n[limits]\nx = [[inf, \"00:10:00\"]]", "limits.x = [[inf"),
        ("as ever\"]", "as ever\"]\n[limits]\nx = [[true, \"00:10:00\"]]", "limits.x = [[True"),
        ("as ever\"]", f"as ever\"]\n[limits]\nx = [[1, \"{LONG}:10:00\"]]", "limits.x = [[1, '999"),
        ("as ever\"]", f"as ever\"]\n[limits]\nx = [[{10**30}, \"00:10:00\"]]", "limits.x = [[1000"),
        ("\"slurm\"", f"\"{'s' * 10**6}\"", "scheduler 'sss"),
        ("scheduler", "s" * 10**6, "no key sss"),
        ("date = 2026-11-21", f"date = {'[' * 5000}{']' * 5000}", "not TOML: brackets more than 64 deep"),
        ("date = 2026-11-21", f"date = {BIG}", "not TOML: a number of more than 400 digits"),
    ],
    ids=lambda value: value[:40],
)  # fmt: skip
def test_a_site_that_would_write_or_show_what_it_must_not_is_refused(old, new, message):
    assert old in SITE
    with pytest.raises(JobError) as error:
        sites.read("ours", SITE.replace(old, new, 1), "ours.toml")
    text = str(error.value)
    assert text.startswith("site ours.toml: ") and message in text
    assert text.isprintable() and len(text) < 3000


@pytest.mark.parametrize(
    "changes",
    [{field: number} for field, number in itertools.product(
        ("nodes", "ranks_per_node", "threads", "seconds", "array", "gpus_per_node"), (-1, 10**30, True, 1.0, "1"))]
    + [{"commands": ("echo \x1b[2J",)}, {"name": "x" * 10**5}, {"account": "x" * 10**5}],
    ids=lambda changes: str(changes)[:40],
)  # fmt: skip
def test_a_job_beyond_any_machine_is_refused(changes):
    plain = dict(name="j", nodes=1, ranks_per_node=1, threads=1, seconds=60, account=None, queue=None,
                 environment="/env", commands=("true",))  # fmt: skip
    Job(**plain)
    with pytest.raises(JobError) as error:
        Job(**plain | changes)
    assert str(error.value).isprintable() and len(str(error.value)) < 400
