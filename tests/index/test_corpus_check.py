"""The report on a corpus that has every peculiarity."""

import json
from pathlib import Path

import pytest
from fixture_types import Capsys
from hypothesis import given
from hypothesis import strategies as st
from small_data import small_tokenizer, write_small

from grls.cli import main
from grls.data.codec import CLOSING_MARKERS, Codec, Limits, add_special_tokens
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.index.corpus_check import Finding, check_corpus, format_check

PASSAGES = [
    Passage("a", "the otter is calm ."),
    Passage("b", "the otter is calm ."),  # a twice
    Passage("c", "the otter"),  # a prefix of a
    Passage("d", "the"),  # a prefix of c
    Passage("e", ""),  # a prefix of all
    Passage("f", "  "),  # for words the same as e
    Passage("g", "the lynx is quick . the lynx is quick ."),  # long
    Passage("h", "is\tcalm"),  # the tab does not survive
    Passage("i", "the otter is calm .", "lynx"),  # a title makes it another passage
    Passage("j", "the otter is calm .", "lynx"),
]


def findings(codec: Codec | None, limit: int, examples: int = 9) -> dict[str, Finding]:
    report = check_corpus(Corpus.from_passages(PASSAGES), codec, limit, examples)
    assert report.passages == 10
    return {finding.kind.split(" (")[0]: finding for finding in report.findings}


def test_counts_and_examples_in_words() -> None:
    found = findings(None, 8)
    counts = {kind: (f.passages, f.examples) for kind, f in found.items()}
    prefixes, pairs = counts.pop("prefix of another passage")
    assert counts == {
        "duplicate of an earlier passage": (3, ["b = a", "f = e", "j = i"]),
        "empty text": (2, ["e", "f"]), "longer than 8 words": (1, ["g"]),
        "equal to another in the first 8 words": (0, []),
    }  # fmt: skip
    assert prefixes == 4  # e and f share a sequence
    assert set(pairs) > {"d < c", "c < a"}
    assert {pair[0] for pair in pairs} == set("cdef")


def test_words_of_scripts_without_white_space_are_their_characters() -> None:
    texts = ["青海湖在中国。", "青海湖", "the owl"]
    report = check_corpus(Corpus.from_passages([Passage(str(n), text) for n, text in enumerate(texts)]))
    assert (report.longest, report.mean_tokens) == (
        6,
        pytest.approx(11 / 3),
    )  # the full stop belongs to the last
    assert ["1 < 0"] in [finding.examples for finding in report.findings]


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    return Codec(small_tokenizer(write_small(tmp_path_factory.mktemp("check") / "data")), Limits(passage=6))


def test_counts_with_a_tokenizer(codec: Codec) -> None:
    found = findings(codec, 6)
    assert found["duplicate of an earlier passage"].examples[0] == "b = a"
    assert "j = i" in found["duplicate of an earlier passage"].examples
    assert found["empty text"][1:] == (2, ["e", "f"])
    assert "g" in found["longer than 6 tokens"].examples
    pairs = found["prefix of another passage"].examples
    assert [pair.split(" < ")[0] for pair in sorted(pairs)] == ["c", "d", "e"]
    assert "c < a" in pairs
    assert "h" in found["changed by the tokenizer's round trip"].examples
    assert not {"a", "c", "i"} & set(found["changed by the tokenizer's round trip"].examples)


@pytest.mark.parametrize("markers", [(), CLOSING_MARKERS])
def test_lengths_are_those_of_what_retrieval_writes(markers: tuple[str, ...], tmp_path: Path) -> None:
    tokenizer = small_tokenizer(write_small(tmp_path / "data"))
    add_special_tokens(tokenizer, markers)
    codec = Codec(tokenizer)
    title, body = codec.texts(["lynx", "the otter is calm ."])
    report = check_corpus(Corpus.from_passages(PASSAGES[-1:]), codec)
    assert report.longest == len(title) + len(body) + 1 + bool(markers)
    assert report.longest == len(codec.passages(PASSAGES[-1:])[0]) - 1


words = st.lists(st.sampled_from("xyz"), max_size=5).map(" ".join)


@given(texts=st.lists(words, max_size=12), limit=st.integers(1, 4))
def test_relations_equal_the_naive_ones(texts: list[str], limit: int) -> None:
    corpus = Corpus.from_passages([Passage(str(n), text) for n, text in enumerate(texts)])
    report = check_corpus(corpus, None, limit, 99)
    found = {f.kind: {int(e.split()[0]): int(e.split()[2]) for e in f.examples} for f in report.findings[3:]}
    rows = [tuple(text.split()) for text in texts]
    every = range(len(rows))
    cut = {
        n: [m for m in every if rows[m] != rows[n] and rows[m][:limit] == rows[n][:limit]]
        for n in every
        if len(rows[n]) > limit
    }
    longer = {
        n: [m for m in every if rows[m] != rows[n] and rows[m][: len(rows[n])] == rows[n]] for n in every
    }
    for kind, naive in (
        (f"equal to another in the first {limit} words", cut),
        ("prefix of another passage", longer),
    ):
        assert found[kind].keys() == {n for n, others in naive.items() if others}
        assert all(other in naive[n] for n, other in found[kind].items())
    assert report.findings[0].passages == len(rows) - len(set(rows))
    assert [f.passages for f in report.findings[3:]] == [len(pairs) for pairs in found.values()]


def test_a_passage_longer_than_any_row_is_reported() -> None:
    corpus = Corpus.from_passages([Passage("a", "x " * 70_000), Passage("b", "y")])
    report = check_corpus(corpus, None)
    assert (report.longest, report.findings[2].examples) == (70_000, ["a"])


def test_examples_are_as_many_as_asked_for_and_printed() -> None:
    report = check_corpus(Corpus.from_passages(PASSAGES, "own.jsonl"), None, 8, examples=1)
    assert all(len(finding.examples) <= 1 for finding in report.findings)
    text = format_check(report)
    assert text.splitlines()[0].startswith("own.jsonl: 10 passages, mean ")
    assert "        3  duplicate of an earlier passage  (b = a)" in text


def test_every_fault_of_queries_and_qrels_has_its_line(tmp_path: Path, capsys: Capsys) -> None:
    data = write_small(tmp_path / "data")
    assert main(["check", str(data)]) == 0
    queries, test = data / "queries.jsonl", data / "qrels" / "test.tsv"
    first = queries.read_text().splitlines()[0]
    more = [first, '{"_id": "odd", "text": "x", "evidence": ["gone"]}', '{"_id": "no text"}']
    queries.write_text("\n".join([queries.read_text().strip(), *more]) + "\n")
    test.write_text(test.read_text() + "nobody\tr0\t1\nodd\tnothing\t1\n")
    (data / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n")
    capsys.readouterr()
    assert main(["check", str(data), f"--output={tmp_path / 'found.json'}"]) == 1
    printed = capsys.readouterr()
    line = len(test.read_text().splitlines())
    for fault in (
        f"{queries}, line 17: the query id 'q-otter-calm' is in line 1 already.",
        f"{queries}, line 18: the evidence passage id 'gone' is not in {data / 'corpus.jsonl'}.",
        f"{queries}, line 19: expected 'text' to be a non-empty string, the key is missing.",
        f"{data / 'qrels' / 'dev.tsv'}: the split judges no query.",
        f"{test}, line {line - 1}: the query id 'nobody' is in no line of queries.jsonl.",
        f"{test}, line {line}: the judged passage id 'nothing' is not in {data / 'corpus.jsonl'}.",
    ):
        assert fault in printed.out.splitlines()
    assert f"{queries}: 19 queries checked, 2 faults, 1 unknown id" in printed.out
    assert f"{test}: {line - 1} judgements checked, 0 faults, 2 unknown ids" in printed.out
    assert "3 faults in queries and qrels" in printed.err
    assert len(json.loads((tmp_path / "found.json").read_text())["faults"]) == 6
    queries.write_text("\n".join(queries.read_text().splitlines()[:16]) + "\n")
    (data / "qrels" / "dev.tsv").unlink()
    assert main(["check", str(data)]) == 0, "unknown ids alone are no fault"
    assert f"{test}, line {line}: the judged passage id 'nothing'" in capsys.readouterr().out
    queries.write_text(f"{first}\n{{\n")
    test.write_text("q-otter-calm\tr0\tone\n")
    assert main(["check", str(data)]) == 1
    printed = capsys.readouterr()
    for place in (f"{queries}, line 2", f"{test}, line 1"):
        assert f"\n{place}: expected" in printed.out, "a line that ends the reading has its number, and once"
