"""The data set of a run: checked first, then divided."""

from pathlib import Path
from typing import Any

import pytest
from failing import names_fault
from fit_helpers import fit_options, write_fit_data
from small_data import passages, queries, write_jsonl

from grls.data.corpus import Corpus
from grls.data.dataset import read_split, write_dataset
from grls.data.inputs.gold import gold_of
from grls.data.pseudo_queries import CUT, masked_queries, sentence_queries
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.fitting import splits
from grls.fitting.splits import SplitData, read_data, spread


def divided(data: Path, **options: Any) -> SplitData:
    return read_data(data, fit_options(**options))


def test_all_splits_stay_as_they_are(tmp_path: Path) -> None:
    made = divided(write_fit_data(tmp_path / "data"))
    assert (made.counts(), made.notes, made.pseudo) == ({"train": 9, "dev": 4, "test": 3}, (), {})
    assert made.tune == "dev"


def test_without_dev_a_part_of_train_is_split_off_and_that_is_said(tmp_path: Path) -> None:
    data = write_fit_data(tmp_path / "data", "train", "test")
    made = divided(data)
    assert made.counts() == {"train": 5, "dev": 4, "test": 3}  # half of them, up to 30
    assert made.notes == ("no dev queries: 4 of the 9 training queries are split off as dev",)
    assert (divided(data).queries, divided(data).qrels) == (made.queries, made.qrels)
    assert not made.qrels["train"].keys() & made.qrels["dev"].keys()
    assert {*map(str, [divided(data, seed=seed).qrels["dev"] for seed in range(9)])} != {
        str(made.qrels["dev"])
    }


def test_without_training_queries_there_are_pseudo_queries_and_that_is_said(tmp_path: Path) -> None:
    data = write_fit_data(tmp_path / "data", "dev", "test")
    made = divided(data)
    assert made.counts() == {"train": 10, "dev": 4, "test": 3}
    assert made.pseudo == {"train": "cut sentences"}
    assert "10 pseudo-queries, parts of sentences" in made.notes[0]
    real = set(made.qrels["dev"]) | set(made.qrels["test"])
    assert {query.id for query in made.queries if query.metadata != CUT} == real


def test_a_corpus_alone_is_enough(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", passages(), [], {})
    (tmp_path / "data" / "queries.jsonl").unlink()
    made = divided(tmp_path / "data")
    assert made.counts() == {"train": 8, "dev": 2}
    assert made.pseudo == {"train": "cut sentences", "dev": "cut sentences"}
    assert made.notes == (
        "no labelled questions: 10 pseudo-queries, parts of sentences of the passages, stand in for them, "
        "and BM25 finds more than with real ones",
        "no test queries: the report is on cut sentences, on which BM25 wins",
    )


def without_qrels(folder: Path) -> Path:
    """The small data set without qrels."""
    write_dataset(folder, passages(), queries(), {})
    return folder


def test_without_qrels_evidence_is_the_gold_and_that_is_said(tmp_path: Path) -> None:
    made = divided(without_qrels(tmp_path / "data"))
    assert made.pseudo == {}
    assert made.counts() == {"train": 8, "dev": 8}
    gold = {**made.qrels["train"], **made.qrels["dev"]}
    assert gold == {query.id: dict.fromkeys(query.evidence, 1) for query in queries()}
    assert made.notes[0] == "no qrels: the evidence of 16 queries is the gold"
    assert made.notes[1] == "no dev queries: 8 of the 16 training queries are split off as dev"


def test_evidence_does_not_replace_qrels_of_other_splits(tmp_path: Path) -> None:
    data, last = without_qrels(tmp_path / "data"), queries()[-1].id
    write_jsonl(data / "qrels" / "other.tsv", ["query-id\tcorpus-id\tscore", f"{last}\tr0\t1"])
    assert divided(data).pseudo == {"train": "cut sentences", "dev": "cut sentences"}


@pytest.mark.parametrize("kept", [0, 15])
def test_a_query_without_gold_is_refused_from_a_folder_and_from_python(kept: int, tmp_path: Path) -> None:
    """Whether all lack gold or one; in a folder without qrels the gold is the evidence."""
    asked = [*queries()[:kept], Query("q-none", "who is it ?")]
    write_dataset(tmp_path / "data", passages(), asked, {})
    file = tmp_path / "data" / "queries.jsonl"
    told = r"1 query has no gold passage: 'q-none' .*Add gold passages for each, or leave such queries out\."
    names_fault(told, file, None, read_data, tmp_path / "data", fit_options())
    gold = {query.id: list(query.evidence) for query in asked if query.evidence}
    for given in (gold, gold | {"q-none": []}, None):
        with pytest.raises(DataError, match=told.replace(" .*", ".*")):
            gold_of(given, asked)
    with pytest.raises(DataError, match=told):
        gold_of(None, tmp_path / "data")


def test_queries_that_no_qrels_name_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    """A file of all queries, of which one has judgements of some, is usual; lists name what is asked."""
    data = write_fit_data(tmp_path / "data")
    notes, judged = divided(data).notes, gold_of("train", data).qrels
    with (data / "queries.jsonl").open("a") as file:
        file.write('{"_id": "q-none", "text": "who is it ?"}\n{"_id": "q-else", "text": "who was it ?"}\n')
    assert divided(data).notes == ("2 queries are in no qrels, and left out", *notes)
    assert gold_of("train", data).qrels == judged
    write_jsonl(data / "qrels" / "other.tsv", ["query-id\tcorpus-id\tscore", "q-else\tr0\t1"])
    assert divided(data).notes == ("1 query is in no qrels, and left out", *notes)


def test_a_test_split_alone_is_for_the_report_alone(tmp_path: Path) -> None:
    data = write_fit_data(tmp_path / "data", "test")
    made = divided(data)
    test = made.qrels["test"]
    assert len(test) == 3
    assert not test.keys() & (made.qrels["train"].keys() | made.qrels["dev"].keys())


@pytest.mark.parametrize(("count", "dev"), [(59, 29), (90, 30), (200, 40)])
def test_few_queries_tune_and_choose_with_half_of_them(count: int, dev: int, tmp_path: Path) -> None:
    """Of 60 questions 12 chose, one of which was 8 points."""
    asked = [Query(f"q{n}", f"is the otter {n} calm ?") for n in range(count)]
    write_dataset(tmp_path, passages(), asked, {"train": {query.id: {"r0": 1} for query in asked}})
    assert divided(tmp_path).counts() == {"train": count - dev, "dev": dev}


def test_a_single_training_query_is_dev_as_well(tmp_path: Path) -> None:
    write_dataset(tmp_path, passages(), [Query("q", "calm ?")], {"train": {"q": {"r0": 1}}})
    made = divided(tmp_path)
    assert made.qrels["train"] == made.qrels["dev"] == {"q": {"r0": 1}}


def test_of_a_large_dev_split_one_half_tunes_and_the_other_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "_LARGE", 4)
    made = divided(write_fit_data(tmp_path / "data"))
    assert made.counts() == {"train": 9, "tune": 2, "dev": 2, "test": 3}
    assert made.tune == "tune"
    assert made.notes == ("of 4 dev queries 2 tune and 2 choose",)


def test_queries_that_are_asked_later_are_not_learned(tmp_path: Path) -> None:
    every = [Query(name, f"calm {name}") for name in "abc"]
    gold = {"r0": 1}
    write_dataset(
        tmp_path, passages(), every, {"train": {"a": gold, "b": gold}, "dev": {"b": gold, "c": gold},
                                      "test": {"c": gold}}
    )  # fmt: skip
    made = divided(tmp_path)
    assert {split: [*judged] for split, judged in made.qrels.items()} == {
        "train": ["a"], "dev": ["b"], "test": ["c"]
    }  # fmt: skip
    assert made.notes[0] == "1 query of dev is in test as well, and left out of dev"


def test_what_is_written_reads_as_it_was_divided(tmp_path: Path) -> None:
    data = write_fit_data(tmp_path / "data", "train")
    made = divided(data)
    corpus = made.written(tmp_path / "out" / "data").corpus
    assert corpus.source == str(tmp_path / "out" / "data" / "corpus.jsonl")
    assert corpus.fingerprint == made.corpus.fingerprint
    assert {s: read_split(tmp_path / "out" / "data", s, corpus)[1] for s in made.qrels} == made.qrels


def faulty(data: Path) -> None:
    (data / "qrels" / "train.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq-otter-calm\tgone\t0\nno\tgone\t1\n"
    )


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    data = write_fit_data(tmp_path / "data")
    faulty(data)
    with pytest.raises(DataError) as error:
        divided(data)
    assert "3 faults in queries and qrels" in str(error.value)
    assert "passage id 'gone' is not in" in str(error.value)
    assert "query 'q-otter-calm' has no passage graded above 0" in str(error.value)


def test_unknown_ids_are_left_out_of_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = write_fit_data(tmp_path / "data")
    before = divided(data)
    for split, lines in (("train", "no\tr0\t1\nq-otter-calm\tgone\t1\n"), ("test", "q-lynx-calm\tgone\t1\n")):
        with (data / "qrels" / f"{split}.tsv").open("a") as stream:
            stream.write(lines)
    read = divided(data)
    assert (read.queries, read.qrels["train"]) == (before.queries, before.qrels["train"])
    assert sum("gone" in grades for grades in read.qrels["test"].values()) == 1
    assert "1 judged query" in caplog.text
    assert "'gone' of the query 'q-otter-calm': left out" in caplog.text


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["", "a b"], r"passages without text or title: '0'; .*Remove them, or give them a text"),
        (["", " ", "\n", ""], "'0', '1', '2', …"),
    ],
)
def test_empty_passages_are_refused(tmp_path: Path, texts: list[str], told: str) -> None:
    write_dataset(tmp_path, [Passage(str(n), text) for n, text in enumerate(texts)], [], {})
    with pytest.raises(DataError, match=told):
        read_data(tmp_path, fit_options())


def test_the_fingerprint_knows_passages_queries_and_judgements(tmp_path: Path) -> None:
    data = write_fit_data(tmp_path / "data")

    def fingerprint() -> str:
        return divided(data).fingerprint

    first = fingerprint()
    assert fingerprint() == first
    (data / "qrels" / "test.tsv").unlink()
    second = fingerprint()
    write_jsonl(
        data / "corpus.jsonl", [{"_id": p.id, "text": p.text} for p in [*passages(), Passage("x", "y")]]
    )
    assert len({first, second, fingerprint()}) == 3


def test_some_passages_are_spread_over_the_whole_corpus() -> None:
    """Of less than twice as many passages the first ones were taken."""
    corpus = Corpus.from_passages([Passage(str(n), "text") for n in range(10)])
    taken = {most: "".join(passage.id for passage in spread(corpus, most)) for most in (1, 3, 6, 9, 10, 99)}
    assert taken == {1: "0", 3: "048", 6: "02468", 9: "02468", 10: "0123456789", 99: "0123456789"}


def test_where_no_query_can_be_made_the_error_asks_for_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "sentence_queries", lambda *given: [])
    with pytest.raises(DataError, match=r"give queries with their passages \(queries\.jsonl and qrels"):
        divided(write_fit_data(tmp_path / "data", "dev", "test"))


def test_a_masked_name_leads_to_the_passage_that_has_it() -> None:
    film = Passage("f", "A river. The long film was made by Ada Lomax, a painter.", "Slow Water")
    corpus = Corpus.from_passages([film, Passage("a", "Born in Verrin.", "Ada Lomax"), Passage("c", "None")])
    (made,) = masked_queries(corpus, 0)
    assert (made.text, made.evidence) == ("slow water the long film was made by a painter", ("a",))
    written = [Query(f"w{number}", f"Who painted {number}?", ("afc"[number % 3],)) for number in range(12)]
    data = splits.divided("x", corpus, [], {}, 0, written=written)
    assert data.qrels["links"] == {made.id: {"a": 1}}
    assert data.counts() == {"train": 4, "tune": 4, "dev": 4, "links": 1}
    assert "4 tune (written questions), 4 dev (written questions), 1 links (masked names)" in data.lines()[-1]
    learned = {passage for grades in data.qrels["train"].values() for passage in grades}
    assert learned.isdisjoint(passage for grades in data.qrels["dev"].values() for passage in grades)
    assert "links" not in splits.divided("x", corpus, [], {}, 0).qrels
    (other,) = masked_queries(corpus, 0, {made.id})
    assert other.id != made.id


def test_a_passage_that_most_questions_name_does_not_choose_them_all() -> None:
    asked = [Query(f"q{number}", "?", ("hub", f"p{number}")) for number in range(20)]
    chosen = splits._of_passages(asked, 5, 0)
    assert len(chosen) == 5
    alike = [query._replace(evidence=("hub",)) for query in asked]
    assert len(splits._of_passages(alike, 5, 0)) == 5  # an empty split would end the run


def test_a_pseudo_query_is_a_part_of_a_sentence_of_its_passage() -> None:
    text = "Otters eat many kinds of fish in winter. A holt is the den of an otter by the river."
    corpus = Corpus.from_passages(
        [Passage("a", text), Passage("b", "", "Only title"), Passage("c", "Two words")]
    )
    made = sentence_queries(corpus, 9, 0, {"pseudo-1"})
    assert [query.id for query in made] == ["pseudo-2", "pseudo-3", "pseudo-4"]
    assert [query.evidence for query in made] == [("a",), ("b",), ("c",)]
    assert [query.text for query in made[1:]] == ["Only title", "Two words"]
    words = made[0].text.split()
    assert 4 <= len(words) < len(text.split())
    assert set(words) < set(text.split())
    assert sentence_queries(corpus, 9, 0, {"pseudo-1"}) == made
    assert len(sentence_queries(corpus, 2, 0, ())) == 2
