"""Neighbours of passages: by a retriever, by rare words, and their file."""

from pathlib import Path

import pytest
from failing import fails, raises
from safetensors.numpy import save_file
from small_data import passages, small_retriever, write_jsonl, write_small

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.neighbours import Neighbours
from grls.data.types import Passage
from grls.errors import ConfigError, DataError, MismatchError
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.neighbours import by_retriever, by_shared_words

TEXTS = {
    "mill": "The mill grinds barley.", "barley": "Barley and rye grow here.", "rye": "Rye bread is dark.",
    "copy": "The mill grinds barley.", "bread": "Bread is baked, bread is sold.", "empty": "",
    "alone": "Granite weathers slowly.",
}  # fmt: skip
IDS = list(TEXTS)
CORPUS = Corpus.from_passages([Passage(name, text) for name, text in TEXTS.items()])


def named(found: Neighbours) -> dict[str, list[str]]:
    return {name: [IDS[n] for n in found.of(place)] for place, name in enumerate(IDS)}


def test_bm25_finds_what_shares_words_but_neither_itself_nor_a_copy() -> None:
    done: list[int] = []
    found = by_retriever(BM25Retriever(CORPUS), CORPUS, 3, "bm25", done.append)
    assert named(found) == {
        "mill": ["barley"], "barley": ["rye", "mill", "copy"], "rye": ["bread", "barley"],
        "copy": ["barley"], "bread": ["rye"], "empty": [], "alone": [],
    }  # fmt: skip
    assert sum(done) == len(CORPUS)
    assert found.numbers.shape == (7, 3)
    assert found.of(1, 1) == [2]


def test_rare_words_link_the_rarer_first_and_common_ones_do_not() -> None:
    """`barley` stands in three passages, `rye` and `bread` in two."""
    assert named(by_shared_words(CORPUS, 3, rare=3)) == {
        "mill": ["barley"], "barley": ["rye", "mill", "copy"], "rye": ["barley", "bread"],
        "copy": ["barley"], "bread": ["rye"], "empty": [], "alone": [],
    }  # fmt: skip
    assert named(by_shared_words(CORPUS, 3, rare=2))["barley"] == ["rye"]
    assert named(by_shared_words(CORPUS, 1, rare=3))["barley"] == ["rye"]
    texts = ["granite quartz", "granite slate", "granite moss", "quartz gneiss", "fern"]
    corpus = Corpus.from_passages([Passage(str(n), text) for n, text in enumerate(texts)])
    assert by_shared_words(corpus, 3).of(0) == [3, 1, 2]


def test_a_corpus_without_shared_words_is_refused() -> None:
    corpus = Corpus.from_passages([Passage("a", "granite"), Passage("b", "quartz")])
    with pytest.raises(DataError, match="no two passages of corpus share a word of at most 20 passages"):
        by_shared_words(corpus, 2)
    for call in (
        lambda: by_shared_words(CORPUS, 0),
        lambda: by_retriever(BM25Retriever(CORPUS), CORPUS, 0, "x"),
    ):
        raises(ConfigError, "k must be at least 1", call)
    raises(ConfigError, "rare must be at least 2", by_shared_words, CORPUS, 1, rare=1)


def test_the_file_knows_its_corpus(tmp_path: Path) -> None:
    file = tmp_path / "near.safetensors"
    found = by_shared_words(CORPUS, 3, rare=3)
    found.write(file, CORPUS)
    again = Neighbours.read(file, CORPUS)
    assert (again.by, again.numbers.tolist()) == (found.by, found.numbers.tolist())
    with pytest.raises(MismatchError, match="neighbours of another corpus"):
        Neighbours.read(file, Corpus.from_passages(passages()))
    with pytest.raises(DataError, match=r"no such file; make it with `grls prepare neighbours`"):
        Neighbours.read(tmp_path / "none", CORPUS)
    file.write_text("text")
    raises(DataError, "expected a file of neighbours", Neighbours.read, file, CORPUS)
    save_file({"other": found.numbers}, file, {"corpus": CORPUS.fingerprint, "by": "x"})
    raises(DataError, "expected a file of neighbours", Neighbours.read, file, CORPUS)


def test_the_command_writes_what_each_judge_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_small(tmp_path / "data")
    corpus = Corpus.read(data)
    small_retriever(data).save_pretrained(tmp_path / "retriever")
    near = tmp_path / "near.safetensors"
    for options, by in ([], "bm25"), (["--rare=5"], "words in at most 5 passages"), (
        [f"--retriever={tmp_path / 'retriever'}", "--device=cpu"], str(tmp_path / "retriever")
    ):  # fmt: skip
        assert main(["prepare", "neighbours", f"--data={data}", f"--output={near}", "--k=2", *options]) == 0
        assert f"10 passages, 2.0 neighbours each by {by}" in capsys.readouterr().out
        found = Neighbours.read(near, corpus)
        assert (found.by, found.numbers.shape) == (by, (10, 2))
        assert all(n not in found.of(n) for n in range(10))
    both = [f"--retriever={tmp_path / 'retriever'}", "--rare=5"]
    assert "either --retriever FOLDER or --rare COUNT" in fails(
        capsys, "prepare", "neighbours", f"--data={data}", f"--output={near}", *both
    )
    write_jsonl(tmp_path / "other" / "corpus.jsonl", [{"_id": "a", "text": "the otter is calm ."}])
    assert "the retriever is over another corpus" in fails(
        capsys, "prepare", "neighbours", f"--data={tmp_path / 'other'}", f"--output={near}", both[0]
    )
