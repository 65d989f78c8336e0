"""What applications that learn share: options that models declare, and options of checkpoints that are anybody's."""

import random
from dataclasses import dataclass

import pytest

from miniapps.dlrm.checkpoint import HOLDING as OF_TABLES
from miniapps.dlrm.config import DlrmConfig
from miniapps.errors import UsageError
from miniapps.learning.discovery import require_heard, section_of
from miniapps.mesh.checkpoint import HOLDING as OF_MESHES
from miniapps.mesh.config import MeshConfig
from miniapps.runner.config import option, options
from miniapps.training.checkpoint import HOLDING as OF_MODELS
from miniapps.training.config import TrainingConfig
from miniapps.untrusted.regular import Refused

# ---- options that models declare


@dataclass
class Wide:
    width: int = option(4, help="width", minimum=1, maximum=9)


@dataclass
class Deep(Wide):
    depth: int = option(2, help="layers", minimum=1, maximum=9)


@dataclass
class Other:
    width: int = option(5, help="width", minimum=1, maximum=9)


class One:
    """A wide one."""

    OPTIONS = Wide


class Two:
    """A deep one.

    And more.
    """

    OPTIONS = Deep


class Three:
    OPTIONS = Other


def test_a_section_has_what_its_models_hear_and_says_which():
    made = section_of({"one": One(), "two": Two()}, __name__, "one")
    known = made.__dataclass_fields__
    assert [(name, field.default) for name, field in known.items()] == [
        ("name", "one"), ("width", 4), ("depth", 2),
    ]  # fmt: skip
    assert known["name"].metadata["help"] == "one: A wide one; two: A deep one"
    assert known["depth"].metadata["help"] == "two: layers" and known["width"].metadata["help"] == "width"


def test_what_a_model_does_not_hear_is_refused_where_it_is_given():
    found = {"one": One(), "two": Two()}
    made = section_of(found, __name__, "one")
    require_heard(made("two", 4, 3), found)
    require_heard(made("one", 3, 2), found)
    with pytest.raises(
        UsageError, match=r"model.depth: --model one has no such option; leave it out, or choose --model two"
    ):
        require_heard(made("one", 4, 3), found)


def test_one_name_for_two_options_is_an_error_of_whoever_wrote_it():
    with pytest.raises(TypeError, match=r"model.width: three and another model declare it differently"):
        section_of({"one": One(), "three": Three()}, __name__, "one")


# ---- checkpoints


HOLDINGS = {
    "training": (OF_MODELS, TrainingConfig),
    "dlrm": (OF_TABLES, DlrmConfig),
    "mesh": (OF_MESHES, MeshConfig),
}


def drawn(rng, known):
    """Options as a file may state them: most are what a run could have, of few layers."""
    given = {}
    for one in known:
        allowed = one.allowed()
        value = rng.choice(allowed) if allowed else one.default
        if one.range:
            least, most = one.minimum, min(one.maximum, 8)
            value = rng.choice([least, most, rng.randint(int(least), int(most))])
            value = value if one.type is float else int(value)
        given[one.key] = 1 if value is None else value
    given["training.batch"], given["training.micro"] = rng.choice([(64, 8), (64, 64), (8, 4), (7, 2)])
    for key in rng.sample(list(given), rng.choice([0, 0, 0, 1])):
        given[key] = rng.choice([-1, 0, 2**70, "", "\0", "x" * 5000, 1.5, float("nan")])
    return given


@pytest.mark.parametrize("app", HOLDINGS)
def test_whatever_options_a_file_states_they_are_a_problem_or_refused_in_a_sentence(app):
    holding, config = HOLDINGS[app]
    known = [one for one in options(config) if one.role == "problem"]
    rng, taken = random.Random(1), 0
    for _ in range(60 if app == "mesh" else 300):
        given = drawn(rng, known)
        try:
            held = holding.kind.shapes(given, "here")
        except Refused as error:
            assert str(error).startswith("here: ") and str(error).count("\n") == 0, given
            continue
        taken += 1
        expected = holding.kind.expected(held)
        assert all(n > 0 for _, shape in expected.values() for n in shape), given
    assert taken > 5


def test_options_that_are_not_stated_are_refused():
    known = [one for one in options(DlrmConfig) if one.role == "problem"]
    given = drawn(random.Random(2), known)
    given |= {"training.batch": 64, "training.micro": 8}
    del given["embeddings.rows"]
    with pytest.raises(Refused, match=r"here: it lacks embeddings.rows"):
        OF_TABLES.kind.shapes(given, "here")
