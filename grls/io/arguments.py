"""The door: arguments of public calls and fields of options are checked by their types.

Scalars of NumPy and pandas become those of Python, arrays and series become lists, paths may be texts or any
``os.PathLike``. Everything else that is not what the annotation says is refused with the names of the call
and of the argument. ``Any`` takes everything, to be read elsewhere. ``Annotated[float, "(0, 1]"]`` bounds a
number; ``Annotated[kind, read]`` replaces the check by a function that returns the value to be used.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from functools import cache, partial, wraps
from inspect import Parameter, iscoroutinefunction, signature
from numbers import Integral, Rational, Real
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from grls.errors import ConfigError, Option

Filled = TypeVar("Filled")
Call = TypeVar("Call", bound=Callable[..., Any])

_SCALARS = (bool, int, float, str, Path)

_LARGEST = 2**63 - 1
"""The largest whole number of NumPy, faiss and torch."""

_LONGEST_NAME, _LONGEST_PATH = 255, 4000
"""The longest name of a file, and the longest path, in bytes."""

_SINGULAR: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    type: "a class",
}
_PLURAL: dict[Any, str] = {
    int: "whole numbers",
    float: "numbers",
    str: "texts",
    Path: "paths",
    Mapping: "dicts",
    dict: "dicts",
    Callable: "functions",
}


class UnfitError(Exception):
    """A value is not what is expected (``a whole number``); ``part``, such as ``[2]``, is its place in the
    argument.
    """

    def __init__(self, expected: str, value: Any, part: str = "", remedy: str = ""):
        super().__init__(expected)
        self.expected, self.value, self.part, self.remedy = expected, value, part, remedy

    def said_of(self, name: str) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        text = f"{name}{self.part} must be {self.expected}, got {short_repr(self.value)}{remedy}"
        return text if text.endswith("?") else f"{text}."

    def within(self, part: str) -> UnfitError:
        return UnfitError(self.expected, self.value, part + self.part, self.remedy)


Count = Annotated[int, "[1, inf)"]
NonNegativeInt = Annotated[int, "[0, inf)"]
PositiveFloat = Annotated[float, "(0, inf)"]
NegativeFloat = Annotated[float, "(-inf, 0)"]
NonNegativeFloat = Annotated[float, "[0, inf)"]
Share = Annotated[float, "[0, 1]"]
PositiveShare = Annotated[float, "(0, 1]"]


@dataclass_transform(frozen_default=True)
def options(section: str = "", kw_only: bool = False) -> Callable[[type[Filled]], type[Filled]]:
    """A frozen dataclass of options that checks its fields by their types; errors name ``section.field``."""
    prefix = f"{section}." if section else ""

    def made(cls: Any) -> Any:
        kinds = cache(partial(get_type_hints, cls, include_extras=True))
        check = getattr(cls, "__post_init__", None)

        def checked_fields(self: Any) -> None:
            for name, kind in kinds().items():
                try:
                    object.__setattr__(self, name, fitted(getattr(self, name), kind))
                except UnfitError as error:
                    raise ConfigError(error.said_of(f"{Option(prefix + name)}")) from None
            if check is not None:
                check(self)

        cls.__post_init__ = checked_fields
        return dataclass(frozen=True, kw_only=kw_only)(cls)

    return made


def checked(call: Call, options: Sequence[type] = ()) -> Call:
    """A function that checks and converts its arguments; ``**options`` are the fields of dataclasses."""

    @cache
    def kinds() -> _Kinds:
        return _Kinds(call, options)

    @wraps(call)
    def door(*args: Any, **named: Any) -> Any:
        args, named = kinds().arguments(args, named)
        return call(*args, **named)

    @wraps(call)
    async def later(*args: Any, **named: Any) -> Any:
        args, named = kinds().arguments(args, named)
        return await call(*args, **named)

    return cast(Call, later if iscoroutinefunction(call) else door)


def checked_options(*options: type) -> Callable[[Call], Call]:
    """:func:`checked` for a function whose ``**options`` are the fields of dataclasses."""
    return partial(checked, options=options)


class _Kinds:
    def __init__(self, call: Callable[..., Any], options: Sequence[type]):
        known = getattr(call, "__globals__", {})
        self.call = call
        self.positional: list[tuple[str, Any]] = []
        self.by_name: dict[str, Any] = {}
        self.required: set[str] = set()
        self.more: tuple[str, Any] | None = None
        self.anything = False
        for name, parameter in signature(call).parameters.items():
            kind = parameter.annotation if parameter.annotation is not Parameter.empty else Any
            kind = eval(kind, known) if isinstance(kind, str) else kind
            if parameter.kind is Parameter.VAR_POSITIONAL:
                self.more = (name, kind)
            elif parameter.kind is Parameter.VAR_KEYWORD:
                self.anything = not options
            else:
                self.by_name[name] = kind
                if parameter.default is Parameter.empty:
                    self.required.add(name)
                if parameter.kind is not Parameter.KEYWORD_ONLY:
                    self.positional.append((name, kind))
        self.of_object = self.by_name.pop("self", None) is not None
        for cls in options:
            for name, kind in get_type_hints(cls, include_extras=True).items():
                self.by_name.setdefault(name, kind)

    def name(self, args: Sequence[Any]) -> str:
        """What the user calls: a class, a method of the class of the object, or a function."""
        of_object = self.of_object and args
        name = f"{type(args[0]).__name__}.{self.call.__name__}" if of_object else self.call.__qualname__
        return name.removesuffix(".__init__")

    def arguments(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not (self.anything or named.keys() <= self.by_name.keys()):
            refuse_unknown_arguments(self.name(args), named, self.by_name)
        given = {name for name, _ in self.positional[: len(args)]} | named.keys()
        if lacking := [name for name in self.by_name if name in self.required - given]:
            raise ConfigError(f"{self.name(args)} needs {' and '.join(lacking)}.")
        values, values_by_name = list(args), dict(named)
        name = ""
        try:
            for number, value in enumerate(args):
                if number < len(self.positional):
                    name, kind = self.positional[number]
                elif self.more is not None:
                    name, kind = f"{self.more[0]}[{number - len(self.positional)}]", self.more[1]
                else:
                    break  # too many, as Python will say
                values[number] = fitted(value, kind)
            for name, value in named.items():
                values_by_name[name] = fitted(value, self.by_name.get(name, Any))
        except UnfitError as error:
            raise ConfigError(f"{self.name(args)}: {error.said_of(name)}") from None
        return tuple(values), values_by_name


def fitted_argument(call: str, name: str, kind: Any, value: Any) -> Any:
    try:
        return fitted(value, kind)
    except UnfitError as error:
        raise ConfigError(f"{call}: {error.said_of(name)}") from None


def refuse_unknown_arguments(call: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 2)
            near = near or [one for one in known if one in name.split("_")]  # top_k: k
            meant = f"; did you mean {' or '.join(near)}?" if near else "."
            listed = ", ".join([*near, *(other for other in known if other not in near)])
            raise ConfigError(f"{call} has no argument {name!r}{meant} It takes {listed}.")


def options_of(cls: type[Filled], values: Mapping[str, Any], call: str, section: str = "") -> Filled:
    """``section``: of the options of a command; empty: they are arguments."""
    known = fields(cls)  # type: ignore[arg-type]
    refuse_unknown_arguments(call, values, [field.name for field in known])
    names = {one.name: f"{Option(f'{section}.{one.name}')}" if section else one.name for one in known}
    required = [one.name for one in known if one.default is one.default_factory is MISSING]
    if lacking := [names[name] for name in required if name not in values]:
        raise ConfigError(f"{call} needs {' and '.join(lacking)}.")
    kinds = get_type_hints(cls, include_extras=True)
    return cls(**{n: fitted_argument(call, names[n], kinds[n], value) for n, value in values.items()})


def fitted(value: Any, kind: Any) -> Any:
    """A value as the type of an annotation has it."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return value
    if origin is Annotated:
        return inner[1](value) if callable(inner[1]) else _bounded(fitted(value, inner[0]), inner[1])
    if origin in (Union, UnionType):
        return _of_any(value, inner)
    if origin is Literal:
        text = str.__str__(value) if isinstance(value, str) else value
        if not isinstance(text, str) or text not in inner:
            near = get_close_matches(text, map(str, inner), 1) if isinstance(text, str) else []
            remedy = f"did you mean {near[0]!r}?" if near else ""
            raise UnfitError(f"one of {', '.join(map(str, inner))}", value, remedy=remedy)
        return text
    kind = origin or kind
    if kind in _SCALARS:
        return _scalar(value, kind)
    if kind in (None, NoneType):
        kind = NoneType
    elif kind is Callable or getattr(kind, "_is_protocol", False):
        if not callable(value) and kind is Callable:
            raise UnfitError("a function", value)
        return value
    elif issubclass(kind, Mapping):
        if not isinstance(value, Mapping):
            raise UnfitError("a dict", value)
        name_kind, entry_kind = inner or (Any, Any)
        entries = {}
        for name, entry in value.items():
            try:
                entries[fitted(name, name_kind)] = fitted(entry, entry_kind)
            except UnfitError as error:
                raise error.within(f"[{short_repr(name)}]") from None
        return entries
    elif issubclass(kind, Iterable) and kind.__module__ in ("builtins", "collections.abc"):
        return _listed(value, kind, inner)
    if not isinstance(value, kind):
        raise UnfitError(_called(kind), value)
    if kind is type and inner and not issubclass(value, inner[0]):
        raise UnfitError(f"a class that derives from {inner[0].__name__}", value)
    return value


def _scalar(value: Any, kind: Any) -> Any:
    if kind is Path and not isinstance(value, str | Path) and isinstance(value, os.PathLike):
        path = os.fspath(value)
        value = Path(path) if isinstance(path, str) else value
    of_numpy = type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")
    is_bool = isinstance(value, bool) or of_numpy  # the command line does without NumPy
    whole = isinstance(value, Integral) and not is_bool
    fits = {
        bool: is_bool,
        int: whole,
        float: whole or (isinstance(value, Real) and not isinstance(value, Rational) and not is_bool),
        str: isinstance(value, str),
        Path: isinstance(value, str | Path),
    }
    if not fits[kind]:
        digits = kind is int and isinstance(value, str) and value.isascii() and value.isdigit()
        raise UnfitError(_SINGULAR[kind], value, remedy=f"write {value}" if digits else "")
    if kind is bool:
        return bool(value)
    if whole:  # also where a float is expected, as files of options have it
        if abs(int(value)) > _LARGEST:
            raise UnfitError("a whole number of 64 bits", value)
        return int(value)
    if kind is float:
        if not math.isfinite(value):
            raise UnfitError("a finite number", value)
        return float(value)
    text = str.__str__(value) if isinstance(value, str) else str(value)  # of an enumeration not the name
    if not is_whole_text(text):
        raise UnfitError("a text without half characters (lone surrogates)", text)
    if kind is str:
        return text
    if not text or "\0" in text:
        raise UnfitError("a name of at least one character, without NUL", text)
    longest = max(map(len, map(os.fsencode, PurePath(text).parts)), default=0)
    if longest > _LONGEST_NAME or len(text.encode()) > _LONGEST_PATH:
        raise UnfitError(f"a path whose names have at most {_LONGEST_NAME} bytes each", value)
    return text if isinstance(value, str) else value


def _bounded(number: float, interval: str) -> float:
    low, high = map(float, interval[1:-1].split(","))
    above = number > low or (interval[0] == "[" and number == low)
    if above and (number < high or (interval[-1] == "]" and number == high)):
        return number
    least = f"{'at least' if interval[0] == '[' else 'above'} {low:,.12g}" if low > -math.inf else ""
    most = f"{'at most' if interval[-1] == ']' else 'below'} {high:,.12g}" if high < math.inf else ""
    words = " and ".join(filter(None, (least, most)))
    if least and most and interval[0] + interval[-1] == "[]":
        words = f"between {low:,.12g} and {high:,.12g}"
    raise UnfitError(words, number)


def _of_any(value: Any, kinds: Sequence[Any]) -> Any:
    """A text that may be a path is checked as one."""
    if value is None and NoneType in kinds:
        return None
    if isinstance(value, Iterator) and Any not in kinds and not hasattr(value, "readline"):
        value = list(value)  # each type is tried, and it can be read once
    errors = []
    for kind in kinds:
        if kind is str and Path in kinds:
            continue
        try:
            return fitted(value, kind)
        except UnfitError as error:
            errors.append(error)
    named = [error for error in errors if error.expected]
    deepest = next((error for error in named if error.part or error.value is not value), None)
    if deepest is not None:
        raise deepest
    expected = " or ".join(dict.fromkeys(error.expected for error in named))
    raise UnfitError(expected, value, remedy=next((error.remedy for error in named if error.remedy), ""))


def _listed(value: Any, kind: Any, inner: Sequence[Any]) -> Any:
    """The values of a list, a set, an array, a column or an iterator, each of one type.

    Where the order counts, a set is refused, and the names of a dict are a list.
    """
    element = inner[0] if inner else Any
    texts, ordered = str in _alternatives(element), issubclass(kind, Sequence)
    if ordered and isinstance(value, set | frozenset):
        raise UnfitError(_called(kind, inner), value, remedy="a set has no order")
    values = value if isinstance(value, list | tuple | Set) else list_from(value)
    values = list(values) if ordered and isinstance(values, Set) else values
    if values is None:
        alone = isinstance(value, str) and texts
        raise UnfitError(_called(kind, inner), value, remedy=f"write [{short_repr(value)}]" if alone else "")
    types, base = set(map(type, values)), get_origin(element) or element
    alike = isinstance(base, type) and base not in _SCALARS and all(issubclass(t, base) for t in types)
    if (
        element is Any
        or (alike and get_args(element)[-1:] in ((), (Any,)))
        or (texts and types <= {str} and is_whole_text("".join(values)))
        or (element is int and types <= {int})
    ):
        fits = values  # passages, ids or numbers: the usual case takes no time
    else:
        fits = []
        for number, entry in enumerate(values):
            try:
                fits.append(fitted(entry, element))
            except UnfitError as error:
                raise error.within(f"[{number}]") from None
        if isinstance(values, Set):
            fits = frozenset(fits)
    return tuple(fits) if kind is tuple else fits


def _called(kind: Any, inner: Sequence[Any] = ()) -> str:
    if kind is NoneType:
        return ""
    if kind in _SINGULAR:
        return _SINGULAR[kind]
    if kind.__module__ in ("builtins", "collections.abc"):
        kinds = [k for k in _alternatives(inner[0]) if k not in (Any, NoneType)] if inner else []
        return f"a list of {' or '.join(map(_many, kinds))}" if kinds else "a list"
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def _many(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return _many(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    base = get_origin(kind) or kind
    if base in _PLURAL:
        return _PLURAL[base]
    noun = _called(base, get_args(kind))
    return f"lists{noun.removeprefix('a list')}" if noun.startswith("a list") else f"{base.__name__} objects"


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def list_from(value: Any) -> list[Any] | None:
    """The values of a list, an array, or a column of a table; None if the value is something else.

    A data frame (which yields the names of its columns) and an open file (lines) are something else.
    """
    if is_table(value) or hasattr(value, "readline"):
        return None
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(value, method):
            values = getattr(value, method)()
            return values if isinstance(values, list) else None
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | Set):
        return list(value)
    return None


def is_table(value: Any) -> bool:
    """Whether a value has columns. Its class is asked: a lazy frame of polars would run its query."""
    return hasattr(type(value), "columns") or hasattr(type(value), "column_names")


_SHOWN = 60  # characters of a value in an error text


def short_repr(value: Any) -> str:
    """Cut if it is long."""
    try:
        text = ascii(value) if isinstance(value, str) and not is_whole_text(value) else repr(value)
    except Exception:  # whatever the class of the value does
        text = object.__repr__(value)
    text = " ".join(text.split()) if "\n" in text else text  # a data frame
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def is_whole_text(text: str) -> bool:
    """Whether a text is whole characters: half of a surrogate pair is in no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
