"""The options of a command: from the words of a shell, YAML and objects to arguments; and their help.

A command is a function or a class of options, whose parameters are the options. A dataclass among them is a
section: ``--hops.steps ranked``, ``--hops '{steps: ranked}'`` or ``--hops FILE``. Where a type is abstract,
the option names a class that derives from it, and has the fields of that class:
``--model.generator CausalLM --model.generator.name_or_path M``. Later options override earlier ones.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import partial, reduce
from inspect import Parameter, isabstract, isclass, signature
from pathlib import Path
from pydoc import locate
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from grls.errors import ConfigError, Option, OptionError, worded
from grls.io.arguments import UnfitError, alternatives, fitted
from grls.io.recipes import lay_over, recipe_values, yaml_value

Call = TypeVar("Call", bound=Callable[..., Any])


def takes(*classes: type) -> Callable[[Call], Call]:
    """A decorator of a command: its ``**options`` are the fields of these dataclasses."""

    def mark(call: Call) -> Call:
        call.takes = classes  # type: ignore[attr-defined]
        return call

    return mark


class OptionSpec(NamedTuple):
    """An option; ``MISSING`` as the default: it must be given. The docstring of ``owner`` explains it."""

    kind: Any
    default: Any
    owner: Any


class Word(str):
    """A word of a shell, whose type is that of its option."""


def parameters_of(target: Any) -> dict[str, OptionSpec]:
    """The parameters of a function, with those that it :func:`takes`, or the fields of a class of options."""
    kinds = get_type_hints(target, include_extras=True)
    found: dict[str, OptionSpec] = {}
    if is_dataclass(target):
        for field in fields(target):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            found[field.name] = OptionSpec(kinds[field.name], default, target)
        return found
    for name, one in signature(target).parameters.items():
        if one.kind is not Parameter.VAR_KEYWORD:
            default = MISSING if one.default is Parameter.empty else one.default
            found[name] = OptionSpec(kinds[name], default, target)
    for cls in getattr(target, "takes", ()):
        found |= {name: spec for name, spec in parameters_of(cls).items() if name not in found}
    return found


def _section(kind: Any) -> Any:
    """The dataclass whose fields are the options of a section."""
    return next((one for one in alternatives(kind) if is_dataclass(one)), None)


def _base(kind: Any) -> Any:
    """The abstract class of which an option names one that derives from it."""
    classes = (one for one in alternatives(kind) if isclass(one) and isabstract(one))
    return next((one for one in classes if one.__module__ != "collections.abc"), None)


def _list(kind: Any) -> Any:
    """The type of a list, with that of its elements, where nothing else is taken but null."""
    first, *others = [one for one in alternatives(kind) if one is not NoneType]
    return first if not others and (get_origin(first) or first) in (list, tuple, Sequence) else None


class CommandLine:
    """The options of a command.

    Args:
        prog: The command as it is typed, for errors.
        target: A function, whose parameters before ``*`` are positional, or a class of options.
        more: Further options.
    """

    def __init__(self, prog: str, target: Any, more: Mapping[str, OptionSpec] = {}):
        self.prog = prog
        self.parameters = parameters_of(target) | dict(more)
        parameters = {} if isclass(target) else signature(target).parameters
        named = any(one.kind is Parameter.KEYWORD_ONLY for one in parameters.values())
        places = (n for n, one in parameters.items() if one.kind is Parameter.POSITIONAL_OR_KEYWORD)
        self.positionals = list(places) if named else []
        self.leaves: dict[str, OptionSpec] = {}
        self.sections: dict[str, OptionSpec] = {}
        for name, spec in self.parameters.items():
            self._add(name, spec)

    def _add(self, name: str, spec: OptionSpec) -> None:
        if (cls := _section(spec.kind)) is None:
            self.leaves[name] = spec
            return
        self.sections[name] = spec
        for inner, one in parameters_of(cls).items():
            default = getattr(spec.default, inner) if isinstance(spec.default, cls) else one.default
            self._add(f"{name}.{inner}", one._replace(default=default))

    @property
    def options(self) -> list[str]:
        """The names of options that take a value, without ``config`` and ``help``."""
        return [name for name in self.leaves if name not in self.positionals]

    def given(self, words: Sequence[str]) -> dict[str, Any]:
        """The options of a command line as nested objects, to be read by :meth:`arguments`."""
        try:
            return self._given(deque(words))
        except OptionError as error:
            sections = [name for name in self.sections if f"--{name}." in worded(error.text)]
            folded = sections and len(self.leaves) > _MOST
            asked = Option("help", max(sections, key=len)) if folded else Option("help")
            raise OptionError(f"{error.text}\n`{self.prog} {asked}` lists the options.") from error.__cause__

    def _given(self, words: deque[str]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        places: list[str] = []
        while words:
            word = words.popleft()
            if not word.startswith("--"):
                if re.fullmatch(r"-[A-Za-z]\S*", word):
                    raise OptionError(self._no_option(word.lstrip("-"), typed=word))
                places.append(word)
                continue
            name, equals, text = word.removeprefix("--").partition("=")
            kind = self.leaves[name].kind if name in self.leaves else Any
            texts = [text] if equals else []
            while not equals and words and not words[0].startswith("--"):
                if texts and (_list(kind) is None or texts[0].startswith("[")):
                    break  # a list in brackets ends with them
                texts.append(words.popleft())
            if name == "config" and texts:
                lay_over(values, self.checked(recipe_values(texts), f"{texts[0]}: "))
                continue
            value: Any = Word(texts[0]) if texts else None
            if name in self.sections and texts:
                value = self._content(name, texts[0])
            elif _list(kind) is not None and texts and texts[0] != "null" and not texts[0].startswith("["):
                value = list(map(Word, texts))
            content = self.nested(name, value)
            if not texts:
                truth = f": {Option(name, True)}, or false." if bool in alternatives(kind) else "."
                raise OptionError(f"{Option(name)} needs a value{truth}")
            lay_over(values, content)
        for name in self.positionals:
            if places and _list(self.leaves[name].kind) is not None:
                values[name], places = list(map(Word, places)), []
            elif places:
                values[name] = Word(places.pop(0))
        if places:
            named = f"takes {' and '.join(self.positionals)}, and options" if self.positionals else ""
            raise OptionError(
                f"the argument {places[0]!r} has no place: `{self.prog}` {named or 'takes only options'}. "
                f"Write `{self.usage()}`."
            )
        if missing := [name for name in self._needed if not _holds(values, name.split("."))]:
            wanted = (f"the argument {n}" if n in self.positionals else f"{Option(n)}" for n in missing)
            raise OptionError(f"{' and '.join(wanted)} must be given.")
        return values

    def nested(self, name: str, value: Any) -> dict[str, Any]:
        """An option by its dotted name, as an object of objects."""
        known = name in self.leaves or name in self.sections
        keys = name.split(".")
        for at in range(1, len(keys) + 1):
            spec = self.leaves.get(".".join(keys[:at]))
            if spec is not None and _base(spec.kind) is not None:
                known, inner = True, keys[at:]
                if not inner and isinstance(value, str):
                    keys.append("class_path")
                elif inner and inner[0] not in ("class_path", "init_args"):
                    keys.insert(at, "init_args")
                break
            known |= spec is not None and any(get_origin(one) is dict for one in alternatives(spec.kind))
        if not known:
            raise OptionError(self._no_option(name))
        content: dict[str, Any] = reduce(lambda inner, key: {key: inner}, reversed(keys), value)
        return content

    def _content(self, name: str, text: str) -> Any:
        """The options of a section: YAML, or the file of it; null: none."""
        content = yaml_value(text)
        if content is None and NoneType in alternatives(self.sections[name].kind):
            return None
        if not isinstance(content, Mapping) and not Path(text).is_file():
            meant = " or ".join(f"{Option(one)}" for one in self._within(f"{name}.")[:_NEAR])
            raise OptionError(f"{Option(name)}: {text} cannot be read; give {meant}, or a file of YAML.")
        where = "" if isinstance(content, Mapping) else f"{text}: "
        content = content if isinstance(content, Mapping) else recipe_values([text])
        return self.checked(content, where, f"{name}.")

    def checked(self, content: Mapping[str, Any], where: str = "", before: str = "") -> dict[str, Any]:
        """Objects of YAML or JSON, whose names are options; ``where`` begins an error."""
        checked: dict[str, Any] = {}
        for key, value in content.items():
            name = f"{before}{key}"
            if name in self.sections and isinstance(value, Mapping):
                value = self.checked(value, where, f"{name}.")
            elif name in self.sections and value is not None:
                raise OptionError(f"{where}{name} holds options: write them below it, got {value!r}.")
            elif name not in self.sections and name not in self.leaves:
                raise OptionError(f"{where}{self._no_option(name, str)}")
            elif name in self.leaves and _base(self.leaves[name].kind) is not None and isinstance(value, str):
                value = {"class_path": value}
            checked[str(key)] = value
        return checked

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments of the command, from nested objects."""
        return {
            name: _built(spec.kind, values[name], name, spec.default) if name in values else spec.default
            for name, spec in self.parameters.items()
        }

    @property
    def _needed(self) -> list[str]:
        """The options that must be given, but in sections that may be left out."""
        free = [f"{name}." for name, spec in self.sections.items() if spec.default is not MISSING]
        needed = (name for name, spec in self.leaves.items() if spec.default is MISSING)
        return [name for name in needed if not name.startswith(tuple(free))]

    def usage(self, written: Callable[[str, str], object] = Option) -> str:
        """The command with what it needs."""
        forms = {(True, True): "[{} …]", (True, False): "{} …", (False, True): "[{}]", (False, False): "{}"}
        places = []
        for name in self.positionals:
            spec = self.leaves[name]
            form = forms[_list(spec.kind) is not None, spec.default is not MISSING]
            places.append(form.format(name.upper()))
        needed = [name for name in self._needed if name not in self.positionals]
        values = (f"{written(name, name.rpartition('.')[2].upper())}" for name in needed)
        return " ".join([self.prog, *places, *values])

    def _no_option(self, wrong: str, written: Callable[[str], object] = Option, typed: str = "") -> str:
        names = [*self.sections, *self.options, "config"]
        last = wrong.rpartition(".")[2]
        ends = [(name, name.rpartition(".")[2]) for name in names]
        near = [name for name in names if wrong and name.startswith(wrong)][:_NEAR]
        near = near or [name for name in names if name == _OTHER_NAMES.get(last)]
        near = near or get_close_matches(wrong, [name for name, end in ends if end == last], 1, 0.0)
        near = near or get_close_matches(wrong, names, 1, 0.75)
        near = near or [name for name, end in ends if end in last.split("_")][:1]  # top_k: k
        meant = f"; did you mean {' or '.join(f'{written(name)}' for name in near)}?" if near else "."
        return f"there is no option {typed or written(wrong)}{meant}"

    def help(self, texts: Mapping[str, str], asked: Sequence[str]) -> str:
        """The options with their texts; of many those of the sections that are asked for, ``all`` or none.

        ``texts``: those of options that no docstring explains.
        """
        if self.sections and (unknown := [name for name in asked if name not in {*self.sections, "all"}]):
            known = ", ".join([*self.sections, "all"])
            raise ConfigError(f"there is no section {unknown[0]!r} of options: {known}.")
        whole = "all" in asked or len(self.leaves) <= _MOST
        parts = []
        for title, names in (("positional arguments", self.positionals), ("options", self._within(""))):
            rows = "".join(self._row(name, texts) for name in names)
            parts += [f"{title}:\n{rows}"] if rows else []
        for section, spec in self.sections.items():
            heading = _described(spec.owner).get(section.rpartition(".")[2]) or _first_line(
                _section(spec.kind)
            )
            heading = heading.rstrip(".")
            names = self._within(f"{section}.")
            if whole or section in asked:
                parts.append(f"{heading}:\n" + "".join(self._row(name, texts) for name in names))
            else:
                shown = ", ".join(name.removeprefix(f"{section}.") for name in names)
                folded = paragraphs(f"{heading}: {shown}", indent=_MARGIN)
                parts.append(f"--{section}.… (`{self.prog} --help {section}`):\n{folded}\n")
        general = "".join(_two_columns(f"--{name}", texts[name]) for name in ("help", "config"))
        return "\n".join([*parts, f"general options:\n{general}"])

    def _within(self, section: str) -> list[str]:
        return [n for n in self.options if n.startswith(section) and "." not in n.removeprefix(section)]

    def _row(self, name: str, texts: Mapping[str, str]) -> str:
        spec, last = self.leaves[name], name.rpartition(".")[2]
        text = _described(spec.owner).get(last) or texts.get(name) or texts.get(last, "")
        if name in self.positionals:
            return _two_columns(name, text)
        if spec.default is not MISSING and spec.default is not None:
            shown = str(spec.default).lower() if isinstance(spec.default, bool) else spec.default
            text = f"{text} (default: {shown})"
        rows = _two_columns(f"--{name} {_values(spec.kind) or last.upper()}", text)
        for cls in [] if (base := _base(spec.kind)) is None else _derived(base):
            fields_of = _described(cls)
            rows += f"\n{_MARGIN}of {cls.__name__}:\n"
            rows += "".join(
                _two_columns(f"{_MARGIN}--{name}.{one}", fields_of.get(one, "")) for one in parameters_of(cls)
            )
        return rows


_OTHER_NAMES = {
    "filter": "where",
    "filters": "where",
    "topk": "k",
    "n": "k",
    "gpu": "device",
    "cuda": "device",
}
"""Names of options in other programs, and ours."""
_NEAR = 3
"""The most options that are named for a beginning of their names."""
_MOST = 23
"""Options that are explained at once."""


def _built(kind: Any, value: Any, name: str, default: Any = MISSING) -> Any:
    """A value as the type of an option has it; objects become the dataclasses whose fields they hold."""
    cls, base = _section(kind), _base(kind)
    if isinstance(value, Mapping) and base is not None:
        cls, value = _chosen(base, value.get("class_path"), name), value.get("init_args", {})
        known = [field.name for field in fields(cls)]
        if unknown := [key for key in value if key not in known]:
            near = get_close_matches(unknown[0], known, 1)
            hint = f"; did you mean {Option(f'{name}.{near[0]}')}? It" if near else "; it"
            wrong = Option(f"{name}.{unknown[0]}")
            raise ConfigError(f"{wrong} is no option of {cls.__name__}{hint} has {', '.join(known)}.")
    if isinstance(value, Mapping) and cls is not None:
        inner = {}
        for key, spec in parameters_of(cls).items():
            if key in value:
                inner[key] = _built(spec.kind, value[key], f"{name}.{key}", spec.default)
            elif spec.default is MISSING and not isinstance(default, cls):
                raise ConfigError(f"{Option(f'{name}.{key}')} must be given.")
        return replace(default, **inner) if isinstance(default, cls) else cls(**inner)
    try:
        return fitted(_typed(value, kind), kind)
    except UnfitError as error:
        raise ConfigError(error.said_of(f"{Option(name)}")) from None


def _chosen(base: Any, path: Any, name: str) -> Any:
    """The class that derives from a base, by its name or its path."""
    known = {cls.__name__: cls for cls in _derived(base)}
    cls = known.get(path) or locate(path) if isinstance(path, str) else None
    if not isclass(cls) or not issubclass(cls, base):
        raise ConfigError(
            f"{Option(name)} must be one of {', '.join(known)}, or `module.Class`, got {path!r}."
        )
    return cls


def _derived(base: Any) -> list[Any]:
    return [cls for one in base.__subclasses__() for cls in (one, *_derived(one))]


def _typed(value: Any, kind: Any) -> Any:
    """A value whose words are read by their type: as YAML, but where a text is expected."""
    kinds = alternatives(kind)
    if isinstance(value, Mapping):
        return {key: _typed(inner, Any) for key, inner in value.items()}
    if isinstance(value, list):
        element = (get_args(_list(kind)) or (Any,))[0]
        return [_typed(inner, element) for inner in value]
    if not isinstance(value, Word):
        return value
    try:
        read = yaml_value(value)
    except ValueError:
        return str(value)
    if Path in kinds and str not in kinds and value != "null":
        return Path(value)
    texts = [one for one in kinds if one is str or get_origin(one) is Literal]
    others = tuple(get_origin(one) or one for one in kinds if one is not Any and one not in texts)
    return str(value) if texts and (not value or not isinstance(read, others)) else read


def _holds(values: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(values, Mapping) or key not in values:
            return False
        values = values[key]
    return True


def as_record(options: Any) -> Any:
    """Options as YAML and JSON hold them; those of a class that was chosen with its path."""
    if isinstance(options, Mapping):
        return {name: as_record(value) for name, value in options.items()}
    if isinstance(options, list | tuple):
        return [as_record(value) for value in options]
    if is_dataclass(options) and not isinstance(options, type):
        kind, record = type(options), as_record(vars(options))
        if any(map(isabstract, kind.__mro__)):
            return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": record}
        return record
    return options if isinstance(options, str | int | float | None) else str(options)


def _described(target: Any) -> dict[str, str]:
    """The texts of parameters in a docstring; of a class also in those of its bases."""
    import docstring_parser  # the help alone reads docstrings

    docs = [one.__doc__ or "" for one in (target.__mro__[::-1] if isclass(target) else (target,))]
    params = (param for doc in docs for param in docstring_parser.parse(doc).params)
    return {param.arg_name: " ".join((param.description or "").split()) for param in params}


def _first_line(target: Any) -> str:
    return (target.__doc__ or "").partition("\n")[0]


def _values(kind: Any) -> str:
    """The values of an option, if they are few: ``{true,false}``."""
    names: list[str] = []
    for one in alternatives(kind):
        if get_origin(one) is Literal:
            names += map(str, get_args(one))
        elif one is bool:
            names += ["true", "false"]
        elif one is NoneType and names:
            names.append("null")
        elif one is not NoneType:
            return ""
    return f"{{{','.join(names)}}}"


_WIDEST_NAME = 16
_MARGIN, _EDGE = "  ", 24


def name_lines(texts: Mapping[str, str]) -> str:
    """Names with their texts, aligned and wrapped for the terminal."""
    edge = max([_WIDEST_NAME, *(len(name) + 1 for name in texts)]) + len(_MARGIN) + 1
    return "".join(_two_columns(name, text, edge) for name, text in texts.items())


def _two_columns(name: str, text: str, edge: int = _EDGE) -> str:
    rows = textwrap.wrap(text, max(_columns() - edge, 20), break_on_hyphens=False) or [""]
    first = f"{_MARGIN}{name}".ljust(edge)
    lines = [first + rows.pop(0)] if len(first) == edge else [first]
    return "".join(f"{line.rstrip()}\n" for line in (*lines, *(" " * edge + row for row in rows)))


def _columns() -> int:
    return shutil.get_terminal_size().columns - 2


def paragraphs(text: str, indent: str = "") -> str:
    """A text with each paragraph filled; an indented paragraph is a list, and stays."""
    fill = partial(textwrap.fill, width=_columns(), initial_indent=indent, subsequent_indent=indent)
    parts: Iterable[str] = (part.strip("\n") for part in re.split(r"\n\s*\n", text))
    return "\n\n".join(part if part.startswith(_MARGIN) else fill(part) for part in parts)
