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
    assert "30 files with the text of another one" in capsys.readouterr().out
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
    (raw / "bad.txt").write_bytes(b"\xff\xfe\xff" * 500)
    raises(DataError, r"bad\.txt.*UTF-8", prepare, raw, tmp_path / "out")
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
    assert "left out" not in said
    (raw / "notes.md").write_text("a note")
    (raw / "empty.txt").touch()
    prepare(raw, out, least_words=10)
    said = capsys.readouterr().out
    assert "left out: 2 files with fewer than 10 words (--least_words)\n" in said
    assert "left out: 1 file not matched by '**/*.txt' (--pattern): 1 .md\n" in said


def test_an_empty_corpus_has_a_remedy(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw")
    with pytest.raises(DataError, match="31 of 31 files have fewer than 200 words; lower --least_words"):
        prepare(raw, tmp_path / "out", least_words=200)
    with pytest.raises(
        DataError, match=r"no file matches '\*.md'; there are 31 .txt: give --pattern '\*\*/\*.txt'"
    ):
        prepare(raw, tmp_path / "out", pattern="*.md")
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


def linked(folder: Path, files: dict[str, str], pattern: str = "**/*.md") -> dict[str, list[str]]:
    """The links of each passage of at most six words that has some."""
    for name, text in files.items():
        file = folder / "raw" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    prepare(folder / "raw", folder / "out", pattern, words=6)
    corpus = Corpus.read(folder / "out")
    found = zip((passage.id for passage in corpus), corpus.metadata(), strict=True)
    return {name: each["links"] for name, each in found if "links" in each}


BURROWS = (
    "# Burrows\nWhere animals live.\n## What's a holt?\nThe den of an otter.\n## Setts\nBadgers dig them.\n"
)


def test_links_between_files_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "otter.md": "An otter lives in a [holt](animals/dens.md#whats-a-holt).\nSee [[Fish]], not\n[the web](https://x.org/y.md).",
        "fish.md": "Fish are food of [otters](/otter.md 'a page') and [herons](<big birds.md>).",
        "big birds.md": "Herons eat [[fish#unknown|fish]] and [fish](fish.md) by [dens](animals/dens.md).",
        "animals/dens.md": BURROWS + "So do [foxes](../otter.md?raw=1), [[otter]] and [below](#setts).\n",
    }
    assert linked(tmp_path, files) == {
        "otter.md:0": ["animals/dens.md:1"],
        "otter.md:1": ["fish.md:0"],
        "fish.md:0": ["otter.md:0"],
        "fish.md:1": ["big birds.md:0"],
        "big birds.md:0": ["fish.md:0"],
        "big birds.md:1": ["fish.md:0", "animals/dens.md:0"],
        "animals/dens.md:4": ["otter.md:0", "animals/dens.md:3"],
    }
    assert "links between passages: 9\n" in capsys.readouterr().out


def test_links_of_html_are_kept(tmp_path: Path) -> None:
    files = {
        "a.html": 'x <a class=y href="b.html#two&amp;a">b</a>\n<!-- <a href="b.html">no</a> -->',
        "b.html": "One two three four five six.\n<h2 id='two&amp;a'>Two</h2> [no](a.html)",
    }
    assert linked(tmp_path, files, "*.html") == {"a.html:0": ["b.html:1"]}


def test_what_is_no_link_to_a_passage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "a.md": "[here](a.md) `[x](b.md)`\n```\n[x](b.md) [[b]]\n```\n![x](b.md) ![[b]] [x](../a.md) "
        "[m](mailto:b.md)",
        "b.md": "See [a table](table.csv).\nSee\nhere [gone](gone.md) and [[Nowhere]].",
        "table.csv": "1,2",
    }
    assert linked(tmp_path, files) == {}
    said = capsys.readouterr().out
    assert "links between passages: 0; 2 to files that are not there, such as b.md, line 3: gone.md\n" in said


def test_a_wiki_link_prefers_the_page_beside_it(tmp_path: Path) -> None:
    files = {
        "x/a.md": "[[The_B]]",
        "x/the b.md": "of x",
        "a/the b.md": "of a",
        "c.md": "[[x/The b]] [[Why?]]",
        "why?.md": "So.",
        "d.md": "[[A]]",
    }
    assert linked(tmp_path, files) == {
        "x/a.md:0": ["x/the b.md:0"],
        "c.md:0": ["x/the b.md:0", "why?.md:0"],
        "d.md:0": ["x/a.md:0"],
    }


def test_a_long_line_with_wide_gaps_is_cut_and_keeps_its_links(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("alpha  beta\t" * 40 + "[to b](b.md)  gamma\n")
    (tmp_path / "b.md").write_text("the other\n")
    prepare(tmp_path, tmp_path / "out", pattern="*.md", words=20)
    corpus = Corpus.read(tmp_path / "out")
    linking = [p.text for p, metadata in zip(corpus, corpus.metadata(), strict=True) if metadata]
    assert len(linking) == 1
    assert "[to b](b.md)" in linking[0]
