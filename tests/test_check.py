"""The report on a corpus that has every peculiarity."""

from pathlib import Path

import pytest
from small_data import small_tokenizer, write_small

from grls.check import Finding, check_corpus, format_check
from grls.corpus import Corpus
from grls.text import Codec, Limits
from grls.types import Passage

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
        "empty text": (2, ["e", "f"]),
        "longer than 8": (1, ["g"]),
    }
    assert prefixes == 3
    assert set(pairs) > {"d < c", "c < a"}


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    return Codec(small_tokenizer(write_small(tmp_path_factory.mktemp("check") / "data")), Limits(passage=6))


def test_counts_with_a_tokenizer(codec: Codec) -> None:
    found = findings(codec, 6)
    assert found["duplicate of an earlier passage"].examples[0] == "b = a"
    assert "j = i" in found["duplicate of an earlier passage"].examples
    assert found["empty text"][1:] == (2, ["e", "f"])
    assert "g" in found["longer than 6"].examples
    pairs = found["prefix of another passage"].examples
    assert [pair.split(" < ")[0] for pair in sorted(pairs)] == ["c", "d", "e"]
    assert "c < a" in pairs
    assert "h" in found["changed by the tokenizer's round trip"].examples
    assert not {"a", "c", "i"} & set(found["changed by the tokenizer's round trip"].examples)


def test_lengths() -> None:
    report = check_corpus(Corpus.from_passages(PASSAGES[:3]), None)
    assert (report.mean_tokens, report.longest, report.tokens) == (4.0, 5, "words")


def test_a_clean_corpus_has_zero_counts(codec: Codec) -> None:
    report = check_corpus(Corpus.from_passages([PASSAGES[0], PASSAGES[6]]), codec, 100)
    assert [finding.passages for finding in report.findings] == [0, 0, 0, 0, 0]


def test_examples_are_as_many_as_asked_for_and_printed() -> None:
    report = check_corpus(Corpus.from_passages(PASSAGES, "own.jsonl"), None, 8, examples=1)
    assert all(len(finding.examples) <= 1 for finding in report.findings)
    text = format_check(report)
    assert text.splitlines()[0].startswith("own.jsonl: 10 passages, mean ")
    assert "        3  duplicate of an earlier passage  (b = a)" in text


def test_none_of_it_breaks_retrieval(tmp_path: Path) -> None:
    """Every passage is found under its id."""
    import torch
    from small_data import scratch

    from grls.retrieve.generative import GenerativeRetriever
    from grls.types import Query

    torch.manual_seed(0)
    model, tokenizer = scratch(write_small(tmp_path / "data")).load()
    corpus = Corpus.from_passages(PASSAGES)
    retriever = GenerativeRetriever.assemble(model, tokenizer, corpus, Limits(passage=6))
    (hits,) = retriever.retrieve([Query("q", "is it ?")], 20)
    assert sorted(hit.id for hit in hits) == list("abcdefghij")
