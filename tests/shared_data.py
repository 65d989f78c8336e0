"""Real data sets, in shared/data beside the repository or further up; tests that need them are skipped without."""

from pathlib import Path


def shared_data(name: str) -> Path | None:
    """The path of a file of shared/data, or None."""
    paths = (folder / "shared" / "data" / name for folder in Path(__file__).resolve().parents)
    return next((path for path in paths if path.exists()), None)
