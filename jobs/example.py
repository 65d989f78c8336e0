"""The campaigns that come with the program, to copy and change: `jobs/examples/NAME.toml`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from jobs.job import JobError
from jobs.words import quoted
from miniapps.runner.config import closest


def names() -> list[str]:
    """The names of the examples."""
    return sorted(path.name[:-5] for path in _folder().iterdir() if path.name.endswith(".toml"))


def summary(name: str) -> str:
    """The first line of the example's comment."""
    return _text(name).partition("\n")[0].removeprefix("# ")


def copy(name: str, folder: Path) -> Path:
    """Writes the example `name` (with or without .toml) into `folder`; overwrites no file. Raises JobError."""
    name = name.removesuffix(".toml")
    if name not in names():
        raise JobError(f"example {quoted(name)}: not known{closest(name, names())}")
    file = folder / f"{name}.toml"
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(_text(name))
    except FileExistsError:
        raise JobError(
            f"{file} exists already, and nothing is written over; move it away or start elsewhere"
        ) from None
    except OSError as error:
        raise JobError(f"{file}: cannot be written: {error.strerror}") from None
    return file


def hint(path: Path) -> str:
    """The end of the message on a missing campaign, if an example has its name; else empty."""
    name = path.name.removesuffix(".toml")
    return (
        f"; `python -m jobs example {name}` writes the example of that name here" if name in names() else ""
    )


def _text(name: str) -> str:
    return _folder().joinpath(f"{name}.toml").read_text(encoding="utf-8")


def _folder():
    return files("jobs").joinpath("examples")
