"""Configuration: dataclasses of options; the command line wins over environment, deck and default.

A configuration is a dataclass whose fields are sections; a section is a dataclass whose fields are options:

    @dataclass
    class Grid:
        n: int = option(128, help="cells per side", minimum=1, maximum=4096, flag="--cells")

    @dataclass
    class Config:
        grid: Grid = section(Grid)

`grid.n` is then set by `--cells 64`, `--set grid.n=64`, `FPNA_GRID_N=64` or `[grid] n = 64` in a deck. Every number has
a range. Values outside it are refused, whatever their source, and the message states the range.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import types
import typing
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from miniapps.errors import UsageError
from miniapps.trace.schema import EFFECTS
from miniapps.untrusted.records import DIGITS, parse_toml

ROLES = ("problem", "method", "control")
PREFIX = "FPNA_"
LONGEST = 4096  # characters of a text: no path is longer
WORDS = {
    int: "an integer",
    float: "a number",
    str: f"text of at most {LONGEST} characters, none of them a control character",
    bool: "true or false",
}
VALUES = 1000  # at most, of an option that takes several, unless its `count` says otherwise
SHOWN = 60  # characters of a wrong value that a message repeats
# Ranges that several options share: columns of traces and many arguments of C++ are integers of 32 bits.
INT32 = 2**31 - 1
SEEDS = 2**63 - 1  # random generators take 64 bits; repeats and injected faults add to the seed
HUGE = 1e9  # limit of a number with a unit where physics sets none: results computed from it stay finite


@dataclass(frozen=True)
class Option:
    """One option as declared: its place, type, range and description."""

    section: str
    name: str
    type: type
    optional: bool  # may be None
    many: bool  # a tuple of `type`
    default: Any
    help: str
    unit: str
    choices: tuple[Any, ...] | Callable[[], Iterable[Any]] | None
    role: str
    flag: str | None
    minimum: float | None
    maximum: float | None
    count: tuple[int, int]  # (least, most) values of an option that takes several
    parameters: bool
    instead: Callable[[], dict[str, str]] | None
    effect: str
    records: tuple[str, ...]
    of_ranks: bool

    @property
    def range(self) -> str:
        """The numbers that the option takes, in words: `1 to 4096`; empty where it takes no number."""
        if self.minimum is None or self.maximum is None:
            return ""
        return f"{_number(self.minimum)} to {_number(self.maximum)}"

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.section}_{self.name}".upper()

    def allowed(self) -> tuple[Any, ...] | None:
        """The values to choose from, or None where every value of the type is allowed."""
        return tuple(self.choices()) if callable(self.choices) else self.choices


def option(
    default: Any,
    *,
    help: str,
    unit: str = "",
    choices: tuple[Any, ...] | Callable[[], Iterable[Any]] | None = None,
    role: str = "problem",
    flag: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    count: tuple[int, int] = (0, VALUES),
    parameters: bool = False,
    instead: Callable[[], dict[str, str]] | None = None,
    effect: str = "",
    records: tuple[str, ...] = (),
    of_ranks: bool = False,
) -> Any:
    """Declares a field of a section. `role`: runs with different values are other experiments ("problem"), the same
    experiment by other means ("method"), or equal in every bit ("control"). `flag` makes the field a command-line
    option; `choices` may be a function, so that a registry is loaded only when needed. Every number needs `minimum` and
    `maximum`, both allowed; `count`: (least, most) values of a tuple. `parameters`: a choice may be followed by a colon
    and parameters, which are not checked here. `instead`: messages for values that are no choices, by value.

    The trace states the rest, because the analysis knows no option by name. `effect`, one of
    `miniapps.trace.schema.EFFECTS`: how the option affects guarantees and timing comparisons. `records`: the rows that
    it decides on, as TABLE:NAME with `*` for any text, such as "values:error". `of_ranks`: the contents of these rows
    depend on which blocks a rank owns."""
    if role not in ROLES:
        raise ValueError(f"role {role!r} of an option is unknown; the roles are {', '.join(ROLES)}")
    if effect and effect not in EFFECTS:
        raise ValueError(f"effect {effect!r} of an option is unknown; the effects are {', '.join(EFFECTS)}")
    return dataclasses.field(
        default=default,
        metadata=dict(
            help=help,
            unit=unit,
            choices=choices,
            role=role,
            flag=flag,
            minimum=minimum,
            maximum=maximum,
            count=count,
            parameters=parameters,
            instead=instead,
            effect=effect,
            records=records,
            of_ranks=of_ranks,
        ),
    )


def section(cls: type) -> Any:
    """Declares a field of a configuration that holds the section `cls`."""
    return dataclasses.field(default_factory=cls)


def options(config: type) -> list[Option]:
    """All options of a configuration class, in order of declaration. Raises TypeError for numbers without a range."""
    fields_of_options = []
    for name, cls in typing.get_type_hints(config).items():
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            kind, optional, many = type_of(hints[field.name], f"{cls.__name__}.{field.name}")
            fields_of_options.append(
                Option(name, field.name, kind, optional, many, field.default, **field.metadata)
            )
            if kind in (int, float) and not fields_of_options[-1].range:
                raise TypeError(f"{cls.__name__}.{field.name}: a number needs its minimum and its maximum")
    return fields_of_options


def build(config: type, values: Mapping[str, Any]) -> Any:
    """An instance of `config` from values by key; missing options keep their defaults."""
    sections = {}
    for name, cls in typing.get_type_hints(config).items():
        names = [field.name for field in dataclasses.fields(cls)]
        sections[name] = cls(**{n: values[f"{name}.{n}"] for n in names if f"{name}.{n}" in values})
    return config(**sections)


def effective(known: Iterable[Option], *configs: Any) -> dict[str, dict[str, Any]]:
    """The values of the `known` options in the given configurations, defaults included, as {section: {name: value}} in
    the types of JSON."""
    held: dict[str, dict[str, Any]] = {}
    for config in configs:
        held |= dataclasses.asdict(config)
    values: dict[str, dict[str, Any]] = {}
    for o in known:
        values.setdefault(o.section, {})[o.name] = held[o.section][o.name]
    return json.loads(json.dumps(values))


def of_role(known: Iterable[Option], values: Mapping[str, Mapping[str, Any]], role: str) -> dict[str, Any]:
    """{"section.name": value} of the options with this role; `values` as `effective` returns them."""
    return {o.key: values[o.section][o.name] for o in known if o.role == role}


def stated(known: Iterable[Option]) -> dict[str, dict[str, Any]]:
    """{"section.name": {effect, records, of_ranks}} of the options with an effect or records, as in the trace."""
    return {
        o.key: {"effect": o.effect, "records": list(o.records), "of_ranks": o.of_ranks}
        for o in known
        if o.effect or o.records
    }


# Where values come from. Each source yields {key: value} with the values converted and checked.


def from_deck(known: list[Option], text: str, where: str) -> dict[str, Any]:
    """Values of a TOML deck; `where` names it in errors. Raises UsageError."""
    try:
        deck = parse_toml(text)
    except ValueError as error:  # TOMLDecodeError is one
        raise UsageError(f"deck {where}: not valid TOML: {error}") from error
    sections = list(dict.fromkeys(o.section for o in known))
    values = {}
    for name, content in deck.items():
        if name not in sections:
            raise UsageError(f"deck {where}: unknown section [{cut(name)}]{closest(name, sections)}")
        if not isinstance(content, dict):
            raise UsageError(f"deck {where}: {name} must be a section, written [{name}], not a value")
        for key, value in content.items():
            known_option = _find(known, f"{name}.{key}", f"deck {where}")
            values[known_option.key] = convert(known_option, value, f"deck {where}, {known_option.key}")
    return values


def from_environment(known: list[Option], environ: Mapping[str, str]) -> dict[str, Any]:
    """Values of FPNA_SECTION_NAME variables. Raises UsageError, also for a variable that looks misspelt."""
    variables = {o.variable: o for o in known}
    prefixes = tuple({f"{PREFIX}{o.section}_".upper() for o in known})
    values = {}
    for variable in sorted(v for v in environ if v.startswith(PREFIX)):
        if variable in variables:
            text = variables[variable]
            values[text.key] = convert(text, environ[variable], f"environment variable {variable}")
        elif variable.startswith(prefixes) or difflib.get_close_matches(variable, variables, 1, 0.85):
            raise UsageError(
                f"environment variable {cut(variable)}: no such option{closest(variable, variables)}"
            )
    return values


def from_settings(known: list[Option], settings: Iterable[str]) -> dict[str, Any]:
    """Values of `--set section.name=value`. Raises UsageError."""
    values = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {cut(setting)}: write it as --set section.name=value")
        known_option = _find(known, key.strip(), f"--set {cut(setting)}")
        values[known_option.key] = convert(known_option, text, f"--set {cut(setting)}")
    return values


def convert(option: Option, value: Any, where: str) -> Any:
    """Returns `value`, text or TOML, converted to the type of `option`. Raises UsageError whose message begins with
    `where`."""
    if option.optional and (value is None or (isinstance(value, str) and value.strip().lower() == "none")):
        return None
    if option.many:
        items = value.split() if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            items = [items]
        least, most = option.count
        if not least <= len(items) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise UsageError(f"{where}: {option.key} takes {wanted} values, not {len(items)}")
        return tuple(_one(option, item, where) for item in items)
    return _one(option, value, where)


def closest(name: str, names: Iterable[str]) -> str:
    """The end of an error message: the most similar of `names`, and all of them."""
    names, name = list(names), cut(name)
    match = difflib.get_close_matches(name, names, 1, 0.5)
    return (f"; did you mean {match[0]}?" if match else ";") + f" There are: {', '.join(names) or 'none'}"


def _find(known: list[Option], key: str, where: str) -> Option:
    by_key = {o.key: o for o in known}
    if key not in by_key:
        same_section = [k for k in by_key if k.startswith(key.partition(".")[0] + ".")]
        raise UsageError(f"{where}: no option {cut(key)}{closest(key, same_section or by_key)}")
    return by_key[key]


def _one(option: Option, value: Any, where: str) -> Any:
    converted = _parse(option.type, value)
    if converted is None:
        none = " (or none)" if option.optional else ""
        bounds = f" from {option.range}" if option.range else ""
        raise UsageError(
            f"{where}: {option.key} takes {WORDS[option.type]}{bounds}{none}, not {_shown(value)}"
        )
    allowed = option.allowed()
    chosen = converted.partition(":")[0] if option.parameters else converted
    if allowed is not None and chosen not in allowed:
        names = [str(a) for a in allowed]
        if option.instead and (now := option.instead().get(chosen)):
            raise UsageError(f"{where}: {option.key} cannot be {_shown(converted)}: {now}")
        raise UsageError(
            f"{where}: {option.key} cannot be {_shown(converted)}{closest(str(converted), names)}"
        )
    if option.range and not option.minimum <= converted <= option.maximum:
        raise UsageError(f"{where}: {option.key} must be from {option.range}, not {_shown(value)}")
    return converted


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _shown(value: Any) -> str:
    """A wrong value as a message repeats it."""
    if isinstance(value, int) and value.bit_length() > 4 * SHOWN:  # Python writes no number of 4,301 digits
        return f"a number of some {int(value.bit_length() * math.log10(2)) + 1} digits"
    return cut(repr(value))


def cut(text: str) -> str:
    """`text` shortened for a message."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 20]}... ({len(text)} characters)"


TRUTHS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def _parse(kind: type, value: Any) -> Any:
    """`value` as `kind`, or None if it is not one; numbers in text are read as Python writes them."""
    if kind is str:
        plain = isinstance(value, str) and len(value) <= LONGEST
        # The trace records values in UTF-8, which cannot encode halves of surrogate pairs (Cs).
        return value if plain and not any(unicodedata.category(c) in ("Cc", "Cs") for c in value) else None
    if kind is bool:
        if isinstance(value, bool):
            return value
        return TRUTHS.get(value.strip().lower()) if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > DIGITS:
        return None
    try:
        if kind is int:
            return None if isinstance(value, float) else int(value)
        number = float(value)
    except (ValueError, OverflowError):  # an integer may exceed float64
        return None
    return number if math.isfinite(number) else None


def type_of(hint: Any, where: str) -> tuple[type, bool, bool]:
    """(type, may be None, many) of an annotation."""
    optional = typing.get_origin(hint) in (typing.Union, types.UnionType)
    if optional:
        (hint,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
    many = typing.get_origin(hint) is tuple
    kind = typing.get_args(hint)[0] if many else hint
    if kind not in (int, float, str, bool):
        raise TypeError(
            f"{where}: an option is int, float, str, bool, optional, or a tuple of one; not {hint}"
        )
    return kind, optional, many
