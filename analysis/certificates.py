"""Reads the certificates of audits among runs."""

from __future__ import annotations

from pathlib import Path

from analysis.load.find import is_run
from analysis.load.frames import Frames
from miniapps.untrusted.certificate import CERTIFICATE, Certificate, read_certificate
from miniapps.untrusted.regular import Refused


def certificates(frames: Frames) -> tuple[dict[str, Certificate], list[str]]:
    """({run: certificate}, sentences on unusable files) of the runs of `frames`, one per launch."""
    found: dict[str, Certificate] = {}
    problems = []
    for run, path in frames.runs[["run", "path"]].drop_duplicates().itertuples(index=False):
        try:
            found[run] = read_certificate(Path(path) / CERTIFICATE)
        except FileNotFoundError:
            continue
        except (Refused, OSError) as error:
            problems.append(str(error))
    return found, problems


def beside(directory: Path) -> list[Path]:
    """The runs with a certificate in the folder that holds the run `directory`."""
    found = (path.parent for path in directory.absolute().parent.glob(f"*/{CERTIFICATE}"))
    return sorted(each for each in found if is_run(each))
