"""Propositions, written by small random models, and read off outputs."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

from grls.answer.riches.propositions import (
    _EXAMPLES,
    Propositionizer,
    PropositionPrompt,
    parse_propositions,
)
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError
from grls.models.load.build import train_tokenizer

PASSAGES = [
    Passage("a", "The mill was built in 1820. It burned down.", "Mill"),
    Passage("b", "Rain fell on the red barn, and on the cow, and on all that stood there on Monday.", "Barn"),
    Passage("c", "", "Nothing"),
    Passage("d", "Who knows?"),
]
MILL = PASSAGES[0]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("text")
    shown = [Passage(f"e{n}", " ".join([p.text, *lines])) for n, (p, lines) in enumerate(_EXAMPLES)]
    Corpus.from_passages([*PASSAGES, *shown]).write(folder / "corpus.jsonl")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "Passage: Propositions: - . 0 9"}\n')
    return train_tokenizer(folder, 300)


def causal(tokenizer: Any) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, initializer_range=0.5,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def seq2seq(tokenizer: Any) -> Any:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        decoder_start_token_id=tokenizer.pad_token_id, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return T5ForConditionalGeneration(config).eval()


def outputs(writer: Propositionizer, passages: list[Passage]) -> list[tuple[str, bool]]:
    rows = [writer._without_end(row) for row in writer.prompt.inputs(writer.tokenizer, passages)]
    return list(writer._generate(rows))


@pytest.mark.parametrize("kind", [causal, seq2seq])
def test_a_batch_writes_what_each_writes_alone(tokenizer: Any, kind: Any) -> None:
    writer = Propositionizer(kind(tokenizer), tokenizer, max_new_tokens=12)
    some = [PASSAGES[0], PASSAGES[1], PASSAGES[3]]
    together = outputs(writer, some)
    assert len({text for text, _ in together}) > 1
    for passage, (text, _) in zip(some, together, strict=True):
        row = writer._without_end(writer.prompt.inputs(tokenizer, [passage])[0])
        start = 0 if writer.encoder_decoder else len(row)
        alone = writer.model.generate(
            input_ids=torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long),
            do_sample=False, max_new_tokens=12,
        )  # fmt: skip
        written = tokenizer.decode(alone[0, start:], skip_special_tokens=True)
        assert text == writer.prompt.lead + written


def test_nothing_usable_gives_sentences_or_nothing(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Propositionizer(causal(tokenizer), tokenizer)
    output = "- Mill:\n- The mill burned in 1999.", True
    monkeypatch.setattr(writer, "_generate", lambda rows: [output] * len(rows))
    dropped = {"other": 1, "invented": 1}
    first, _, empty, last = writer.write(PASSAGES)
    assert first == ("a", ("The mill was built in 1820.", "It burned down."), "sentences", dropped)
    assert empty == ("c", (), "sentences", {})
    assert last.texts == ("Who knows?",)
    writer.fallback = False
    assert writer.write(PASSAGES[:1])[0] == ("a", (), "model", dropped)


def test_a_passage_too_long_for_the_model_is_not_read(tokenizer: Any) -> None:
    model = causal(tokenizer)
    head = len(Propositionizer(model, tokenizer)._head)
    model.config.max_position_embeddings = head + 24
    writer = Propositionizer(model, tokenizer, max_new_tokens=4)
    short, long = writer.write([Passage("s", "Rain fell."), PASSAGES[1]])
    assert "unread" not in short.dropped
    assert (long.by, long.dropped) == ("sentences", {"unread": 1})
    with pytest.raises(ConfigError, match=r"prompt takes \d+ tokens.*max_new_tokens"):
        Propositionizer(model, tokenizer, max_new_tokens=24)


def test_options_that_cannot_work_are_refused(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Propositionizer(causal(tokenizer), tokenizer, longest=0)
    with pytest.raises(ConfigError, match=r"needs \{text\}"):
        Propositionizer(causal(tokenizer), tokenizer, PropositionPrompt(template="{title}"))
    with pytest.raises(ConfigError, match="no chat template"):
        Propositionizer(causal(tokenizer), tokenizer, PropositionPrompt(chat=True))


def test_how_a_passage_is_told(tokenizer: Any) -> None:
    plain = PropositionPrompt(examples=False)
    assert plain.form(MILL) == "Mill. The mill was built in 1820. It burned down."
    assert plain.form(PASSAGES[3]) == "Who knows?"
    odd = Passage("x", "a {title}\nb", "{text}")
    form = PropositionPrompt(template="Title: {title}. Content: {text}").form(odd)
    assert form == "Title: {text}. Content: a {title} b"
    asked = tokenizer.decode(PropositionPrompt().inputs(tokenizer, [MILL])[0], skip_special_tokens=True)
    assert asked.count("Propositions:") == 3
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    turned = tokenizer.decode(PropositionPrompt(chat=True).inputs(tokenizer, [MILL])[0])
    tokenizer.chat_template = None
    assert turned.count("user") == 3
    one, other = PropositionPrompt(), PropositionPrompt(template="so: {text}")
    assert one.fingerprint(tokenizer) != other.fingerprint(tokenizer)


@pytest.mark.parametrize(("text", "texts", "dropped"), [
    ("- The mill burned.\n* It was built in 1820.\n", ["The mill burned.", "It was built in 1820."], {}),
    ("1. Mills burn.\n(2) It  was.\nb) So it is.", ["Mills burn.", "It was.", "So it is."], {}),
    ("1820 was its year.\nA mill burned.", ["1820 was its year.", "A mill burned."], {}),
    ("- So it is.\n\n- So it is.\n- Mill", ["So it is."], {"twice": 1, "other": 1}),
    ("Here they are:\n- The mill burned in 1821.\n- 1820", [], {"other": 2, "invented": 1}),
    (f"- {_EXAMPLES[0][1][0]}\n- {'so ' * 50}", [], {"copied": 1, "long": 1}),
    ('["The mill burned.", "It \\"stood\\"."]', ["The mill burned.", 'It "stood".'], {}),
    ('["The mill burned.", 5]', ["The mill burned."], {}),
    ("The mill burned. It was built in 1820.", ["The mill burned.", "It was built in 1820."], {}),
    ("", [], {}),
    ("  \n-\n", [], {}),
])  # fmt: skip
def test_propositions_are_read_off_an_output(text: str, texts: list[str], dropped: dict[str, int]) -> None:
    assert parse_propositions(text, True, MILL, longest=100) == (tuple(texts), dropped)


def test_a_title_is_no_proposition() -> None:
    told = Passage("x", "It stood there.", "The old mill.")
    assert parse_propositions("- The old Mill.\n- The old mill stood.", True, told) == (
        ("The old mill stood.",),
        {"other": 1},
    )


def test_what_the_length_limit_cut_is_left_out() -> None:
    assert parse_propositions("- The mill burned.\n- It was bui", False, MILL) == (
        ("The mill burned.",),
        {"cut": 1},
    )
    assert parse_propositions('["The mill burned.", "It was bui', False, MILL) == (
        ("The mill burned.",),
        {"cut": 1},
    )
    assert parse_propositions('["The mill burned.", "It \\q"', True, MILL) == (("The mill burned.",), {})
