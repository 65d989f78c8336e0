"""Tasks are the product of a campaign's lists, in a seeded order, and their cost is known in advance."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from mpi4py import MPI

import jobs
import miniapps.applications
from jobs import applications
from jobs.__main__ import main
from jobs.as_json import plan_document
from jobs.campaign import CampaignError, read
from jobs.plan import START_SECONDS, plan, report_job
from jobs.plan import job as job_of
from jobs.predicted import NO_PLAN, NO_PRICE, predictions, prices
from jobs.sites import site
from jobs.state import survey
from jobs.tables import plan_text
from miniapps.runner.main import main as run_application
from miniapps.untrusted import Refused
from miniapps.untrusted.program import read_program
from tests.analysis.predict_runs import predicted, write_ledger
from tests.jobs.campaigns import SMALL, write

MANY = SMALL.replace("ranks = [2]", "ranks = [1, 2, 4]\nseeds = [1, 2]\nallocations = 3")
SITES = Path(jobs.__file__).parent / "sites"
EXAMPLES = sorted((Path(jobs.__file__).parent / "examples").glob("*.toml"))


def of(tmp_path, text=SMALL, where=None, **replaced):
    return plan(read(write(tmp_path, text, **replaced)), where)


def test_every_value_is_crossed_with_every_other(tmp_path):
    tasks = of(tmp_path, MANY).tasks
    combinations = {(t.ranks, t.seed, t.allocation, dict(t.options)["run.guarantee"]) for t in tasks}
    assert len(tasks) == len(combinations) == 3 * 2 * 3 * 2
    assert len({t.id for t in tasks}) == len(tasks)


def test_the_order_is_shuffled_by_the_seed_and_differs_between_allocations(tmp_path):
    def order(workload, allocation):
        return [(t.configuration, t.seed) for t in workload.of(allocation)]

    first, again = of(tmp_path, MANY), of(tmp_path, MANY)
    other = of(tmp_path, "shuffle = 2\n" + MANY)
    assert first.tasks == again.tasks
    assert order(first, 0) != order(first, 1)
    assert order(first, 0) != order(other, 0)
    assert sorted(map(str, order(first, 0))) == sorted(map(str, order(other, 0)))


def test_a_task_keeps_its_name_when_others_are_added_and_loses_it_when_it_changes(tmp_path):
    before = {t.id for t in of(tmp_path).tasks}
    assert before < {t.id for t in of(tmp_path, MANY).tasks}
    assert before == {t.id for t in of(tmp_path, time='"00:02:00"').tasks}, "a limit touches no result"
    assert before.isdisjoint(t.id for t in of(tmp_path, SMALL.replace("= 100,", "= 101,")).tasks)
    assert all(
        name.startswith(("reductions-none-2r-s1-a0-", "reductions-layout-2r-s1-a0-")) for name in before
    )


def test_the_cost_is_all_nodes_up_to_the_limit_of_every_allocation(tmp_path):
    text = MANY.replace("[defaults]", "[sites.generic-slurm]\nranks_per_node = 2\n[defaults]")
    workload = of(tmp_path, text, site("generic-slurm"))
    assert workload.nodes == 2, "4 ranks, 2 per node"
    assert [workload.nodes_of(t) for t in workload.tasks if t.ranks == 1] == [1] * 12
    assert workload.seconds == (12 * 60 + START_SECONDS,) * 3
    assert workload.node_hours() == pytest.approx(3 * 2 * 13 / 60)


def test_a_budget_that_does_not_suffice_refuses(tmp_path):
    of(tmp_path, "budget_node_hours = 0.05\n" + SMALL).require_budget()
    workload = of(tmp_path, "budget_node_hours = 0.04\n" + SMALL)
    with pytest.raises(
        CampaignError, match=r"0.05 node-hours at most on local, and budget_node_hours is 0.04"
    ):
        workload.require_budget()
    assert "MORE THAN the budget of 0.04; will not be submitted" in plan_text(
        workload, survey(tmp_path, workload.tasks)
    )


def test_a_limit_caps_an_allocation_and_must_hold_every_task(tmp_path):
    assert of(tmp_path, 'limit = "00:02:00"\n' + MANY).seconds == (120,) * 3
    with pytest.raises(CampaignError, match=r"line 8: time of 60 s .* do not fit into the limit of 90 s"):
        of(tmp_path, 'limit = "00:01:30"\n' + SMALL)


def test_more_ranks_than_the_nodes_hold_are_refused_with_the_numbers(tmp_path):
    text = SMALL.replace("[defaults]", "[sites.generic-slurm]\nranks_per_node = 4\nnodes = 2\n[defaults]")
    with pytest.raises(
        CampaignError, match=r"line 10: 9 ranks, 4 per node, need 3 nodes, and an allocation on .* has 2"
    ):
        of(tmp_path, text, site("generic-slurm"), ranks="[8, 9]")


def test_a_site_that_does_not_tell_its_cores_asks_for_the_ranks_per_node(tmp_path):
    with pytest.raises(CampaignError, match=r"add \[sites.generic-slurm\] with ranks_per_node"):
        of(tmp_path, SMALL, site("generic-slurm"))


def test_the_same_task_twice_is_refused_with_both_lines(tmp_path):
    runs = SMALL[SMALL.index("[[runs]]") :]
    with pytest.raises(CampaignError, match=r"line 12: .* is in the \[\[runs\]\] of line 7 already"):
        of(tmp_path, SMALL + runs)


def test_what_the_application_itself_would_refuse_is_found_before_it_runs(tmp_path):
    text = SMALL.replace('"method.samples" = 2', '"method.samples" = 2, "run.allreduce" = "arrival"')
    with pytest.raises(
        CampaignError, match=r"line 7: reductions on 2 ranks \(.*guarantee=layout.*\): .*arrival"
    ):
        of(tmp_path, text)
    text = SMALL.replace('"method.samples" = 2', '"run.fault" = "kill@step=1,rank=2"')
    with pytest.raises(CampaignError, match="rank 2 of a run with 2 ranks"):
        of(tmp_path, text)


def test_the_batch_job_runs_one_allocation_per_element_and_the_report_follows(tmp_path):
    text = MANY.replace(
        "[defaults]", '[sites.generic-slurm]\nranks_per_node = 2\naccount = "lab"\n[defaults]'
    )
    workload = of(tmp_path, text, site("generic-slurm"))
    job = job_of(workload, environment="/env", queue="debug")
    report = report_job(workload, job)
    assert (job.nodes, job.ranks_per_node, job.threads, job.array) == (2, 2, 1, 3)
    assert (job.account, job.queue, job.seconds) == ("lab", "debug", workload.seconds[0])
    assert job.commands == (
        f'python -m jobs run {tmp_path}/campaign.toml --site generic-slurm --allocation "$FPNA_ARRAY_INDEX"',
    )
    assert report.commands == (f"python -m jobs collect {tmp_path}/campaign.toml",)
    assert (report.account, report.nodes, report.array) == ("lab", 1, 1)


def test_a_job_names_the_file_of_its_site_so_that_it_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text((SITES / "generic-slurm.toml").read_text())
    text = SMALL.replace("[defaults]", "[sites.mine]\nranks_per_node = 2\n[defaults]")
    workload = plan(read(write(tmp_path, text)), site("./mine.toml"), "./mine.toml")
    assert f" --site {tmp_path}/mine.toml " in job_of(workload, environment="/env").commands[0]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_campaigns(path):
    where = site("generic-slurm") if "generic-slurm" in path.read_text() else None
    try:
        plan(read(path), where).require_budget()
    except CampaignError as absent:
        if "apt-get install dataset-fashion-mnist" not in str(absent):
            raise
        pytest.skip("no Fashion-MNIST here")


def test_a_plan_shows_what_was_predicted_and_where_that_stands(tmp_path):
    workload = of(tmp_path, SMALL.replace("guarantee", "seeds = [1, 2]\nguarantee"))
    standings = survey(workload.campaign.out, workload.tasks)
    task = next(
        task for task in workload.tasks if task.seed == 2 and dict(task.options)["run.guarantee"] == "none"
    )
    app, problem, method, ranks = applications.target(task.app, task.arguments, task.ranks)
    prediction = predicted(50, ranks, app=app, problem=problem, method=method)
    ledger = write_ledger(
        tmp_path / "ledger.jsonl", predicted(7), prediction, replace(prediction, clock="cpu")
    )
    known = predictions(workload, ledger)
    text = plan_text(workload, standings, predicted=known)
    assert "50 ms (46 to 54), 1 of 2 tasks" in text
    assert f"of 1 of 4 tasks; from the ledger {ledger} of 3 rows, the last " in text and "by test 1" in text
    told = {each["id"]: each["predicted"] for each in plan_document(workload, standings, known)["tasks"]}
    assert [name for name, each in told.items() if each] == [task.id]
    assert told[task.id]["source"] == f"{ledger}, line 2" and told[task.id]["median_s"] == 0.05
    (tmp_path / "one.json").write_text(prediction.to_json())
    assert predictions(workload, tmp_path / "one.json").of([task]) == "50 ms (46 to 54)"
    (tmp_path / "one.json").write_text(replace(prediction, clock="cpu").to_json())
    assert predictions(workload, tmp_path / "one.json").of([task]) == "50 ms (46 to 54) of CPU time"
    assert "predicted" not in plan_text(workload, standings)


def test_predictions_that_cannot_be_read_are_named(tmp_path):
    workload = of(tmp_path)
    with pytest.raises(CampaignError, match=r"--predictions .*nowhere: cannot be read"):
        predictions(workload, tmp_path / "nowhere")
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(Refused, match="line 1: "):
        predictions(workload, tmp_path / "bad.jsonl")


TRAINED = """
name = "trained"
out = "runs"
[defaults]
time = "00:05:00"
repeats = 2
seeds = [1, 2]
[[runs]]
app = "mesh"
ranks = [1, 2]
guarantee = "layout"
options = { "model.name" = "mlp", "data.name" = "blobs", "training.batch" = 8, "training.micro" = 2, \
"model.hidden" = 16, "training.steps" = 7, "evaluation.every" = 0, "training.wire" = ["as is", "bfloat16"] }
[[runs]]
app = "reductions"
ranks = [2]
options = { "problem.sizes" = 100 }
"""
SMALL_PLAN = "mlp dp features=64 width=16 samples=8 batch=4 classes=10 guarantee=layout"


def application(app, out, *argv):
    given = [*argv, "--out", str(out), "--no-progress", "--log-level", "error"]
    assert run_application(app, given, MPI.COMM_SELF) == 0


def test_plans_of_tasks_are_priced_by_a_calibration_without_a_run(tmp_path, capsys):
    cal = str(tmp_path / "cal")
    few = ["--budget", "0", "--what", "programs", "--plan", SMALL_PLAN, "--programs", "1"]
    application(miniapps.applications.app("calibrate"), cal, *few)
    workload = of(tmp_path, TRAINED.replace("\\\n", ""))
    known = prices(workload, [cal])
    assert not workload.campaign.out.exists()
    by = {}
    for task in workload.tasks:
        by.setdefault((task.app, task.ranks, dict(task.options).get("training.wire")), []).append(task)
    one, two, wire = (by["mesh", 1, "as is"], by["mesh", 2, "as is"], by["mesh", 1, "bfloat16"])
    assert {task.seed for task in one} == {1, 2} and set(known.by_task) == {task.id for task in one}
    prediction, _ = known.by_task[one[0].id]
    assert prediction.target == applications.target("mesh", one[0].arguments, 1)
    assert prediction.clock == "wall" and set(prediction.regions) == {"kernels", "between", "messages"}
    assert known.document(one[1])["total_s"] == 7 * 2 * prediction.median
    assert known.whole(one) == f"{14 * prediction.median:.1f} s"
    assert [known.of(each) for each in (two, wire, by["reductions", 2, None])] == [
        NO_PRICE,
        NO_PRICE,
        NO_PLAN,
    ]
    standings = survey(workload.campaign.out, workload.tasks)
    told = {each["id"]: each["predicted"] for each in plan_document(workload, standings, known)["tasks"]}
    assert "messages between 2 ranks have no price" in told[two[0].id]["unpriced"]
    assert "has no time of mm" in told[wire[0].id]["unpriced"]
    assert told[one[0].id] == known.document(one[0])
    text = plan_text(workload, standings, predicted=known)
    assert f"2 of {len(workload.tasks)} tasks, wall time, from their plans, without a run" in text
    assert "predicted in all" in text and "reductions has no plan of its steps" in text
    with pytest.raises(SystemExit, match="2"):
        main(["plan", str(workload.campaign.path), "--calibration", cal, "--predictions", cal])
    assert "not allowed with" in capsys.readouterr().err
    with pytest.raises(CampaignError, match=r"--calibration .*nowhere"):
        prices(workload, [str(tmp_path / "nowhere")])


def test_the_plan_of_a_task_is_the_one_that_its_run_saves(tmp_path):
    (task,) = of(tmp_path, TRAINED.replace("\\\n", "").replace("[1, 2]", "[1]").replace(', "bfloat16"', "")
                 .partition("[[runs]]\napp = \"reductions")[0]).tasks  # fmt: skip
    saved = tmp_path / "plan.json"
    own = miniapps.applications.app("mesh")
    application(own, tmp_path / "saved", *task.arguments, "--save-plan", str(saved))
    program = read_program(saved)
    assert program.environment["cores"] >= 1
    assert applications.step_of("mesh", task.arguments, 1) == (
        msgspec.structs.replace(program, environment={}),
        7,
    )


def test_tasks_are_priced_on_a_machine_that_is_not_here(tmp_path, capsys):
    machine = str(Path(jobs.__file__).parents[1] / "benchmarks" / "machines" / "a100.toml")
    workload = of(tmp_path, TRAINED.replace("\\\n", ""))
    known = prices(workload, [], machine)
    assert ("mesh", 2) in {(task.app, task.ranks) for task in workload.tasks if task.id in known.by_task}
    assert f"priced by {machine}" in known.words
    with pytest.raises(CampaignError, match=r"--machine .*nowhere"):
        prices(workload, [], str(tmp_path / "nowhere.toml"))
    with pytest.raises(SystemExit, match="2"):
        main(["plan", str(workload.campaign.path), "--machine", machine, "--predictions", "x"])
    assert "give one of them" in capsys.readouterr().err


def test_a_job_asks_for_the_ranks_that_its_tasks_need(tmp_path):
    text = SMALL + "[sites.generic-slurm]\nranks_per_node = 64\naccount = 'lab'\n"
    workload = plan(read(write(tmp_path, text)), site("generic-slurm"))
    assert (
        job_of(workload, environment="/env").ranks_per_node == max(task.ranks for task in workload.tasks) < 64
    )


KINDS = """
[kinds]
haswell = ["--constraint=haswell", "Intel, AVX2"]
skylake = ["--constraint=skylake", "Intel, AVX-512"]
"""


ONE = KINDS.partition("skylake")[0]


def of_kinds(tmp_path, text=KINDS):
    (tmp_path / "ours.toml").write_text((SITES / "generic-slurm.toml").read_text() + text)
    return site(str(tmp_path / "ours.toml"))


def test_a_plan_says_that_jobs_may_get_nodes_of_several_kinds_and_how_to_ask_for_one(tmp_path):
    per_node = "\n[sites.ours]\nranks_per_node = 1\n"
    planned = of(tmp_path, SMALL + per_node, of_kinds(tmp_path))
    text = plan_text(planned, survey(planned.campaign.out, planned.tasks), False, None)
    assert (
        planned.nodes == 2
        and "a job may get nodes of 2 kinds (haswell: Intel, AVX2; skylake: Intel, AVX-512)" in text
    )
    assert (
        'kind = "haswell" in [sites.ours] of the campaign, or --kind haswell (--constraint=haswell)' in text
    )
    assert plan_document(planned, survey(planned.campaign.out, planned.tasks))["mixed_nodes"] in text
    asked = of(tmp_path, SMALL + per_node + 'kind = "skylake"\n', of_kinds(tmp_path))
    assert asked.mixed == "" and job_of(asked, environment="/env").kind == "skylake"
    assert job_of(planned, environment="/env", kind="haswell").kind == "haswell"
    assert report_job(asked, job_of(asked, environment="/env")).kind is None


@pytest.mark.parametrize(
    "ranks, kinds, mixed", [(2, KINDS, False), (1, KINDS, True), (1, ONE, False), (1, "", False)]
)
def test_jobs_of_one_node_and_sites_of_one_kind_need_no_kind(tmp_path, ranks, kinds, mixed):
    where = of_kinds(tmp_path, kinds)
    planned = of(tmp_path, f"{SMALL}\n[sites.ours]\nranks_per_node = {ranks}\n", where)
    assert bool(planned.mixed) == mixed and len(where.kinds) == kinds.count("constraint")
    assert (where.mixed_nodes(None, 3, 1) or "").startswith("allocations may get nodes of 2 kinds") == (
        kinds == KINDS
    )


def test_a_kind_that_the_site_lacks_is_refused_with_those_that_it_has(tmp_path):
    with pytest.raises(
        CampaignError, match=r"\[sites.ours\]: kind 'haswel': ours has no such nodes.*haswell"
    ):
        of(tmp_path, SMALL + '\n[sites.ours]\nranks_per_node = 1\nkind = "haswel"\n', of_kinds(tmp_path))
    with pytest.raises(CampaignError, match="its file states no"):
        of(tmp_path, SMALL + '\n[sites.ours]\nranks_per_node = 1\nkind = "any"\n', of_kinds(tmp_path, ""))
