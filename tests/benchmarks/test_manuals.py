import re
import shutil
from pathlib import Path

import pytest

from benchmarks import manuals
from grls.data.corpus import Corpus
from grls.data.dataset import read_qrels, read_queries

ASKED = read_queries(manuals.QUESTIONS)
DEBIAN = [query.id for query in ASKED if "(" in query.evidence[0].partition(" > ")[0]]


def found(folder: Path) -> list[str]:
    """The ids of the questions of a new data set."""
    manuals.main(folder)
    queries = read_queries(folder)
    ids = {passage.id for passage in Corpus.read(folder)}
    assert all(ids.issuperset(query.evidence) for query in queries)
    qrels = read_qrels(folder / "qrels" / "test.tsv")
    assert qrels == {query.id: dict.fromkeys(query.evidence, 1) for query in queries}
    return [query.id for query in queries]


def test_questions_are_of_one_passage_and_of_two_hops() -> None:
    assert len(ASKED) == 60
    assert len({query.text for query in ASKED}) == 60
    hops = [query for query in ASKED if len(query.evidence) == 2 and "any_order" not in query.metadata]
    assert len(hops) == 20


def test_a_python_has_the_passages_and_debian_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    ids = found(tmp_path / "data")
    assert len(ids) >= 40
    assert not {*DEBIAN}.intersection(ids)
    told = re.search(r"left out, .*: (\d+) questions", capsys.readouterr().out)
    assert told is not None
    assert int(told[1]) == 60 - len(ids)


def test_debian_has_the_passages(tmp_path: Path) -> None:
    pages = [*manuals.debian_pages()]
    if len(pages) < len(manuals.PAGES.split()) / 2:
        pytest.skip(f"this machine has {len(pages)} of the manual pages (a minimal Debian leaves them out)")
    assert len({*DEBIAN}.intersection(found(tmp_path / "data"))) >= 14
