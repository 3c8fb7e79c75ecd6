"""Raw files in the formats of the public data sets, with sentences of our own."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest
from small_data import contents as contents

from data_prep import common
from grls.cli import VERBS, Command, Verb, main
from grls.data.corpus import Corpus
from grls.data.dataset import read_qrels, read_split

REAL = Path(__file__).parents[2].parent / "shared" / "data"


def real(name: str) -> Path:
    """The folder of a real data set, or a skip with the reason."""
    if not (REAL / name).is_dir():
        pytest.skip(f"real data is absent: no folder {REAL / name} beside the checkout")
    return REAL / name


def write_lines(file: Path, records: list[object]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records), "utf-8")
    return file


def load(folder: Path):
    """Passage id -> text, and split -> queries, all references checked, no query text in two splits."""
    corpus = Corpus.read(folder)
    names = [n for n in ("train", "dev", "test") if (folder / "qrels" / f"{n}.tsv").is_file()]
    filled = {name: bool(read_qrels(folder / "qrels" / f"{name}.tsv")) for name in names}
    splits = {name: read_split(folder, name, corpus) if filled[name] else ([], {}) for name in names}
    texts = [{common.query_key(q.text) for q in queries} for queries, _ in splits.values()]
    assert sum(map(len, texts)) == len(set().union(*texts)), "a query text stands in two splits"
    for queries, qrels in splits.values():
        assert all(set(q.evidence) == set(qrels[q.id]) for q in queries if q.evidence)
    return {p.id: p.text for p in corpus}, {name: queries for name, (queries, _) in splits.items()}


def prepared(prepare, out: Path, **options: object):
    """What :func:`load` reads of a prepared data set; prepared again, it is the same to the byte."""
    again = out.with_name("again")
    for folder in (out, again):
        prepare(out=folder, **options)
    assert contents(out) == contents(again)
    return load(out)


def run(prepare, *args: object) -> int:
    """The exit code of ``grls prepare`` with a function as the data set."""
    name = prepare.__module__.rpartition(".")[2]
    made = patch.dict(VERBS["prepare"].names, {name: Verb("", "made")})
    with made, patch.object(Command, "function", staticmethod(prepare)):
        return main(["prepare", name, *map(str, args)])


def fails(prepare, capsys, *args: object) -> str:
    """The one line an erroneous command prints; it must leave with code 1 and make no folder."""
    out = Path(str(args[args.index("--out") + 1]))
    before = out.exists()
    assert run(prepare, *args) == 1
    assert out.exists() == before
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error
