"""What a model that answers with quotes should have written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unigram import byte_level

from grls.answer.riches.keys import build_keys
from grls.answer.riches.options import KeyKind, KeyOptions, PromptOptions
from grls.answer.riches.prompts import prompted
from grls.answer.riches.targets import Targets
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.decode.interleave.markers import TextMarkers
from grls.errors import DataError
from grls.index.keys import KeyIndex
from grls.models.load.build import train_tokenizer

PASSAGES = [
    Passage("mill", "Orla Finn built the mill. It burned down in 1820.", "The mill"),
    Passage("orla", "Orla Finn was born in Lund.", "Orla Finn"),
    Passage("copy", "Orla Finn was born in Lund.", "Lund"), Passage("empty", "", "Nothing"),
]  # fmt: skip
QUERY = Query("q", "where was she born who built the mill", ("mill", "orla"), ("in Lund", "Lund"))
MILL, ORLA = "« Orla Finn built the mill. »", "« Orla Finn was born in Lund. »"


SHARED = [p.text for p in PASSAGES] * 9 + ["mill: « Orla »\nOrla: «"] * 9
"""A space, a line break and a marker may share a token of it."""


@pytest.fixture
def corpus() -> Corpus:
    return Corpus.from_passages(PASSAGES)


def metaspace(folder: Path) -> Any:
    Corpus.from_passages(PASSAGES).write(folder / "corpus.jsonl")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "where was she born who built the mill"}\n')
    return train_tokenizer(folder, 300, ["question: « » answer: proved\n"])


@pytest.fixture(params=["metaspace", "byte-level"])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return metaspace(tmp_path) if request.param == "metaspace" else byte_level(SHARED, 400)


def made(
    corpus: Corpus, tokenizer: Any, kind: KeyKind = "sentence", anywhere: bool = False, **how: Any
) -> Targets:
    return Targets(tokenizer, corpus, build_keys(corpus, tokenizer, KeyOptions(kind, anywhere)), **how)


def spelled(tokenizer: Any, tokens: Any) -> str:
    """The text of tokens, its white space less exact (a space before a full stop, say)."""
    return "\n".join(
        "".join(line.split()) for line in tokenizer.decode(tokens, skip_special_tokens=True).split("\n")
    )


def test_a_target_by_hand(corpus: Corpus, tokenizer: Any) -> None:
    target = made(corpus, tokenizer).write(QUERY, QUERY.evidence)
    text = f"built mill: {MILL}\nOrla Finn born: {ORLA}\nanswer: in Lund"
    assert spelled(tokenizer, target.tokens) == text.replace(" ", "")
    assert target.tokens[-1] == tokenizer.eos_token_id
    assert tokenizer.eos_token_id not in target.tokens[:-1]
    assert target.keys == (0, 2)
    quotes = [spelled(tokenizer, target.tokens[first:last]) for first, last in target.spans]
    assert quotes == ["OrlaFinnbuiltthemill.", "OrlaFinnwasborninLund."]


@pytest.mark.parametrize(("how", "text"), [
    ({"thoughts": "none"}, f"{MILL}\n{ORLA}\nanswer: in Lund"),
    ({"thoughts": "title"}, f"The mill: {MILL}\nOrla Finn: {ORLA}\nanswer: in Lund"),
])  # fmt: skip
def test_other_thoughts(corpus: Corpus, tokenizer: Any, how: Any, text: str) -> None:
    target = made(corpus, tokenizer, **how).write(QUERY, QUERY.evidence)
    assert spelled(tokenizer, target.tokens) == text.replace(" ", "")


def test_thoughts_have_no_function_words_of_the_corpus_language(tmp_path: Path) -> None:
    texts = ["Die Mühle steht nicht an dem Bach.", "Der Bach ist nicht bei der Mühle und dem Wehr."]
    corpus = Corpus.from_passages([Passage(str(n), text) for n, text in enumerate(texts)])
    target = made(corpus, byte_level(SHARED, 400)).write(
        Query("q", "Wo ist die Mühle nicht?", ("0",)), ("0",)
    )
    assert spelled(byte_level(SHARED, 400), target.tokens).startswith("Mühle:«")


def walks(index: KeyIndex, tokens: Any) -> bool:
    """Whether the decoder could write these tokens within a key, and close it there."""
    state = index.start()
    for token in tokens:
        following = index.follow(state[None])
        place = np.flatnonzero(following.tokens == token)
        if not len(place):
            return False
        state = following.states[place[0]]
    return bool(index.closes(state[None])[0])


@pytest.mark.parametrize("anywhere", [False, True])
@pytest.mark.parametrize("kind", ["sentence", "titled", "title"])
def test_the_decoder_could_have_written_it(corpus: Corpus, tokenizer: Any, kind: Any, anywhere: bool) -> None:
    """A quote opens where the decoder sees it open and nowhere else, is a walk of the index, and closes."""
    targets = made(corpus, tokenizer, kind, anywhere)
    target = targets.write(QUERY, QUERY.evidence)
    markers = TextMarkers(tokenizer)
    closing = len(markers.closing)
    place = 0
    for first, last in target.spans:
        free = target.tokens[place:first]
        assert [n for n in range(1, len(free) + 1) if markers.opens(free[:n])] == [len(free)]
        assert not np.isin(free, markers.barred).any()
        assert walks(targets.keys.index, target.tokens[first:last])
        assert target.tokens[last : last + closing] == markers.closing
        place = last + closing
    assert not any(markers.opens(target.tokens[place:n]) for n in range(place + 1, len(target.tokens)))
    assert not walks(targets.keys.index, target.tokens[target.spans[0][0] : target.spans[0][1] - 1])


def test_of_several_sentences_the_one_that_fits_the_question(corpus: Corpus, tokenizer: Any) -> None:
    asked = QUERY._replace(text="when did it burn, in 1820", answers=())
    assert made(corpus, tokenizer).write(asked, ("mill",)).keys == (1,)
    told = QUERY._replace(text="when", answers=("1820",))
    assert made(corpus, tokenizer).write(told, ("mill",)).keys == (1,)


def test_what_cannot_be_written_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    tokenizer = metaspace(tmp_path)
    with pytest.raises(DataError, match=r"gold passage 'gone' of query 'q' is not in"):
        made(corpus, tokenizer).write(QUERY, ("gone",))
    with pytest.raises(DataError, match=r"gold passage 'empty' of query 'q' has no key of this kind"):
        made(corpus, tokenizer).write(QUERY, ("empty",))
    for answer in ("Lund »", "« Lund"):
        with pytest.raises(DataError, match=r"query 'q': .*holds a marker;"):
            made(corpus, tokenizer).write(QUERY._replace(answers=(answer,)), ("orla",))
    with pytest.raises(DataError, match=r"query 'q': the tokenizer cannot write .*☃"):
        made(corpus, tokenizer).write(QUERY._replace(answers=("☃",)), ("orla",))
    titled = Corpus.from_passages([Passage("x", "Orla Finn", "mill « Lund")])
    with pytest.raises(DataError, match="holds a marker;"):
        made(titled, tokenizer, thoughts="title").write(QUERY, ("x",))


def test_the_prompt_of_a_fine_tuned_model_is_the_question_alone(tmp_path: Path) -> None:
    tokenizer = metaspace(tmp_path)
    (tokens,) = prompted(PromptOptions("none"), tokenizer, ["where was Lund"], causal=False)
    assert spelled(tokenizer, tokens) == "question:wherewasLund\n"
    assert tokens[-1] == tokenizer.eos_token_id
    assert prompted(PromptOptions("none"), tokenizer, ["where was Lund"], causal=True) == [tokens[:-1]]
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    (turns,) = prompted(PromptOptions("none", chat=True), tokenizer, ["where was Lund"], causal=True)
    assert "user" in spelled(tokenizer, turns)
    assert "system" not in spelled(tokenizer, turns)
