"""``grls experiment``: systems beside each other on the queries of a data set, in one table."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from grls.commands.retrieve import RetrieveOptions
from grls.errors import ConfigError, DataError
from grls.retrieve.registry import names_bm25
from grls.retrieve.spec import is_retriever
from grls.runs.portions import read_info

MEASURES = "R@5 R@2 complete@5 nDCG@10"
"""The default measures; the first one says which system is best."""

_LEAST_K = 10  # as `grls retrieve`


def experiment(
    systems: list[str],
    *,
    data: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    measures: str | None = None,
    baseline: str | None = None,
    k: int | None = None,
    quoted: str | None = None,
    output: str = "experiment",
    page: bool = False,
    proofs: int = 2,
    seed: int = 0,
    title: str = "Retrieval runs",
    device: str = "auto",
) -> None:
    """Compare systems on the same queries, in one table.

    The table has each system's measures, their differences to a baseline with p values, hits by hop, seconds
    and language-model tokens a query, and the minutes to index. It is printed, and written as OUTPUT.md,
    OUTPUT.tex (booktabs), OUTPUT.csv and OUTPUT.json. Retriever folders retrieve first, into OUTPUT-runs/;
    what they have retrieved before is kept. Runs of several data sets give a table each.

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
        output: Path of what is written, without ending.
        page: Also write OUTPUT.html, one file that needs nothing else, with curves, chains, proof graphs and
            similarity, and OUTPUT-figures/ (its pictures).
        proofs: Successes and failures of each run on RuleTaker-Open that the page draws.
        seed: Seed of bootstrap and permutations on the page.
        title: Heading of the page.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    from grls.evaluation.measures import cutoff, measure_names
    from grls.evaluation.metrics.averages import KS
    from grls.io.ending import require
    from grls.io.files import atomic_file, refuse_unwritable, write_json
    from grls.io.option_errors import visible
    from grls.report.blocks import refuse_untold, score_runs
    from grls.report.runs import load_groups
    from grls.report.systems import read_quoted, systems_table

    named = _named(systems)
    names = measure_names(MEASURES if measures is None else measures)
    if not names:
        raise ConfigError(f"--measures names no measure: give some, as in --measures '{MEASURES}'.")
    published = None if quoted is None else read_quoted(quoted)
    if page:
        require("report", "a page, for its curves,")
    refuse_unwritable(output)
    depth = max(_LEAST_K, *map(cutoff, names)) if k is None else k
    files: list[tuple[str, str]] = []  # the file of a run, and the name of its system; empty: it is not named
    labels: dict[str, str] = {}
    for name, paths in named:
        for number, path in enumerate(paths, 1):
            label = name if len(paths) == 1 else f"{name} ({number})"
            file = path
            if not Path(path).is_file():
                if data is None:
                    raise ConfigError(f"{path} retrieves for the queries of a data set: give --data FOLDER.")
                options = RetrieveOptions(path, data, split or "test", limit, depth, device=device)
                file = _retrieved(options, label, f"{output}-runs")
            files.append((file, name))
            labels |= {file: label} if label else {}
    ks = sorted({*KS, *(cutoff(name) for name in names if name.startswith("R@"))})
    standard = [name for name in names if not name.startswith(("R@", "complete@"))]
    loaded = load_groups([file for file, _ in files], data, split, labels)
    groups = [score_runs(group, ks, standard) for group in loaded]
    refuse_untold(groups, [] if measures is None else names)
    label_of = {run.entry.run.path: run.label for group in groups for run in group.runs}
    by_label = {label_of[file]: name or label_of[file] for file, name in files}
    if baseline not in (None, *by_label.values()):
        near = get_close_matches(str(baseline), by_label.values(), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(by_label.values())}."
        raise ConfigError(f"--baseline {baseline!r} is none of the systems; {hint}")
    tables = [systems_table(group, by_label, names, baseline, published) for group in groups]
    printed = [table.table() for table in tables]
    print("\n\n".join(visible(table.text()) for table in printed))
    for ending, texts in {
        "md": [table.markdown() for table in printed],
        "tex": [table.latex() for table in printed],
        "csv": [table.csv() for table in tables],
    }.items():
        with atomic_file(f"{output}.{ending}") as stream:
            stream.write("\n\n".join(texts).rstrip() + "\n")
    write_json(f"{output}.json", {"tables": [table.to_dict() for table in tables]})
    print(", ".join(f"{output}.{ending}" for ending in ("md", "tex", "csv", "json")))
    if page:
        from grls.report.blocks import Section, Subsection
        from grls.report.page import build_page, write_report

        reference = next((label for label, system in by_label.items() if system == baseline), None)
        tested = [name for name in names if not name.startswith("Judged")]
        k = cutoff(names[0]) if names[0].startswith("R@") else 5
        built = build_page(groups, ks, k, reference, proofs, seed, title, tested)
        parts = [Subsection(t.data, (shown,)) for t, shown in zip(tables, printed, strict=True)]
        built = built._replace(sections=(Section("Systems", tuple(parts)), *built.sections))
        print(", ".join(map(str, write_report(built, output))))


def _named(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The systems of a command: name, and paths of runs or folders; a run without ``NAME=`` has no name."""
    systems: list[tuple[str, list[str]]] = []
    for word in words:
        name, equals, rest = word.partition("=")
        paths = rest.split(",") if equals and not Path(word).exists() else [word]
        for path in paths:
            if not (Path(path).is_file() or is_retriever(Path(path)) or names_bm25(path)):
                raise DataError(
                    "no such file or retriever folder; give a run (.jsonl, .trec), the folder of a retriever, "
                    "or bm25, each with or without NAME= before it.",
                    path,
                )
        if paths == [word]:
            name = "" if Path(word).is_file() else Path(word).resolve().name
        systems.append((name, paths))
    counts = Counter(name for name, _ in systems if name)
    alike = [(paths[0] if counts[name] > 1 and len(paths) == 1 else name, paths) for name, paths in systems]
    repeated = [name for name, count in Counter(name for name, _ in alike if name).items() if count > 1]
    if repeated:
        raise ConfigError(f"two systems are called {repeated[0]!r}: give each a name, as in NAME=PATH.")
    return alike


def _retrieved(options: RetrieveOptions, name: str, folder: str) -> str:
    """The run of a retriever in ``folder``; one that is there already, by the same options, is kept."""
    output = f"{folder}/{re.sub(r'[^\w.()-]+', '-', name)}"
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
