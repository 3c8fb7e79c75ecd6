"""Run the tables and figures of the four papers.

    python -m benchmarks.papers                              # lists them
    python -m benchmarks.papers grls-2 --plan                # prints the commands and the GPU hours
    python -m benchmarks.papers grls-2 --small --only set=entailmentbank
    python -m benchmarks.papers ralm                         # all tables of a paper

A config (``benchmarks/papers/NAME.yaml``) has ``title`` and ``source``; ``uses``, the configs whose commands
come first; ``each``, a variable -> its values; ``words``, what stands for ``{word}`` in a command (if it is a
mapping: by the value of a variable); ``commands``, run for every combination of the variables; ``table``;
``quoted``, published rows; ``work``, for the estimate; ``note``. ``small`` is what differs for small models
on the samples at hand. In commands DATA, RAW and RUNS are the folders of the options.

The estimate counts floating-point operations: 6 a parameter and token in training, 2 in reading, at 2e14 a
second, about half of what an H100 does in bfloat16. In writing, the weights (two bytes a parameter) are read
once for each token of 16 texts, at 2e12 bytes a second. CPU work is left out.

A finished command is kept (RUNS/done.json) while its files are there and what it reads is not made anew, so a
killed run goes on.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.common import going_on, print_table
from grls.cli import main as grls
from grls.errors import ConfigError, GrlsError
from grls.io.files import atomic_file, read_json, write_json
from grls.report.systems import read_quoted

FOLDER = Path(__file__).parent
SETS: Mapping[str, str] = yaml.safe_load((FOLDER / "sets.yaml").read_text(encoding="utf-8"))
"""Data set -> the arguments of ``grls prepare``."""
NAMES = sorted(file.stem for file in FOLDER.glob("*.yaml") if file.stem != "sets")

FLOPS, BYTES, BATCH = 2e14, 2e12, 16
OPERATIONS = {"train": 6, "read": 2}
NONE = "–"


class Work(NamedTuple):
    """A part of the estimate: ``times`` passes of a model of so many ``parameters`` over so many ``tokens``.

    ``kind`` is train, read or write.
    """

    what: str
    kind: str
    parameters: float
    tokens: float
    times: float = 1

    def hours(self) -> float:
        """GPU hours."""
        total = float(self.parameters) * float(self.tokens) * float(self.times)
        written = 2 * total / BATCH / BYTES
        return (written if self.kind == "write" else OPERATIONS[self.kind] * total / FLOPS) / 3600


@dataclass(frozen=True)
class Study:
    """A config; see the module."""

    name: str
    title: str
    source: str
    uses: Sequence[Study] = ()
    each: Mapping[str, Sequence[str]] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)
    commands: Sequence[str] = ()
    table: Mapping[str, Any] = field(default_factory=dict)
    quoted: Mapping[str, Sequence[float | None]] | str = field(default_factory=dict)
    work: Sequence[Mapping[str, Any]] = ()
    note: str = ""

    @classmethod
    def read(
        cls,
        name: str,
        small: bool = False,
        only: Mapping[str, Sequence[str]] | None = None,
        words: Mapping[str, str] | None = None,
    ) -> Study:
        """Read a config.

        Args:
            name: Its name.
            small: Take what it has for small models.
            only: Variable -> the values to keep.
            words: Words that replace those of the config.

        Raises:
            ConfigError: A field is unknown or missing.
        """
        content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
        differs = content.pop("small", {})
        other = differs if small else {}
        merged = {key: {**content.get(key, {}), **other[key]} for key in ("each", "words") if key in other}
        content |= {**other, **merged}
        content["words"] = {**content.get("words", {}), **(words or {})}
        for used in content.get("uses", ()):
            _known(f"benchmarks/papers/{name}.yaml: uses", used, NAMES)
        content["uses"] = [cls.read(used, small, only, words) for used in content.get("uses", ())]
        for variable, kept in (only or {}).items():
            if variable in content.get("each", {}):
                content["each"][variable] = [v for v in content["each"][variable] if str(v) in kept]
        try:
            return cls(name, **content)
        except TypeError as error:
            raise ConfigError(f"benchmarks/papers/{name}.yaml: {error}.") from None

    def used(self) -> list[Study]:
        """The configs that it uses, and itself."""
        return [study for used in self.uses for study in used.used()] + [self]

    def values(self) -> Iterator[dict[str, str]]:
        """Every combination of the variables."""
        for chosen in itertools.product(*self.each.values()):
            yield dict(zip(self.each, map(str, chosen), strict=True))

    def filled(self, template: str, values: Mapping[str, str]) -> str:
        """A template with its words and variables; a word may name variables and other words."""
        named = dict(values)
        for name, word in self.words.items():
            if isinstance(word, Mapping):
                word = next((word[v] for v in values.values() if v in word), word.get("else", ""))
            named[name] = str(word)
        try:
            while "{" in template:
                template = template.format_map(named)
        except KeyError as error:
            raise ConfigError(f"{self.name}: {template!r} names {error}, no word and no variable.") from None
        return template

    def lines(self) -> list[str]:
        """The commands, behind those of the configs that it uses and those that prepare its data sets.

        Values that are not kept leave out what reads their results; an experiment has the other systems.
        """
        filled = (self.filled(line, values).split() for line in self.commands for values in self.values())
        own = [" ".join(words) for words in filled if words]
        sets = dict.fromkeys(name for line in own for name in re.findall(r"DATA/([\w-]+)", line))
        prepared = [f"prepare {SETS[name]} --out DATA/{name}" for name in sets if name in SETS]
        before = [line for used in self.uses for line in used.lines()]
        return _closed(dict.fromkeys(before + prepared + own))

    def parts(self) -> list[Work]:
        """The parts of the estimate, of the configs that it uses as well."""
        return [part for used in self.uses for part in used.parts()] + [Work(**part) for part in self.work]


def _closed(lines: Iterable[str]) -> list[str]:
    """The commands whose inputs in RUNS are written by commands before them."""
    kept: list[str] = []
    written = "(?!)"
    for line in lines:
        words = line.split()
        output = next((file for option, file in itertools.pairwise(words) if option == "--output"), "")
        missing = [
            word
            for word in words
            if (file := re.search(r"RUNS/\S+", word)) and word != output and not re.search(written, file[0])
        ]
        if words[0] == "experiment":
            words = [word for word in words if word not in missing]
            missing = [] if any("RUNS/" in word and word != output for word in words) else missing
        if not missing:
            kept.append(" ".join(words))
            if output.startswith("RUNS/"):
                written += f"|^{re.escape(output)}(?![\\w-])"
    return kept


class Runner:
    """Runs the commands of configs; DATA, RAW and RUNS stand for ``folders``."""

    def __init__(self, folders: Mapping[str, str]):
        self.folders = folders
        self.file = Path(folders["RUNS"]) / "done.json"
        self.done: list[str] = read_json(self.file) if self.file.is_file() else []

    def placed(self, text: str) -> str:
        """A text with the folders of the options."""
        return re.sub(r"\b(DATA|RAW|RUNS)\b", lambda match: self.folders[match[0]], text)

    def words(self, line: str) -> list[str]:
        """The words of a command; a folder may have spaces."""
        return [self.placed(word) for word in shlex.split(line)]

    def shown(self, line: str) -> str:
        """A command as a shell takes it."""
        return shlex.join(["python" if line.startswith("-m ") else "grls", *self.words(line)])

    def run(self, line: str) -> None:
        """Run a command, unless it is done."""
        words = self.words(line)
        shown = self.shown(line)
        output = next((Path(v) for n, v in itertools.pairwise(words) if n in ("--output", "--out")), None)
        there = output is not None and (output.exists() or any(output.parent.glob(f"{output.name}.*")))
        is_data = words[0] == "prepare" and "--out" in words  # written as a whole; other files grow
        if there and (is_data or shown in self.done):
            print(f"# done: {shown}", flush=True)
            return
        print(shown, flush=True)
        if output is not None:  # what reads it has to run again, too
            reads = re.compile(rf"{re.escape(str(output))}(?![\w-])")
            self.done = [command for command in self.done if not any(map(reads.search, shlex.split(command)))]
        if words[0] == "-m":
            code = subprocess.run([sys.executable, *words], check=False).returncode
        else:
            trained = output is not None and words[0] == "train" and "biencoder" not in words
            more = going_on(output / "model" / "config.json") if trained and output is not None else ()
            code = grls([*words, *more])
        if code:
            raise GrlsError(f"the command above failed; finished commands are kept ({self.file}).")
        self.done.append(shown)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.file, self.done)

    def table(self, study: Study) -> str:
        """The table of a config in the paper's form, the published rows below ours."""
        form = study.table
        columns = {head: [*map(str, words)] for head, words in form["columns"].items()}
        rows = []
        for label, row in form["rows"].items():
            own = row if isinstance(row, Mapping) else {"row": str(row)}
            cells = [
                self._cell(study, own.get("cell", form["cell"]), own, words, form)
                for words in columns.values()
            ]
            rows.append([label, *cells])
        for label, numbers in _published(study, columns).items():
            shown = (NONE if n is None else f"{n:.{form.get('digits', 1)}f}" for n in numbers)
            rows.append([f"{label} (quoted)", *shown])
        printed = StringIO()
        with redirect_stdout(printed):
            print_table(f"{study.title} ({study.source})", [form.get("head", "system"), *columns], rows)
        return printed.getvalue() + (f"\n{' '.join(study.note.split())}\n" if study.note else "")

    def _cell(
        self,
        study: Study,
        template: str,
        row: Mapping[str, str],
        words: Sequence[str],
        form: Mapping[str, Any],
    ) -> str:
        """A figure: ``FILE KEY/KEY/…`` of a JSON file, times the scale of the table."""
        named = {**row, **{f"c{n}": word for n, word in enumerate(words)}}
        file, path = map(self.placed, study.filled(template, named).split(" "))
        if not Path(file).is_file():
            return NONE
        value = read_json(file)
        for key in path.split("/"):
            found = value[int(key)] if isinstance(value, list) else (value or {}).get(key)
            value = found
        scale, digits = float(row.get("scale", form.get("scale", 100))), int(form.get("digits", 1))
        return NONE if value is None else f"{scale * value:.{digits}f}"


def _published(study: Study, columns: Mapping[str, Sequence[str]]) -> dict[str, list[float | None]]:
    """Label of a published row -> its figure in each column."""
    if not isinstance(study.quoted, str):
        return {label: list(numbers) for label, numbers in study.quoted.items()}
    rows: dict[str, list[float | None]] = {}
    for n, words in enumerate(columns.values()):
        named = {f"c{number}": word for number, word in enumerate(words)}
        file, measure = study.filled(study.quoted, named).split(" ")
        for row in read_quoted(FOLDER.parents[1] / file).rows:
            if study.table["from"] not in row.source:
                continue
            label = row.name.removesuffix(" (quoted)")
            rows.setdefault(label, [None] * len(columns))[n] = round(100 * row.means[measure], 2)
    return rows


def chosen(words: Sequence[str]) -> list[str]:
    """The configs of names, or of papers (``ralm`` is all of ``ralm-…``)."""
    found = []
    for word in words:
        of_paper = [name for name in NAMES if name.startswith(f"{word}-")]
        if word not in NAMES and not of_paper:
            _known("tables", word, [*{name.partition("-")[0]: 1 for name in NAMES}, *NAMES])
        found += [word] if word in NAMES else of_paper
    return list(dict.fromkeys(found))


def _known(what: str, name: str, known: Collection[str]) -> None:
    """Refuse (ConfigError) a name that is not known, with all there are, the nearest first."""
    if name not in known:
        listed = dict.fromkeys([*get_close_matches(name, known, 3), *known])
        raise ConfigError(f"{what}: expected one of {', '.join(listed)}, got {name!r}.")


def _refuse_unknown(
    studies: Sequence[Study], only: Mapping[str, Sequence[str]], words: Collection[str]
) -> None:
    """Refuse (ConfigError) variables, values and words that no config has."""
    every = [study for asked in studies for study in asked.used()]
    values: dict[str, list[str]] = {}
    for study in every:
        for variable, of_study in study.each.items():
            values.setdefault(variable, []).extend(map(str, of_study))
    for variable, kept in only.items():
        _known("--only", variable, values)
        for value in kept:
            _known(f"--only {variable}", value, dict.fromkeys(values[variable]))
    for word in words:
        _known("--word", word, dict.fromkeys(name for study in every for name in study.words))


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    if not all("=" in word for word in words):
        raise ConfigError(f"{option} expects NAME=VALUE, got {shlex.join(words)}.")
    return dict(word.partition("=")[::2] for word in words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run configs, or print what they would run; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.papers", allow_abbrev=False, description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="tables, or a paper: grls, riches, ralm, dsp"
    )
    parser.add_argument("--small", action="store_true", help="small models, on the samples at hand")
    parser.add_argument("--plan", action="store_true", help="print the commands and the estimate only")
    parser.add_argument("--only", action="append", default=[], metavar="VARIABLE=A,B", help="values to keep")
    parser.add_argument("--word", action="append", default=[], metavar="NAME=TEXT", help="replace a word")
    parser.add_argument("--raw", default="data/raw", help="raw files, a folder for each data set")
    parser.add_argument("--data", default="data", help="prepared data sets")
    parser.add_argument("--runs", help="results (runs/papers, with --small runs/papers-small)")
    asked = parser.parse_args(arguments)
    try:
        if not asked.names:
            for name in NAMES:
                study = Study.read(name)
                print(f"{name:<14} {study.title} ({study.source})")
            return 0
        only = {name: value.split(",") for name, value in _pairs(asked.only, "--only").items()}
        words = _pairs(asked.word, "--word")
        names = chosen(asked.names)
        _refuse_unknown([Study.read(name, asked.small) for name in names], only, words)
        studies = [Study.read(name, asked.small, only, words) for name in names]
        runs = asked.runs or ("runs/papers-small" if asked.small else "runs/papers")
        runner = Runner({"DATA": asked.data, "RAW": asked.raw, "RUNS": runs})
        for study in studies:
            print(f"\n# {study.name}: {study.title} ({study.source})", flush=True)
            if asked.plan:
                for line in study.lines():
                    print(runner.shown(line))
                parts = study.parts()
                rows = [[p.what, p.kind, f"{float(p.parameters):.2g}", f"{float(p.tokens):.2g}",
                         f"{float(p.times):g}", f"{p.hours():.1f}"] for p in parts]  # fmt: skip
                total = sum(part.hours() for part in parts)
                heads = ["work", "kind", "parameters", "tokens", "times", "GPU hours"]
                print_table(f"Estimate at the paper's size: {total:.0f} GPU hours", heads, rows)
                continue
            for line in study.lines():
                runner.run(line)
            if study.table:
                text = runner.table(study)
                print(text)
                with atomic_file(Path(runs) / f"{study.name}.md") as file:
                    file.write(text)
    except GrlsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
