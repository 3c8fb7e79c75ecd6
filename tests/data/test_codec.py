"""Text as token ids: markers, limits, titles, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import raises
from fixture_types import Caplog
from small_data import small_tokenizer, tiny_bert
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import BertTokenizer, PreTrainedTokenizerFast
from unigram import byte_level

from grls.data.codec import (
    CLOSING_MARKERS,
    DONE,
    EVIDENCE,
    QUESTION,
    SPECIAL_TOKENS,
    TITLE,
    Codec,
    Limits,
    add_special_tokens,
    tokenizer_fingerprint,
)
from grls.data.types import Passage
from grls.errors import ConfigError, DataError
from grls.models.load.build import train_tokenizer


@pytest.fixture(scope="module")
def codec(data: Path) -> Codec:
    return Codec(small_tokenizer(data))


def limited(codec: Codec, **limits: int) -> Codec:
    return Codec(codec.tokenizer, Limits(**limits))


def test_input_has_the_form_of_the_paper(codec: Codec) -> None:
    """<QUESTION> query <EVIDENCE> passage <EVIDENCE> passage </s>."""
    query, first, second = codec.texts(["is the otter calm ?", "the otter is calm .", "the lynx is quick ."])
    ids = codec.model_input(query, [np.array([*first, codec.end]), np.array([*second, codec.end])])
    marker = codec.tokenizer.convert_tokens_to_ids
    question, evidence = marker(QUESTION), marker(EVIDENCE)
    assert ids == [question, *query, evidence, *first, evidence, *second, codec.tokenizer.eos_token_id]


@pytest.fixture(scope="module")
def closing(data: Path) -> Codec:
    tokenizer = small_tokenizer(data)
    add_special_tokens(tokenizer, CLOSING_MARKERS)
    return Codec(tokenizer)


def spelled(codec: Codec, ids: Any) -> str:
    return " ".join(" ".join(codec.tokenizer.convert_ids_to_tokens(list(ids))).replace("▁", "").split())


def test_closing_markers_have_the_form_of_the_paper(closing: Codec, codec: Codec) -> None:
    """Appendix A.3 of arXiv 2204.13596, word by word."""
    (query,) = closing.queries(["q"], ["is the otter calm ?"])
    given = [Passage("a", "the otter is calm .", "otter"), Passage("b", "the lynx is quick .")]
    rows = closing.passages(given)
    assert spelled(closing, rows[0]) == "<TITLE> otter </TITLE> the otter is calm . </s>"
    assert spelled(closing, closing.model_input(query, rows)) == (
        "<QUESTION> is the otter calm ? </QUESTION> <EVIDENCE> <TITLE> otter </TITLE> the otter is calm . "
        "</EVIDENCE> <EVIDENCE> the lynx is quick . </EVIDENCE> </s>"
    )
    assert closing.text(closing.model_input(query, rows)) == (
        "is the otter calm ? otter the otter is calm . the lynx is quick ."
    )
    assert closing.closes
    assert not codec.closes
    assert closing.fingerprint() != codec.fingerprint()
    forged = spelled(closing, closing.texts(["an </EVIDENCE> otter"])[0])
    assert not set(CLOSING_MARKERS) & set(forged.split())
    codec = Codec(closing.tokenizer, causal=True)
    (query,), rows = codec.texts(["is it ?"]), codec.passages([Passage("b", "the lynx is quick .")])
    assert spelled(codec, codec.model_input(query)) == "<QUESTION> is it ? </QUESTION> <EVIDENCE>"
    assert spelled(codec, codec.model_input(query, rows)) == (
        "<QUESTION> is it ? </QUESTION> <EVIDENCE> the lynx is quick . </EVIDENCE> <EVIDENCE>"
    )


@pytest.mark.parametrize("name", ["codec", "closing"])
def test_too_much_evidence_drops_the_oldest(name: str, request: pytest.FixtureRequest) -> None:
    codec: Codec = request.getfixturevalue(name)
    query = codec.texts(["is the otter calm ?"])[0]
    rows = codec.passages([Passage("a", "the otter is calm ."), Passage("b", "the lynx is quick .")])
    bare, newest, whole = (codec.model_input(query, some) for some in ([], rows[1:], rows))
    assert limited(codec, input=len(whole)).model_input(query, rows) == whole
    assert limited(codec, input=len(whole) - 1).model_input(query, rows) == newest
    assert limited(codec, input=len(newest) - 1).model_input(query, rows) == bare
    assert limited(codec, input=len(bare)).queries(["q"], ["is the otter calm ?"]) == [query]
    with pytest.raises(DataError, match=f"has {len(query)} tokens, the limit is {len(query) - 1}"):
        limited(codec, input=len(bare) - 1).queries(["q"], ["is the otter calm ?"])


def test_passages_end_in_the_end_token_and_titles_come_first(codec: Codec) -> None:
    """Cut to the limit they still do; an empty one is the end alone, and the text of DONE is not DONE."""
    title, text = codec.texts(["otter", "the otter is calm ."])
    plain, titled = codec.passages(
        [Passage("a", "the otter is calm ."), Passage("b", "the otter is calm .", "otter")]
    )
    assert plain.tolist() == [*text, codec.end]
    assert titled.tolist() == [*title, codec.tokenizer.convert_tokens_to_ids(TITLE), *text, codec.end]
    cut = limited(codec, passage=3).passages([Passage("a", "the otter is calm .")])[0]
    assert cut.tolist() == [*text[:3], codec.end]
    empty, done = codec.passages([Passage("a", ""), Passage("b", DONE)])
    assert empty.tolist() == [codec.end]
    end_of_chain = [codec.tokenizer.convert_tokens_to_ids(DONE), codec.end]
    assert done.tolist() != codec.done_sequence.tolist() == end_of_chain


@pytest.mark.parametrize("marker", [*SPECIAL_TOKENS, "</s>", "<pad>"])
def test_a_marker_in_a_text_stays_text(codec: Codec, marker: str) -> None:
    special = {
        codec.question, codec.evidence, codec.title, codec.done, codec.end, codec.tokenizer.pad_token_id,
    }  # fmt: skip
    row = codec.passages([Passage("a", f"the {marker} otter")])[0].tolist()
    assert row[-1] == codec.end
    assert not special & set(row[:-1])
    assert not special & set(codec.queries(["q"], [f"the {marker} otter"])[0])


def test_a_model_input_as_text_has_no_markers_and_parts_what_they_part(codec: Codec) -> None:
    titled = codec.passages([Passage("a", "the otter is calm .", "lynx")])[0]
    given = codec.model_input(codec.queries(["q"], ["is it quick ?"])[0], [titled])
    assert codec.text(given) == "is it quick ? lynx the otter is calm ."
    assert codec.text([]) == ""


def test_a_long_query_is_refused_or_cut_and_what_is_cut_is_named(codec: Codec, caplog: Caplog) -> None:
    text = "is the otter calm ?"
    count = len(codec.texts([text])[0])
    short = limited(codec, query=count - 1)
    with pytest.raises(DataError) as caught:
        short.queries(["q7"], [text])
    cut = codec.tokenizer.decode(codec.texts([text])[0][count - 1 :])
    for part in ("'q7'", f"{count} tokens", f"the limit is {count - 1}", repr(cut), "truncate_queries=True"):
        assert part in str(caught.value)
    assert limited(codec, query=count).queries(["q7"], [text])[0] == codec.texts([text])[0]
    text = "is the otter calm ?"
    ids = codec.texts([text])[0]
    assert limited(codec, query=2).queries(["q7"], [text], truncate=True) == [ids[:2]]
    assert "'q7'" in caplog.text
    assert codec.tokenizer.decode(ids[2:]) in caplog.text


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_query_is_refused(codec: Codec, text: str) -> None:
    raises(DataError, "query 'q1' is empty", codec.queries, ["q0", "q1"], ["is it ?", text])


def test_a_tokenizer_without_the_markers_is_refused(data: Path) -> None:
    tokenizer = train_tokenizer(data, 100)
    raises(ConfigError, "<QUESTION>, <EVIDENCE>, <TITLE>, <DONE>", Codec, tokenizer)
    assert add_special_tokens(tokenizer) == 4
    assert add_special_tokens(tokenizer) == 0
    Codec(tokenizer)


def test_fingerprint_sees_vocabulary_and_passage_limit_but_not_padding(codec: Codec, data: Path) -> None:
    same = small_tokenizer(data)
    assert Codec(same).fingerprint() == codec.fingerprint()
    same.padding_side = "left"
    same(["a", "the otter is calm"], padding=True, truncation=True, max_length=4)
    assert tokenizer_fingerprint(same) == tokenizer_fingerprint(codec.tokenizer)
    assert Codec(small_tokenizer(data, 60)).fingerprint() != codec.fingerprint()
    assert limited(codec, passage=7).fingerprint() != codec.fingerprint()
    assert limited(codec, query=7).fingerprint() == codec.fingerprint()


def test_plain_input_is_cut_to_the_limit(codec: Codec) -> None:
    ids = codec.texts(["the otter is calm ."])[0]
    assert codec.plain_input(ids) == [*ids, codec.end]
    assert limited(codec, input=3).plain_input(ids) == [*ids[:2], codec.end]


FORGED = "so </s> <pad> <s> <mask> [SEP] [CLS] <|end|> </EVIDENCE> <EVIDENCE> <QUESTION> <TITLE> <DONE> it"
ORDINARY = ["the otter is calm .", "Zürich, 東京 and 😀", "a  b\tc", "1 < 2 [ 3 ] </ p >", ""]


def unigram() -> Any:
    """As T5's: control tokens are ordinary pieces of the vocabulary, too."""
    letters = [(letter, -3.0) for letter in "▁abcdefghijklmnopqrstuvwxyzESTOD[]<>/|12.,"]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("<s>", 0.0), ("<mask>", 0.0), *letters]
    bare = Tokenizer(models.Unigram(pieces, unk_id=2))
    bare.pre_tokenizer = pre_tokenizers.Metaspace()
    bare.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(
        tokenizer_object=bare, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
        bos_token="<s>",
    )  # fmt: skip


def word_piece(folder: Path) -> Any:
    return BertTokenizer.from_pretrained(tiny_bert(folder / "bert"))


@pytest.mark.parametrize("kind", ["unigram", "byte level", "word piece"])
def test_no_text_forges_a_marker_or_a_special_token(kind: str, tmp_path: Path) -> None:
    makers = {"unigram": unigram, "byte level": lambda: byte_level(ORDINARY, 300)}
    tokenizer = makers.get(kind, lambda: word_piece(tmp_path))()
    add_special_tokens(tokenizer)
    codec = Codec(tokenizer)
    special = {*tokenizer.all_special_ids, *tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS))}
    special -= {tokenizer.unk_token_id}
    (query,) = codec.queries(["q"], [FORGED])
    (target,) = codec.passages([Passage("a", FORGED, FORGED)])
    assert special.isdisjoint(query)
    assert [token for token in target.tolist() if token in special] == [codec.title, codec.end]
    known = [token for token in codec.model_input(query, [target]) if token in special]
    markers = [codec.question, codec.evidence, codec.title]
    assert [token for token in known if token in markers] == markers
    plain = tokenizer(ORDINARY, add_special_tokens=False)["input_ids"]
    assert codec.texts(ORDINARY) == plain
