"""A folder of texts: passages of most, the rest whole."""

from pathlib import Path

import pytest
from failing import raises

from data_prep.texts import prepare
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError


def write(folder: Path, count: int = 30) -> Path:
    for n in range(count):
        file = folder / f"part{n % 3}" / f"t{n}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(f"line {line} of text {n}" for line in range(12)) + "\n")
    (folder / "short.txt").write_text("too short\n")
    return folder


def test_a_text_is_read_or_retrieved_from_and_never_both(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw")
    prepare(raw, tmp_path / "out", words=20, shares=(0.2, 0.2, 0.2), least_words=10)
    corpus = Corpus.read(tmp_path / "out")
    read = {
        part: {file.stem for file in (tmp_path / "out" / "texts" / part).glob("*.txt")}
        for part in ("rerank", "dev", "test")
    }
    titles = {passage.title.replace("/", "__").removesuffix(".txt") for passage in corpus}
    parts = [titles, *read.values()]
    assert all(parts)
    assert sum(map(len, parts)) == len(set().union(*parts)) == 30
    for passage in corpus:
        assert 0 < len(passage.text.split()) <= 20
    joined = "\n".join(p.text for p in corpus if p.title == corpus[0].title)
    assert joined + "\n" == (raw / corpus[0].title).read_text()
    test = next((tmp_path / "out" / "texts" / "test").glob("*.txt"))
    assert test.read_text() == (raw / test.name.replace("__", "/")).read_text()


def test_a_file_always_goes_the_same_way(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw")
    prepare(raw, tmp_path / "a", shares=(0.2, 0.2, 0.2), least_words=10)
    (raw / "part0" / "t0.txt").unlink()
    prepare(raw, tmp_path / "b", shares=(0.2, 0.2, 0.2), least_words=10)
    left = {f.name for f in (tmp_path / "a" / "texts" / "test").iterdir()} - {"part0__t0.txt"}
    assert {f.name for f in (tmp_path / "b" / "texts" / "test").iterdir()} == left


def test_a_text_under_two_names_is_taken_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Aliases and links: one could be read and the other retrieved."""
    raw = write(tmp_path / "raw")
    for file in sorted(raw.rglob("*.txt")):
        file.with_name(f"again-{file.name}").write_text(file.read_text())
    prepare(raw, tmp_path / "out", shares=(0.2, 0.2, 0.2), least_words=10)
    assert "20 more" in capsys.readouterr().out
    corpus = "\n".join(passage.text for passage in Corpus.read(tmp_path / "out"))
    for file in (tmp_path / "out" / "texts").rglob("*.txt"):
        assert file.read_text().splitlines()[0] not in corpus.splitlines()


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw")
    for file in sorted(raw.glob("part0/*.txt")):
        (raw / f"part0__{file.name}").write_text(f"another {file.read_text()}")
    raises(DataError, "rename one", prepare, raw, tmp_path / "out", shares=(0.8, 0.0, 0.0), least_words=10)


def test_bad_input_is_refused(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", 3)
    raises(ConfigError, "three shares", prepare, raw, tmp_path / "out", shares=(0.5, 0.5, 0.1))
    with pytest.raises(DataError, match="no text for"):
        prepare(raw, tmp_path / "out", shares=(0.001, 0.001, 0.001), least_words=10)
    assert not (tmp_path / "out").exists()


def test_all_files_are_passages_and_what_is_left_out_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, out = write(tmp_path / "raw"), tmp_path / "of mine"
    prepare(raw, out)
    assert len({passage.title for passage in Corpus.read(out)}) == 31
    assert sorted(file.name for file in out.iterdir()) == ["corpus.jsonl"]
    said = capsys.readouterr().out
    assert f"`grls index bm25 --corpus '{out}' --output NEW`" in said
    assert "not read" not in said
    (raw / "notes.md").write_text("See [a text](part0/t0.txt) and [none](no.txt).")
    (raw / "bad.txt").write_bytes(b"\xff\xfa" * 500)
    prepare(raw, out, least_words=4)
    said = capsys.readouterr().out
    assert "not read:\n  bad.txt    no UTF-8 text" in said
    assert "  short.txt  fewer than 4 words\n" in said
    assert "links between passages: 1; 1 to files that are not there, such as notes.md: no.txt" in said
    prepare(raw, out, pattern="**/*.txt")
    assert "not matched by '**/*.txt' (--pattern): 1 file\n" in capsys.readouterr().out


def test_an_empty_corpus_has_a_remedy(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw")
    raises(DataError, "21 more.*fewer than 200 words", prepare, raw, tmp_path / "out", least_words=200)
    raises(
        DataError, r"no file matches '\*.md': give another --pattern", prepare, raw, tmp_path / "out", "*.md"
    )
    (tmp_path / "none").mkdir()
    raises(DataError, "there is no file here", prepare, tmp_path / "none", tmp_path / "out")


def test_no_passage_has_more_words_than_asked_for(tmp_path: Path) -> None:
    for n in range(12):
        (tmp_path / f"{n}.txt").write_text(f"text {n} " + " ".join(f"w{k}" for k in range(1001)))
    prepare(tmp_path, tmp_path / "out", words=100, shares=(0.2, 0.2, 0.2))
    corpus = list(Corpus.read(tmp_path / "out"))
    lengths = [len(passage.text.split()) for passage in corpus]
    assert max(lengths) <= 100
    assert min(lengths) > 80  # cut evenly
    name = corpus[0].title
    joined = " ".join(passage.text for passage in corpus if passage.title == name)
    assert joined == (tmp_path / name).read_text()
