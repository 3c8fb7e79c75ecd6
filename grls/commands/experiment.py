"""``grls experiment``: systems on the same queries, compared in one table."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from grls.commands.retrieve import RetrieveOptions
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.errors import ConfigError, DataError
from grls.io.arguments import Count
from grls.io.files import atomic_file, near_name, refuse_unwritable, without_ending, write_json
from grls.io.progress import counted, visible
from grls.models.option_names import Device
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.options import stored_options
from grls.retrieve.registry import Opening, member_folders, names_bm25
from grls.retrieve.spec import is_retriever
from grls.runs.portions import read_info

if TYPE_CHECKING:
    from grls.report.blocks import Block, Table
    from grls.report.systems import ExperimentTable

MEASURES = "R@5 R@2 complete@5 nDCG@10"
"""The default measures; the first one says which system is best."""

_LEAST_K = 10  # as `grls retrieve`
_Several = Annotated[int, "[2, inf)"]


def experiment_command(
    systems: list[str],
    *,
    data: str | None = None,
    split: str | None = None,
    limit: Count | None = None,
    measures: str | None = None,
    baseline: str | None = None,
    k: Count | None = None,
    quoted: str | None = None,
    growth: _Several | None = None,
    output: str = "experiment",
    device: Device = "auto",
) -> None:
    """Compare systems on the same queries, in one table.

    The table has each system's measures, their differences to a baseline with p values, hits by hop, seconds
    and language-model tokens a query, and the seconds to index. It is printed, and written as OUTPUT.md,
    OUTPUT.tex (booktabs), OUTPUT.csv, OUTPUT.json and OUTPUT.html: a page that needs nothing else, with
    quality by time, every other metric and similarity. Retriever folders retrieve first, into OUTPUT-runs/;
    runs that are there already are used again. Runs of several data sets give a table each.

    Args:
        systems: Retriever folders, `bm25`, or runs (NAME.jsonl, NAME.trec; NAME.info.json beside it says what
            made it). `NAME=PATH` gives a system its name in the table, `NAME=PATH,PATH,PATH` is one system
            with several seeds: the table has their mean and standard deviation.
        data: Data set folder; of runs null takes the one in their manifests.
        split: Split of the qrels; null: from the manifests of the runs, else test.
        limit: Number of first queries that retriever folders answer; null: all.
        measures: Measures by their ir_measures names, as 'nDCG@10 RR', R@k, or complete@k (all gold passages
            found); the first one says which system is best. Null: R@5, R@2, complete@5 and nDCG@10.
        baseline: System that the others are compared with; null takes the best.
        k: Passages a query that retriever folders retrieve; null: as many as the measures read, at least 10.
        quoted: File of published figures, which stand below ours with their source, as
            benchmarks/quoted/*.json have them.
        growth: Also let the corpus of each retriever folder, and of its members, arrive in so many parts
            without training: what queries of old and new passages find by the first measure, and the seconds
            of each update (OUTPUT-growth.csv).
        output: Path of what is written, without ending.
    """
    named = _named(systems)
    from grls.evaluation.measures import cutoff, measure_names
    from grls.evaluation.metrics import KS
    from grls.report.blocks import Section, Subsection
    from grls.report.page import build_page, write_report
    from grls.report.runs import load_groups, refuse_untold
    from grls.report.systems import read_quoted, systems_table

    names = measure_names(MEASURES if measures is None else measures)
    if not names:
        raise ConfigError(f"--measures names no measure: give some, as in --measures '{MEASURES}'.")
    published = None if quoted is None else read_quoted(quoted)
    run = next((path for _, paths in named for path in paths if Path(path).is_file()), None)
    if run is not None and growth is not None:
        raise ConfigError(f"--growth searches, and {run} is a run: give its retriever folder.")
    if all(name for name, _ in named):  # before anything is retrieved
        _refuse_no_system(baseline, [name for name, _ in named])
    output = without_ending(output, (".md", ".tex", ".csv", ".json", ".html"))
    refuse_unwritable(output)
    depth = max(_LEAST_K, *map(cutoff, names)) if k is None else k
    files: list[tuple[str, str]] = []  # the file of a run, and the name of its system; empty: it is not named
    labels: dict[str, str] = {}
    for name, label, path in _each(named):
        file = path
        if not Path(path).is_file():
            if data is None:
                raise ConfigError(f"{path} retrieves for the queries of a data set: give --data FOLDER.")
            stored = stored_options(path)
            options = RetrieveOptions(
                retriever=path, data=data, split=split or "test", limit=limit, k=depth, device=device,
                search=SearchOptions(**stored.get("search", {})),
                hops=HopOptions(**stored.get("hops", {})),
            )  # fmt: skip
            file = _retrieved(options, label, f"{output}-runs")
        files.append((file, name))
        labels |= {file: label} if label else {}
    ks = sorted({*KS, *(cutoff(name) for name in names if name.startswith("R@"))})
    standard = [name for name in names if not name.startswith(("R@", "complete@"))]
    groups = load_groups([file for file, _ in files], data, split, labels, ks, standard)
    refuse_untold(groups, [] if measures is None else names)
    label_of = {run.run.path: run.label for group in groups for run in group.runs}
    by_label = {label_of[file]: name or label_of[file] for file, name in files}
    _refuse_no_system(baseline, [*by_label.values()])
    tables = [systems_table(group, by_label, names, baseline, published) for group in groups]
    print("\n\n".join(visible(table.table().text()) for table in tables))
    grown = None
    if growth is not None:
        grown = _growth_table(named, str(data), split or "test", limit, device, names[0], depth, growth)
        print("\n" + visible(grown.text()))
    print(", ".join(_write(output, tables, grown)))
    reference = next((label for label, system in by_label.items() if system == baseline), None)
    tested = [name for name in names if not name.startswith("Judged")]
    k = cutoff(names[0]) if names[0].startswith("R@") else 5
    page = build_page(groups, k, reference, tested=tested)
    growths = [Section("Growth", (Subsection("A corpus that grows", (grown,)),))] if grown else []
    blocks = tuple(block for table in tables for block in _answer(table))
    print(write_report(page._replace(sections=(*growths, *page.sections), answer=blocks), output))


def _write(output: str, tables: Sequence[ExperimentTable], grown: Table | None) -> list[str]:
    """Write the tables in all forms but the page; returns the files."""
    more = [] if grown is None else [grown]
    texts = {
        f"{output}.md": [table.markdown() for table in (*(one.table() for one in tables), *more)],
        f"{output}.tex": [table.latex() for table in (*(one.table(compact=True) for one in tables), *more)],
        f"{output}.csv": [table.csv() for table in tables],
        **{f"{output}-{table.name}.csv": [table.csv()] for table in more},
    }
    for file, parts in texts.items():
        with atomic_file(file) as stream:
            stream.write("\n\n".join(part.rstrip() for part in parts) + "\n")
    content: dict[str, Any] = {"tables": [{"data": table.data, **table.to_dict()} for table in tables]}
    for table in more:
        content[table.name] = {"heads": table.heads, "rows": [[c.text for c in row] for row in table.rows]}
    write_json(f"{output}.json", content)
    return [*texts, f"{output}.json"]


def _answer(table: ExperimentTable) -> list[Block]:
    """The figures of the best system of a table, and the table."""
    from grls.report.page import answer_blocks

    first = table.measures[0]
    rows = {row.name: row for row in table.rows if first in row.means and not row.source}
    if not rows:
        return [table.table()]
    best = max(rows.values(), key=lambda row: row.means[first])
    points = {name: (row.seconds, row.means[first]) for name, row in rows.items()}
    found = best.differences.get(first)
    against = (table.baseline, found) if table.baseline and found else None
    role = f"finds most of {counted(len(rows), 'system')}"
    asked = f"{counted(table.queries, 'query')} of {table.data}"
    return [*answer_blocks(points, best.name, role, first, asked, against), table.table()]


def _each(named: Sequence[tuple[str, list[str]]]) -> Iterator[tuple[str, str, str]]:
    """The name of a system, and the label and path of each of its runs or folders."""
    for name, paths in named:
        for number, path in enumerate(paths, 1):
            yield name, name if len(paths) == 1 else f"{name} ({number})", path


def _refuse_no_system(baseline: str | None, systems: Sequence[str]) -> None:
    if baseline is not None and baseline not in systems:
        near = get_close_matches(baseline, systems, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(systems)}."
        raise ConfigError(f"--baseline {baseline!r} is none of the systems; {hint}")


def _named(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The systems of a command: name, and paths of runs or folders; a run without ``NAME=`` has no name."""
    systems: list[tuple[str, list[str]]] = []
    given: dict[tuple[Path, ...], str] = {}
    for word in words:
        name, equals, rest = word.partition("=")
        is_named = bool(equals) and not Path(word).exists()
        paths = _paths(rest.split(",") if is_named else [word])
        if not paths:
            raise DataError(
                "no such file or retriever folder; give a run (.jsonl, .trec), a retriever folder, or bm25, "
                f"each with or without NAME= before it{near_name(rest if is_named else word)}",
                word,
            )
        places = tuple(Path(path).resolve() for path in paths)
        if places in given:
            raise ConfigError(f"{given[places]} and {word} are the same system: leave one of them out.")
        given[places] = word
        taken = [other for other, _ in systems]
        if not is_named:
            name = "" if Path(word).is_file() else Path(word).resolve().name
            name = word if name and name in taken else name
        if name and name in taken:
            raise ConfigError(f"two systems are called {name!r}: give each its name, as in NAME=PATH.")
        systems.append((name, paths))
    return systems


def _is_system(path: str) -> bool:
    return Path(path).is_file() or is_retriever(Path(path)) or names_bm25(path)


def _paths(parts: Sequence[str]) -> list[str]:
    """The paths whose parts stand between commas, for a name may hold commas; none if not all exist."""
    for end in range(len(parts), 0, -1):
        rest = _paths(parts[end:])
        if _is_system(path := ",".join(parts[:end])) and (rest or end == len(parts)):
            return [str(Path(path)), *rest]
    return []


def _retrieved(options: RetrieveOptions, name: str, folder: str) -> str:
    """The run of a retriever in ``folder``; one by the same options that is there already is used again."""
    output = str(Path(folder) / re.sub(r"[^\w.()-]+", "-", name))
    run = options.opened()
    info, file = run.info(name), f"{output}.jsonl"
    kept = read_info(file) if Path(file).is_file() else None
    fields = ("corpus", "queries", "split", "limit", "retriever", "options", "name")
    if kept and all(json.dumps(getattr(kept, f)) == json.dumps(getattr(info, f)) for f in fields):
        print(f"{file} is kept")
    else:
        Path(folder).mkdir(parents=True, exist_ok=True)
        print(run.save(output, name))
    return file


def _growth_table(
    named: Sequence[tuple[str, list[str]]],
    data: str,
    split: str,
    limit: int | None,
    device: str,
    measure: str,
    k: int,
    parts: int,
) -> Table:
    from grls.report.growth import grow, growth_table
    from grls.retrieve.bm25 import BM25Retriever

    corpus = Corpus.read(data)
    judged = read_split(data, split, corpus, limit)
    steps = {}
    with TemporaryDirectory(prefix="grls-") as work:
        place = Path(work)
        for _, label, path in _each(named):
            folder = Path(path)
            if names_bm25(path):
                folder = place / path
                BM25Retriever(corpus).save_pretrained(folder)
            folders = {label: folder}
            folders |= {f"{label}: {member.name}": member for member in member_folders(folder)}
            for one, place_of in folders.items():
                (place / "steps").mkdir()
                opening = Opening(device)
                steps[one] = grow(place_of, corpus, *judged, parts, measure, k, place / "steps", opening)
                shutil.rmtree(place / "steps")
    return growth_table(steps, measure)
