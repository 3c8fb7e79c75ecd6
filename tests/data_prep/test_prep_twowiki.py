"""2WikiMultihopQA's files, in their format, small and of our own making."""

import json

import pytest
from prep_helpers import fails, load

from data_prep.pooled import KINDS
from data_prep.pooled import twowiki as prepare
from grls.data.corpus import Corpus
from grls.data.dataset import free_order

PARAGRAPHS = {
    "Mill Lane": ["Mill Lane is a film.", "Ada Reed directed it."],
    "Ada Reed": ["Ada Reed is a director  from York."], "York": ["York is a city."], "Nothing": [],
}  # fmt: skip


def question(
    name, text="Where is the director of Mill Lane from?", titles=("Mill Lane", "Ada Reed"), **changes
):
    record = {"_id": name, "question": text, "answer": "York", "type": "compositional"}
    facts = [[title, n] for title in titles for n in (0, 1)]
    context = [[title, sentences] for title, sentences in PARAGRAPHS.items()]
    return {**record, "supporting_facts": facts, "context": context, "evidences": [], **changes}


TRAIN = [question(f"t{n}", f"Question {n}?") for n in range(50)]


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, records in files.items():
        (folder / f"{name}.json").write_text(json.dumps(records))
    return folder


def test_evidence_in_the_order_of_the_supporting_facts(tmp_path):
    asked = [question("b"), question("y", "Same?", ("York", "Mill Lane"), type="comparison", answer="yes")]
    prepare(write(tmp_path / "raw", train=TRAIN, dev=asked), tmp_path / "out", dev_share=0.1)
    corpus = list(Corpus.read(tmp_path / "out"))
    assert sorted(passage[1:] for passage in corpus) == [
        ("Ada Reed is a director from York.", "Ada Reed"),
        ("Mill Lane is a film. Ada Reed directed it.", "Mill Lane"), ("York is a city.", "York"),
    ]  # fmt: skip
    titles = {passage.id: passage.title for passage in corpus}
    _, splits = load(tmp_path / "out")
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 45, "dev": 5, "test": 2}
    bridge, compared = splits["test"]
    assert [titles[p] for p in bridge.evidence] == ["Mill Lane", "Ada Reed"]
    assert [titles[p] for p in compared.evidence] == ["York", "Mill Lane"]
    assert (bridge.answers, compared.answers) == (("York",), ())
    assert json.loads(compared.metadata) == {"type": "comparison", "answer": "yes", "any_order": True}
    assert "any_order" not in json.loads(bridge.metadata)


def test_any_order_is_right_of_comparisons_alone(tmp_path):
    asked = [question(kind, f"{kind}?", type=kind) for kind in KINDS]
    prepare(write(tmp_path / "raw", train=TRAIN, dev=asked), tmp_path / "out", dev_share=0.1)
    free = {query.id: free_order(query) for query in load(tmp_path / "out")[1]["test"]}
    assert free == {kind: kind == "comparison" for kind in KINDS}


def test_a_sample_of_one_file_is_split_in_three(tmp_path):
    raw = write(tmp_path / "raw", train=TRAIN)
    prepare(raw, tmp_path / "out", sample=25)
    _, splits = load(tmp_path / "out")
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 14, "dev": 3, "test": 8}
    first = [query.id for query in splits["test"]]
    prepare(raw, tmp_path / "again", sample=25)
    assert [query.id for query in load(tmp_path / "again")[1]["test"]] == first
    prepare(raw, tmp_path / "other", sample=25, seed=1)
    assert [query.id for query in load(tmp_path / "other")[1]["test"]] != first


@pytest.mark.parametrize(("changes", "complaint"), [
    ({"type": "bridge"}, "record 2: expected 'type' to be compositional or comparison"),
    ({"context": [["York", "a text"]]}, "record 2: expected 'context' as [title, [sentences]]"),
    ({"supporting_facts": [["Nothing", 0]]}, "record 2: the supporting fact 'Nothing' is no paragraph"),
])  # fmt: skip
def test_a_damaged_record_is_named(tmp_path, capsys, changes, complaint):
    raw = write(tmp_path / "raw", train=[TRAIN[0], {**question("x", "Other?"), **changes}])
    text = fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert complaint in text
    assert str(raw / "train.json") in text


def test_a_sample_that_cannot_be(tmp_path, capsys):
    raw = write(tmp_path / "raw", train=TRAIN)
    error = fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "out", "--sample", "51")
    assert "--sample 51: expected a number from 1 to 50" in error
