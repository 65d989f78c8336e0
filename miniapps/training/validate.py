"""What can be refused before a run creates anything."""

import importlib.util
from math import prod

from kernels.allreduce.coding import coding
from kernels.guarantees import ChoiceError
from miniapps.checkpoints.options import require_movable
from miniapps.errors import UsageError
from miniapps.system.resources import Need
from miniapps.training import choosing, dlrm_problem
from miniapps.training.checkpoint import check_restart
from miniapps.training.config import RATED, Embeddings, Mesh
from miniapps.training.data import COUNTS, EDGE, GRAPHS, held_out, load
from miniapps.training.models import network


def calls(config, options) -> str:
    """How the network is called: "rank" or "block". Raises ChoiceError if that is below the guarantee."""
    asked, policy = config.training.calls, options.policy
    if asked == "rank" and policy.per_block:
        raise ChoiceError(
            f"training.calls = rank meets guarantee run, below {policy.level}: the rounding of a gradient depends on "
            "the number of images in its batch; use training.calls = block"
        )
    return asked if asked != "auto" else ("block" if policy.per_block else "rank")


def validate(config, options, size: int) -> None:
    """Raises UsageError or ChoiceError naming the option, its allowed values and the remedy."""
    training, name = config.training, config.data.name
    if importlib.util.find_spec("torch") is None:
        raise UsageError("training needs torch, which is not installed; pip install torch")
    if options.device != "cpu":
        raise UsageError(f"--device {options.device}: training computes on the CPU; choose --device cpu")
    _require_used(config, size)
    tables = config.model.name == "dlrm" and not config.meshed
    if not config.meshed and not tables:
        _require_images_or_graph(config, options)
    if training.batch % training.micro:
        raise UsageError(
            f"training.batch = {training.batch} images cannot be cut into micro-batches of {training.micro}; choose a "
            "multiple of training.micro"
        )
    if training.last > training.steps:
        raise UsageError(
            f"--until {training.last}: this problem has {training.steps} steps (training.steps); choose 0 to "
            f"{training.steps}, or raise --steps, which is another problem"
        )
    if config.meshed:
        _over_mesh(config, options, size)
        return
    if tables:
        _require_blocks(training, size)
        dlrm_problem.validate(config, options, size)
        if config.output.restart:
            check_restart(config, options, size)
        return
    images = COUNTS[name][0] - training.tries * int(held_out(name).sum())
    if training.batch > images:
        raise UsageError(
            f"training.batch = {training.batch}: {name} has {images} images; choose a smaller batch"
        )
    _require_blocks(training, size)
    if config.output.shares == "auto":
        _movable(config, options)
    choosing.validate(config, options, list(_shapes(config).values()))
    load(name, config.data.dir, config.seeds.data, config.data.features)
    if config.output.restart:
        check_restart(config, options, size)


ZIPF = ("rows", "tables", "zipf", "pooling", "features")  # options of what --data zipf draws


def _require_used(config, size: int) -> None:
    """Refuse options of another model, which would have no effect."""
    model, data, embeddings = config.model.name, config.data.name, config.embeddings
    if not config.meshed and (given := _given(config.mesh, Mesh())):
        raise UsageError(
            f"mesh.{given[0]}: --model {model} is trained without a mesh, where it has no effect; add --mesh (for "
            f"example --mesh data={size}), or leave it out"
        )
    if model != "dlrm" and (given := _given(embeddings, Embeddings(), ("sharding", "choice"))):
        raise UsageError(
            f"--{given[0]}: --model {model} has no tables of embeddings; choose --model dlrm, or leave it out"
        )
    if data != "zipf" and (given := _given(embeddings, Embeddings(), ZIPF)):
        raise UsageError(
            f"embeddings.{given[0]}: says what --data zipf draws, and --data {data} is read; choose --data zipf, or "
            "leave it out"
        )


def _given(section, default, names: tuple[str, ...] | None = None) -> list[str]:
    """The options of a section that are not as in `default`; `names`: among these."""
    return [name for name in names or vars(default) if getattr(section, name) != getattr(default, name)]


def _require_blocks(training, size: int) -> None:
    if size > training.blocks:
        raise UsageError(
            f"{size} ranks for {training.blocks} micro-batches of {training.micro} images: every rank needs at least "
            f"one; start at most {training.blocks} ranks, or choose a smaller training.micro or a larger --batch"
        )


def _movable(config, options) -> None:
    """What keeps something per rank, or depends on how many micro-batches a rank has, does not move."""
    require_movable(config.output, options)
    used = coding(config.training.wire)
    for name, reason in (
        ("--policy " + config.training.policy, config.training.policy != "fixed"),
        ("--wire " + config.training.wire, used is not None and used.feedback),
        ("training.calls = rank", calls(config, options) == "rank"),
    ):
        if reason:
            raise UsageError(
                f"--shares auto moves micro-batches between ranks, which {name} does not allow; choose --policy "
                "fixed, a wire without feedback, and --set training.calls=block"
            )


def _over_mesh(config, options, size: int) -> None:
    from miniapps.training import mesh_choice

    mesh_choice.validate(config, options, size)
    if config.data.name != "text":
        load(config.data.name, config.data.dir, config.seeds.data)
    if config.output.restart:
        check_restart(config, options, size)


def _require_images_or_graph(config, options) -> None:
    """A graph goes with the network of graphs, and an aggregation with the guarantee."""
    name, model = config.data.name, config.model
    if name in RATED:
        raise UsageError(
            f"--model {model.name} cannot learn --data {name}, which is for dlrm; choose --model dlrm"
        )
    if (name in GRAPHS) != (model.name == "graphsage"):
        raise UsageError(
            f"--model {model.name} cannot learn --data {name}: graphsage goes with {', '.join(GRAPHS)}, the other "
            "networks with images; --deck graphsage chooses both"
        )
    if (model.neighbours or model.second_neighbours) and name not in GRAPHS:
        raise UsageError(
            f"model.neighbours, model.second_neighbours: --data {name} has no neighbours; leave them at 0, or choose "
            "--deck graphsage"
        )
    for flag, order in (
        ("--aggregate", model.aggregate),
        ("--aggregate-inference", model.aggregate_inference),
    ):
        if name in GRAPHS and order == "atomic" and options.guarantee != "none":
            raise ChoiceError(
                f"{flag} atomic meets guarantee none, below {options.guarantee}: additions come as threads arrive; "
                "choose sorted or exact, or emulated, whose order a seed draws"
            )


def _shapes(config) -> dict[str, tuple[int, ...]]:
    return network(config.model.name).shapes(config.model, EDGE[config.data.name])


# Bytes of memory: of torch in a process, and of an image and channel of the convolutions on the way there and back.
TORCH, ACTIVATION = 2**27, 24


def memory(config, options, size: int) -> Need:
    """What a rank with the most micro-batches will need."""
    if config.meshed:
        from miniapps.training import mesh_choice

        return mesh_choice.memory(config, size)
    if config.model.name == "dlrm":
        return dlrm_problem.memory(config, options, size)
    training, model, edge = config.training, config.model, EDGE[config.data.name]
    parameters = sum(map(prod, _shapes(config).values()))
    most = -(-training.blocks // size)
    rows, images = (most, training.micro) if training.calls == "block" else (1, most * training.micro)
    of_image = edge * edge * model.channels * 3 // 2 if model.name == "cnn" else 4 * model.hidden
    states = 2 * (len(choosing.candidates(config)) + 3) * training.tries  # that AdaPrec keeps
    fixed = TORCH + _data_bytes(config) + 4 * (8 + states + 3 * rows) * parameters
    return Need(
        fixed + ACTIVATION * max(images, 250) * of_image,
        f"model.hidden = {model.hidden}, training.batch = {training.batch}",
        lambda share: "choose a smaller model, a smaller training.micro, or more nodes",
    )


def _data_bytes(config) -> int:
    """Of the images; of a graph the features, twice, and what a layer keeps of nodes and messages."""
    name, edge = config.data.name, EDGE[config.data.name]
    if name not in GRAPHS:
        return sum(COUNTS[name]) * edge * edge
    nodes, edges = GRAPHS[name]
    return 4 * (2 * nodes + edges) * edge + ACTIVATION * (nodes + edges) * config.model.hidden
