"""The report on a corpus, and on queries and qrels."""

import json
from pathlib import Path

import pytest
from fixture_types import Capsys
from small_data import small_tokenizer, write_small

from grls.cli import main
from grls.data.codec import CLOSING_MARKERS, Codec, add_special_tokens
from grls.data.corpus import Corpus
from grls.data.dataset import check_corpus, format_check
from grls.data.types import Passage

PASSAGES = [
    Passage("a", "the otter is calm ."),
    Passage("b", "the otter is calm ."),  # a twice
    Passage("c", ""),
    Passage("d", "  "),
    Passage("e", "the lynx is quick . the lynx is quick ."),  # long
    Passage("f", "the otter is calm .", "lynx"),  # a title makes it another passage
    Passage("g", "the otter is calm .", "lynx"),
]


@pytest.mark.parametrize("unit", ["words", "tokens"])
def test_counts_and_examples(unit: str, tmp_path: Path) -> None:
    codec = Codec(small_tokenizer(write_small(tmp_path / "data"))) if unit == "tokens" else None
    report = check_corpus(Corpus.from_passages(PASSAGES), codec, 8, 9)
    assert [(finding.kind.split(" (")[0], *finding[1:]) for finding in report.findings] == [
        ("duplicate of an earlier passage", 2, ["b = a", "g = f"]),
        ("empty text", 2, ["c", "d"]), (f"longer than 8 {unit}", 1, ["e"]),
    ]  # fmt: skip
    assert (report.passages, report.tokens) == (7, unit)


def test_words_of_scripts_without_white_space_are_their_characters() -> None:
    texts = ["青海湖在中国。", "青海湖", "the owl"]
    report = check_corpus(Corpus.from_passages([Passage(str(n), text) for n, text in enumerate(texts)]))
    # the full stop belongs to the last character
    assert (report.longest, report.mean_tokens) == (6, pytest.approx(11 / 3))


@pytest.mark.parametrize("markers", [(), CLOSING_MARKERS])
def test_lengths_are_those_of_what_retrieval_writes(markers: tuple[str, ...], tmp_path: Path) -> None:
    tokenizer = small_tokenizer(write_small(tmp_path / "data"))
    add_special_tokens(tokenizer, markers)
    codec = Codec(tokenizer)
    title, body = codec.texts(["lynx", "the otter is calm ."])
    report = check_corpus(Corpus.from_passages(PASSAGES[-1:]), codec)
    assert report.longest == len(title) + len(body) + 1 + bool(markers)
    assert report.longest == len(codec.passages(PASSAGES[-1:])[0]) - 1


def test_a_passage_longer_than_any_row_is_reported() -> None:
    corpus = Corpus.from_passages([Passage("a", "x " * 70_000), Passage("b", "y")])
    report = check_corpus(corpus, None)
    assert (report.longest, report.findings[2].examples) == (70_000, ["a"])


def test_examples_are_as_many_as_asked_for_and_printed() -> None:
    report = check_corpus(Corpus.from_passages(PASSAGES, "own.jsonl"), None, 8, examples=1)
    assert all(len(finding.examples) <= 1 for finding in report.findings)
    text = format_check(report)
    assert text.splitlines()[0].startswith("own.jsonl: 7 passages, mean ")
    assert "        2  duplicate of an earlier passage  (b = a)" in text


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
