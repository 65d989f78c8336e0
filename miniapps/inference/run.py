"""One repeat of the inference mini-app: answers requests and compares the answers."""

import hashlib
import json

import numpy as np

import kernels.inference  # noqa: F401 - registers its variants
from kernels import bits
from kernels.registry import get
from miniapps.inference.weights import weights
from miniapps.layout.owners import contiguous_owner, shuffled
from miniapps.learning.samples.images import Labelled, load, share
from miniapps.learning.seeds import REQUESTS, generator
from miniapps.runner.outcome import Check, Outcome
from miniapps.trace import fingerprint
from miniapps.trace.schema import COMPUTE, OTHER
from miniapps.training.models import of_images
from miniapps.untrusted.schedule import SCHEDULE


def run(ctx) -> Outcome:
    """Answer this rank's requests and compare the answers of all ranks; collective."""
    config, tracer = ctx.config, ctx.tracer
    read = load(config.data.name, config.data.dir, config.seeds.data) if ctx.rank == 0 else None
    given = share(ctx.comm, read, Labelled)
    pool = given.test_images[: config.requests.images] * np.float32(1.0 / given.largest)
    labels = given.test_labels[: config.requests.images]
    arrays = ctx.comm.bcast(weights(config) if ctx.rank == 0 else None)
    variant = get("inference", config.inference.backend)
    forward = of_images()[config.model.name].forward
    answer = variant(forward, arrays, pool.shape[1:], threads=ctx.options.threads)
    _show(ctx, answer)

    owner = shuffled(contiguous_owner(config.requests.count, ctx.size), ctx.options.shuffle_blocks)
    own = np.flatnonzero(owner == ctx.rank).tolist()
    for size in sorted(set(config.requests.sizes)):
        answer(pool[np.arange(size) % len(pool)])  # the first call of a size may make kernels
    event, record = tracer.name("request", COMPUTE), tracer.name("record", OTHER)
    seconds, prints = [], {}
    answers: dict[int, list[np.ndarray]] = {}  # by image: its answers with different bits
    for step, request in enumerate(own):
        ctx.begin_step(step + 1, len(own))
        tracer.at(ctx.repeat, request)
        images = asked(config, request)
        x = pool[images]
        start = tracer.clock()
        logits = answer(x)
        end = tracer.clock()
        tracer.event(event, start, nbytes=x.nbytes + logits.nbytes)
        seconds.append((end - start) / 1e9)
        start = tracer.clock()
        prints[request] = fingerprint(logits)
        tracer.array("logits", request, logits)
        _keep(answers, zip(images.tolist(), logits, strict=True))
        tracer.event(record, start)
    ctx.end_steps(len(own) + 1)
    return _outcome(ctx, variant, ctx.comm.gather((seconds, prints, answers)), labels)


def asked(config, request: int) -> np.ndarray:
    """The indices of the images of a request, int64; they depend only on the seed and the request's number."""
    rng = generator(config.seeds.requests, REQUESTS, request)
    size = config.requests.sizes[rng.integers(len(config.requests.sizes))]
    return rng.integers(0, config.requests.images, size)


def _keep(answers: dict[int, list[np.ndarray]], rows) -> None:
    """Keep each answer whose bits differ from all known answers to the same image."""
    for image, row in rows:
        known = answers.setdefault(image, [])
        if not any(row.tobytes() == other.tobytes() for other in known):
            known.append(row.copy())


def _show(ctx, answer) -> None:
    """Write the backend's schedule, if it has one, beside the trace."""
    schedule = getattr(answer, "schedule", None)
    if schedule is not None and ctx.rank == 0 and ctx.repeat == 0:
        (ctx.directory() / SCHEDULE).write_text(json.dumps(schedule.as_json(), indent=1) + "\n")
        ctx.log.info(
            "the schedule (%s; `python -m analysis answers %s --schedule FILE.svg` draws it):\n%s",
            SCHEDULE,
            ctx.out,
            schedule.describe(),
        )


def _outcome(ctx, variant, gathered, labels: np.ndarray) -> Outcome:
    if gathered is None:
        return Outcome()
    seconds = np.concatenate([of_rank for of_rank, _, _ in gathered])
    prints = {request: digest for _, of_rank, _ in gathered for request, digest in of_rank.items()}
    answers: dict[int, list[np.ndarray]] = {}
    for _, _, of_rank in gathered:
        _keep(answers, ((image, row) for image, rows in of_rank.items() for row in rows))
    for image, rows in sorted(answers.items()):
        ctx.tracer.value("results_per_image", len(rows), image)
    several = [rows for rows in answers.values() if len(rows) > 1]
    right = sum(int(rows[0].argmax()) == int(labels[image]) for image, rows in answers.items())
    images = sum(len(asked(ctx.config, request)) for request in prints)
    busiest = max(sum(of_rank) for of_rank, _, _ in gathered)
    hashed = hashlib.blake2b(b"".join(prints[request] for request in sorted(prints)), digest_size=16)
    figures = {
        "images_per_s": (images / busiest, "images/s"),
        "latency_median": (float(np.median(seconds)), "s"),
        "latency_99": (float(np.quantile(seconds, 0.99)), "s"),
        "accuracy": (right / len(answers), ""),
        "images_with_several_results": (len(several), f"of {len(answers)}"),
        "predictions_that_change": (
            sum(len({int(row.argmax()) for row in rows}) > 1 for rows in several),
            "images",
        ),
        "largest_ulp": (max((_ulp(rows) for rows in several), default=0.0), "ULP"),
    }
    checks = [Check("finite", all(np.isfinite(row).all() for rows in answers.values() for row in rows), "")]
    if variant.guarantee in ("layout", "exact"):
        detail = f"{len(several)} of {len(answers)} images have several results" if several else ""
        checks.append(Check("one result per image", not several, detail))
    return Outcome(figures, checks, hashed.hexdigest())


def _ulp(rows: list[np.ndarray]) -> float:
    """The largest distance of any answer from the first, in ULP."""
    return max(float(bits.largest(bits.ulp_distance(rows[0], row))) for row in rows[1:])
