"""`python -m jobs COMMAND CAMPAIGN.toml`: plans, runs and submits a campaign, and makes the report on it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from jobs import as_json, example, processors
from jobs.campaign import CampaignError, read
from jobs.cluster import commands as cluster_commands
from jobs.files import is_folder
from jobs.job import JobError
from jobs.launcher import Launcher, LauncherError, here, of_site
from jobs.plan import Plan, job, plan, report_job
from jobs.predicted import predictions, prices
from jobs.runner import Ended, name_allocation, run
from jobs.script import DESCRIPTION as DESCRIBED
from jobs.script import render_arguments, render_command, warn, warn_of_site
from jobs.sites import site
from jobs.state import FAILED, FINISHED, State, StateError, survey
from jobs.tables import plan_text, status_text
from kernels.as_json import text as json_text
from kernels.commands.entry import command_line
from kernels.commands.options import add_json, add_loudness, add_version
from miniapps.system import interrupts
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.text import printable, tell

DONE, NOT_DONE, BAD_USAGE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143

DESCRIPTION = """\
A campaign is a TOML file: which applications, on how many ranks, with which options, how often. It is checked before
anything runs, run here or by a batch system, interrupted and resumed without repeating finished tasks, and ends in a
report. See docs/how-to/campaigns.md.
"""
EXAMPLES = """\
examples:
  python -m jobs example demo         write the example demo.toml into this directory
  python -m jobs plan    demo.toml    what it is and what it may cost; runs nothing
  python -m jobs local   demo.toml    run it on this machine; again: go on where it stopped
  python -m jobs status  demo.toml    what is done, failed, running, left
  python -m jobs collect demo.toml    the report
  python -m jobs submit  scaling.toml --site generic-slurm --account LAB --yes

exit codes: 0 done; 1 not all done: tasks failed for good, or are left (status and submit, too); 2 usage;
  130 SIGINT, 143 SIGTERM
"""


def parser(prog: str = "python -m jobs") -> argparse.ArgumentParser:
    """The command line of all commands; `prog` is what the user typed before the command."""
    top = Parser(
        prog=prog, description=DESCRIPTION, epilog=EXAMPLES, example=EXAMPLES.splitlines()[1].strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_version(top)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")

    def command(name: str, help: str, site: bool | None = None) -> Parser:
        subparser = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        subparser.add_argument("campaign", type=Path, metavar="CAMPAIGN.toml")
        if site is not None:
            subparser.add_argument("--site", required=site, metavar="NAME", help="a site, or a file ./NAME.toml" + (
                "" if site else "; without: this machine"))  # fmt: skip
        return subparser

    subparser = commands.add_parser(
        "example", help="list the examples, or write one into this directory",
        description="List the campaigns that come with the program, or write one into this directory, to change and to "
        "run. It overwrites no file.",
    )  # fmt: skip
    subparser.add_argument("name", nargs="?", metavar="NAME", help="which; without: list them")
    subparser = command("plan", "show what would run and what it may cost", site=False)
    subparser.add_argument(
        "--tasks", action="store_true", help="also every task, in the order in which they run"
    )
    known = subparser.add_mutually_exclusive_group()
    known.add_argument(
        "--predictions", type=Path, metavar="FILE",
        help="also the predicted times per step: from a ledger, or from one prediction (.json)",
    )  # fmt: skip
    known.add_argument(
        "--calibration", action="append", default=[], metavar="DIR",
        help="also the predicted times of applications with plans (mesh, dlrm), before any run of them: a run of "
        "miniapps.calibrate with --plan; may be repeated",
    )  # fmt: skip
    subparser.add_argument(
        "--machine", metavar="FILE",
        help="the same times on a machine that was not measured: a TOML file, see fpna price; of devices, or with "
        "--calibration",
    )  # fmt: skip
    add_json(subparser)
    subparser = command("local", "run the campaign on this machine")
    subparser.add_argument(
        "--mpirun", metavar="COMMAND", help="starts ranks with -n N (the mpirun beside this python)"
    )
    _add_retry(subparser)
    subparser = command("status", "show what is done, failed, running and left", site=False)
    add_json(subparser)
    subparser = command("collect", "report on the runs, with python -m analysis report")
    subparser.add_argument("-o", "--output", type=Path, help="(OUT/report.html)")
    subparser.add_argument(
        "--results", type=Path, metavar="DIR", help="write there one row per run, and every figure"
    )
    add_loudness(
        subparser, "only what is missing or failed; the report is written, its tables are not printed"
    )
    subparser = commands.add_parser(
        "render", help="print the batch script of a campaign, or of one application", description=DESCRIBED
    )
    render_arguments(subparser)
    subparser = command(
        "submit", "submit the campaign to the batch system, and a job after it that makes the report", True
    )
    subparser.add_argument("--account", help="project to charge")
    subparser.add_argument("--queue", help="partition or queue (the site's default)")
    subparser.add_argument("--kind", help="kind of nodes, of those of the site (the campaign's; else any)")
    subparser.add_argument("--environment", metavar="DIR", default=_environment(),
                      help="Python environment, a directory with bin/activate (this one)")  # fmt: skip
    subparser.add_argument(
        "--yes", action="store_true", help="do it; without, only what it may cost is shown"
    )
    subparser.add_argument("--no-report", action="store_true", help="without the job that makes the report")
    subparser.add_argument("--retry-failed", action="store_true", help="try tasks again that failed for good")
    add_loudness(subparser, "only the ids of submitted jobs; without --yes also what they may cost")
    subparser = command("run", "run one allocation, inside it: what batch scripts call", site=True)
    subparser.add_argument("--allocation", type=int, metavar="K", default=os.environ.get("FPNA_ARRAY_INDEX", "0"),
                      help="which, from 0 ($FPNA_ARRAY_INDEX, or 0)")  # fmt: skip
    _add_retry(subparser)
    cluster_commands.add_commands(
        commands.add_parser(
            "cluster", help="several nodes on this machine, with a network between them (root)"
        )
    )
    return top


def _add_retry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--retry-failed", action="store_true", help="try tasks again that failed for good")
    add_loudness(parser, "only what goes wrong", "also every command and its log, before it is started")


def _environment() -> str | None:
    return sys.prefix if Path(sys.prefix, "bin/activate").exists() else None


@command_line
def main(argv: list[str] | None = None, prog: str = "python -m jobs") -> int:
    """Runs one command; returns the exit code. Bad usage raises SystemExit, as in argparse."""
    options = parser(prog).parse_args(argv)
    _hear_hangup()
    try:
        with interrupts.raising():
            return COMMANDS[options.command](options)
    except (CampaignError, JobError, LauncherError, Refused) as error:
        raise SystemExit(_report_error(error, BAD_USAGE)) from None
    except StateError as error:
        return _report_error(error, NOT_DONE)
    except KeyboardInterrupt:
        return _report_error("interrupted; the same command goes on where this one stopped", INTERRUPTED)
    except interrupts.Terminated:
        return _report_error(
            "ended by SIGTERM or SIGHUP; the same command goes on where this one stopped", TERMINATED
        )
    except OSError as error:  # errors of directories; errors of files are reported where they are opened
        return _report_error(f"{error.filename or 'a file'}: {error.strerror or error}", NOT_DONE)


def give_example(options: argparse.Namespace) -> int:
    """The command `example`: lists the examples, or writes one."""
    if options.name is None:
        for name in example.names():
            say(f"{name:10} {example.summary(name)}")
        return DONE
    file = example.copy(options.name, Path())
    say(f"{file} is written; next: python -m jobs plan {file}")
    return DONE


def show_plan(options: argparse.Namespace) -> int:
    """The command `plan`: shows the tasks and their most cost."""
    planned = _plan(options)
    standings = survey(planned.campaign.out, planned.tasks, doubt=warn)
    predicted = None
    if options.predictions is not None and options.machine:
        raise CampaignError("--machine: prices plans, and --predictions has times already; give one of them")
    if options.predictions is not None:
        predicted = predictions(planned, options.predictions)
    elif options.calibration or options.machine:
        predicted = prices(planned, options.calibration, options.machine)
    if options.json:
        say(json_text(as_json.plan_document(planned, standings, predicted)))
    else:
        say(plan_text(planned, standings, options.tasks, predicted))
    return DONE


def show_status(options: argparse.Namespace) -> int:
    """The command `status`: shows the states of tasks and submitted jobs."""
    planned = _plan(options)
    standings = survey(planned.campaign.out, planned.tasks, doubt=warn)
    code = DONE if all(standing.state in FINISHED for standing in standings) else NOT_DONE
    jobs, trouble = [], None
    folder = planned.campaign.out / "jobs"
    if is_folder(folder):
        from jobs.submit import states

        try:
            jobs = states(folder)
        except JobError as error:
            trouble = str(error)
    if options.json:
        say(json_text(as_json.status_document(planned, standings, jobs, trouble)))
        return code
    say(status_text(planned, standings))
    for one in jobs:
        say(printable(f"job {one.id} {one.name}: {one.state} {one.message}".rstrip()))
    if trouble:
        say(f"the batch system was not asked: {trouble}")
    return code


def run_local(options: argparse.Namespace) -> int:
    """The command `local`: runs one allocation after the other; their traces record different ids."""
    planned = plan(read(options.campaign))
    processors.require(planned.tasks)
    launcher = here(options.mpirun)
    ended = Ended()
    for allocation in range(planned.campaign.allocations):
        ended += _run(options, planned, allocation, launcher, local=True)
    return _summary(ended, f"python -m jobs collect {options.campaign}", options.quiet)


def run_allocation(options: argparse.Namespace) -> int:
    """The command `run`: runs one allocation, inside a batch job."""
    where = site(options.site)
    planned = plan(read(options.campaign), where, options.site)
    if not 0 <= options.allocation < planned.campaign.allocations:
        raise CampaignError(
            f"--allocation {options.allocation}: {planned.campaign.path} has 0 to {planned.campaign.allocations - 1}"
        )
    processors.require(planned.of(options.allocation))
    local = where.scheduler == "local"
    launcher = here() if local else of_site(where, planned)
    ended = _run(options, planned, options.allocation, launcher, limited=not local)
    return _summary(ended, f"python -m jobs status {options.campaign}", options.quiet)


def submit_campaign(options: argparse.Namespace) -> int:
    """The command `submit`: submits the campaign, and a job that makes the report."""
    where = site(options.site)
    planned = plan(read(options.campaign), where, options.site)
    planned.require_budget()
    from jobs.submit import budget, submit

    standings = survey(planned.campaign.out, planned.tasks)
    failed = sum(standing.state == FAILED for standing in standings)
    if all(standing.over for standing in standings) and not (failed and options.retry_failed):
        done = f"{failed} failed for good, try them again by --retry-failed" if failed else "all is done"
        say(f"nothing to submit: {done}; python -m jobs status {options.campaign}")
        return NOT_DONE if failed else DONE
    first = job(
        planned,
        account=options.account,
        queue=options.queue,
        environment=options.environment,
        kind=options.kind,
        retry_failed=options.retry_failed,
    )
    wanted = [first] if options.no_report else [first, report_job(planned, first)]
    where.check(first)
    warn_of_site(first, where)
    if not (options.quiet and options.yes):
        say(budget(wanted))
    if not options.yes:
        say("nothing is submitted without --yes")
        return DONE
    State(planned.campaign.out, 0).create()  # makes the directory of the batch system's output
    submitted = None
    for one in wanted:
        try:
            submitted = submit(one, where, planned.campaign.out / "jobs", after=submitted)
        except JobError as error:
            if submitted is None:
                raise
            raise JobError(
                f"the runs are submitted, as job {submitted.id}; only the report is missing, and to submit again would "
                f"queue the runs twice. When they have ended: python -m jobs collect {options.campaign}. {error}"
            ) from None
        say(f"submitted {submitted.name} as job {submitted.id}: {submitted.script}")
    if not options.quiet:
        say(f"next: python -m jobs status {options.campaign} --site {options.site}")
    return DONE


def collect_runs(options: argparse.Namespace) -> int:
    """The command `collect`: makes the report."""
    from jobs.collect import collect

    return collect(plan(read(options.campaign)), say, options.output, options.results, options.quiet)


COMMANDS = {
    "example": give_example,
    "plan": show_plan,
    "local": run_local,
    "status": show_status,
    "collect": collect_runs,
    "render": render_command,
    "submit": submit_campaign,
    "run": run_allocation,
    "cluster": cluster_commands.run_command,
}


def say(text: str) -> None:
    """Prints and flushes, also into a file or pipe."""
    tell(text, keep="\n")


def nothing(text: str) -> None:
    """A substitute for `say` that prints nothing."""


def _plan(options: argparse.Namespace) -> Plan:
    campaign = read(options.campaign)
    return plan(campaign, site(options.site) if options.site else None)


def _run(
    options: argparse.Namespace,
    planned: Plan,
    allocation: int,
    launcher: Launcher,
    local: bool = False,
    limited: bool = False,
) -> Ended:
    """Runs one allocation; --quiet and --verbose choose the printed lines."""
    return run(
        planned,
        allocation,
        launcher,
        say,
        progress=nothing if options.quiet else say,
        detail=say if options.verbose else nothing,
        limited=limited,
        retry_failed=options.retry_failed,
        allocation_id=name_allocation(allocation, local=local),
    )


def _summary(ended: Ended, then: str, quiet: bool) -> int:
    if ended.failed or ended.left:
        say(f"not all done: {ended.failed} failed for good, {ended.left} left")
        return NOT_DONE
    if not quiet:
        say(f"all done; next: {then}")
    return DONE


def _report_error(what: object, code: int) -> int:
    tell(f"jobs: {what}", sys.stderr, keep="\n")
    return code


def _hear_hangup() -> None:
    """Makes a closed terminal (SIGHUP) end the runner like SIGTERM, unless nohup has it ignored."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


if __name__ == "__main__":
    sys.exit(main())
