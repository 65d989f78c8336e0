"""Every place that opens a file for reading is in `miniapps.untrusted`, or stands here with its reason."""

import ast

from tests.syntax import ROOT, modules

TOPS = ("analysis", "fpna", "jobs", "kernels", "miniapps")
DOOR = "miniapps/untrusted/"
# Calls by which Python and packages read files: by name, or by the name of a method.
READS = {
    "open", "os.open", "io.open", "os.fdopen", "io.FileIO", "mmap.mmap", "np.load", "np.loadtxt", "np.genfromtxt",
    "np.fromfile", "np.memmap", "h5py.File", "json.load", "tomllib.load", "pickle.load", "torch.load", "configparser",
    "pq.ParquetFile", "pq.read_table", "pq.read_metadata", "pq.read_schema", "pd.read_csv", "pd.read_parquet",
    "pd.read_json", "pd.read_hdf", "pd.read_pickle", "scipy.io.mmread", "scipy.sparse.load_npz", "zipfile.ZipFile",
    "gzip.open", "h5f.open", "h5py.h5f.open", "msgspec.json.decode", "msgspec.toml.decode", "yaml.load", "tarfile.open",
}  # fmt: skip
METHODS = {"read_text", "read_bytes", "open"}
LAST = METHODS | {name.rpartition(".")[2] for name in READS}
# What else opens files, by function, and why that is no door.
REASONS = {
    "files of this package itself": (
        "analysis/ask/rank.py:learned",
        "analysis/report/build.py:build",
        "jobs/example.py:_text",
        "jobs/render.py:render",
        "jobs/sites.py:site",
        "kernels/cuda/__init__.py:_complete",
        "miniapps/applications.py:defines",
        "miniapps/programs/building.py:digest",
        "miniapps/runner/commandline.py:decks",
        "miniapps/system/environment.py:git_revision",
        "miniapps/system/environment.py:sources",
    ),
    "what the system says of itself": (
        "analysis/load/guard.py:_limited",
        "jobs/cluster/nodes.py:_environment_of",
        "jobs/processes.py:why_not_own",
        "jobs/processes.py:_now",
        "jobs/processes.py:_before_this_boot",
        "kernels/allreduce/execution/gpu_aware.py:loaded",
        "kernels/allreduce/execution/torch_ranks.py:TorchRanks.places",
        "miniapps/calibrate/bandwidth.py:last_cache",
        "miniapps/cost/launches.py:_busy",
        "miniapps/doctor.py:memory",
        "miniapps/system/environment.py:cpu_model",
        "miniapps/system/environment.py:boot",
        "miniapps/system/environment.py:frequency",
        "miniapps/system/environment.py:_blas",
        "miniapps/system/peers.py:alive",
        "miniapps/system/resources.py:_text",
    ),
    "the current directory, to come back to": ("miniapps/system/figures.py:_elsewhere",),
    "opened to be written, or a directory to write in": (
        "analysis/load/cache.py:write_file",
        "analysis/predict/scoring/ledger.py:append",
        "analysis/predict/scoring/ledger.py:_sync_directory",
        "jobs/files.py:to_append",
        "kernels/commands/entry.py:_Descriptor.write",
        "kernels/commands/entry.py:_own_streams",
        "kernels/torchops/worker.py:main",
        "miniapps/programs/calltrace.py:fill",
        "miniapps/system/place.py:Place.__init__",
        "miniapps/system/place.py:Place.write",
        "miniapps/trace/storage.py:Storage.__init__",
        "analysis/load/cache.py:_write",
        "analysis/load/cache.py:_remove",
        "jobs/state.py:_alone",
    ),
    "this user's own cache, by its own rules: a hash of each file (docs/reference/files.md)": (
        "analysis/load/cache.py:load",
        "analysis/load/cache.py:_opened",
        "analysis/load/cache.py:_reading",
        "analysis/load/rows.py:Rows.whole",
        "analysis/load/rows.py:Rows.pieces",
        "analysis/load/rows.py:Rows.at",
        "analysis/load/rows.py:Rows._groups",
    ),
    "the file was opened by `open_regular`, and is read in pieces": (
        "kernels/npy.py:mapped",
        "miniapps/cpus/dispatch.py:_signs",
        "miniapps/cpus/launches.py:launch",
        "miniapps/cpus/outcomes.py:_arrays",
        "miniapps/cpus/outcomes.py:_of_hdf5",
        "miniapps/programs/building.py:has_recorder",
        "miniapps/programs/elf.py:defines",
        "miniapps/programs/elf.py:functions_at",
        "miniapps/programs/rawlog.py:read",
        "miniapps/reductions/files.py:_open",
        "miniapps/reductions/files.py:_dataset",
        "miniapps/solver/scipy_npz.py:_Member.__init__",
        "miniapps/solver/scipy_npz.py:_opened",
        "miniapps/training/graphs/cora.py:_of_files",
    ),
    "a text that is in memory, of bounded length": (
        "jobs/records.py:_wrong",
        "kernels/allreduce/packing.py:decode",
        "miniapps/partition/showing/staged.py:decode",
    ),
    "the room below the door: regular files of bounded size, by its own hand": (
        "kernels/allreduce/links.py:read_json",
        "kernels/commands/sums.py:_read",
        "kernels/commands/properties.py:write",
        "kernels/torchops/source.py:require",
    ),
}
ALLOWED = {place for places in REASONS.values() for place in places}


def calls(tree):
    """(function that holds it, call, how it is written) of all calls that read files."""

    def visit(node, inside):
        for child in ast.iter_child_nodes(node):
            name = child.name if isinstance(child, ast.FunctionDef | ast.ClassDef) else ""
            within = f"{inside}.{name}".strip(".") if name else inside
            if isinstance(child, ast.Call) and last(child.func) in LAST:
                written = ast.unparse(child.func)
                method = isinstance(child.func, ast.Attribute) and child.func.attr in METHODS
                if (written in READS or method) and not only_writes(child, written):
                    yield within, child, written
            yield from visit(child, within)

    yield from visit(tree, "")


def last(function):
    """The name by which a function is called, or that of the method."""
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def only_writes(call, written):
    """Whether a call of `open` creates or appends."""
    if written not in ("open", "io.open") and not written.endswith(".open"):
        return False
    mode = [*call.args[1:2], *(key.value for key in call.keywords if key.arg == "mode")]
    if isinstance(call.func, ast.Attribute) and written not in ("os.open", "io.open"):
        mode = [*call.args[:1], *(key.value for key in call.keywords if key.arg == "mode")]
    return any(
        isinstance(m, ast.Constant) and isinstance(m.value, str) and m.value[:1] in "wax" for m in mode
    )


def found():
    places = {}
    for path, tree in (module for top in TOPS for module in modules(top)):
        name = str(path.relative_to(ROOT))
        if name.startswith(DOOR):
            continue
        for function, call, _ in calls(tree):
            places.setdefault(f"{name}:{function}", []).append(f"{call.lineno}: {ast.unparse(call)}")
    return places


def test_every_place_that_reads_a_file_is_a_door_or_has_a_reason():
    places = found()
    assert not {place: lines for place, lines in places.items() if place not in ALLOWED}
    assert not [place for place in ALLOWED if place not in places]
