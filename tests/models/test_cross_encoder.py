"""Cross-encoders: the library's logits, what is cut, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cross_encoders import CHAT, causal_reranker, cross_encoder, plain_classifier
from failing import raises
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from small_data import passages, queries, tiny_bert
from torch import nn

from grls.errors import ConfigError, DataError, MismatchError
from grls.models.cross_encoder import PairScorer

PAIRS = [(query.text, passage.text) for query in queries()[:5] for passage in passages()[:6]]
PAIRS += [(PAIRS[0][0], PAIRS[0][1] * 30)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cross_encoder(tmp_path_factory.mktemp("pairs") / "m")


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def changed(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_logits_are_the_librarys_before_its_activation(folder: Path, batch_size: int) -> None:
    library = CrossEncoder(str(folder), device="cpu", trust_remote_code=False)
    expected = library.predict(PAIRS, activation_fn=nn.Identity(), show_progress_bar=False)
    assert np.ptp(expected) > 0.1
    decided: list[int] = []
    scorer = PairScorer.load(str(folder), "cpu")
    found = scorer.logits(PAIRS, batch_size, decided.append)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert sum(decided) == len(PAIRS)
    assert max(decided) <= batch_size
    assert 1 / (1 + np.exp(-found)) == pytest.approx(
        library.predict(PAIRS, show_progress_bar=False), abs=1e-5
    )
    assert scorer.logits([]).shape == (0,)


def test_a_query_is_cut_where_it_has_more_than_half_the_room(folder: Path) -> None:
    """64 positions and 3 markers leave 61 tokens: 30 are read of any query."""
    scorer = PairScorer.load(str(folder), "cpu")
    assert scorer.max_tokens == 64
    pairs = [("otter " * n, "calm " * m) for n, m in ((30, 90), (31, 30), (31, 31), (60, 1), (60, 2))]
    assert scorer.cut_queries(pairs) == [(2, 31), (4, 60)]
    seen: list[list[int]] = []
    scorer.model.register_forward_pre_hook(lambda _, given: seen.extend(given[0]["input_ids"].tolist()))
    scorer.logits(pairs, 1)
    otter = scorer.model.tokenizer.convert_tokens_to_ids("otter")
    assert sorted(row.count(otter) for row in seen) == [30, 30, 31, 59, 60]


def test_the_fingerprint_is_of_all_that_counts(folder: Path, tmp_path: Path) -> None:
    scorer = PairScorer.load(str(folder), "cpu")
    scorer.write(tmp_path / "again")
    same = PairScorer.load(str(tmp_path / "again"), "cpu", "bfloat16")
    assert same.fingerprint() == scorer.fingerprint()
    raises(MismatchError, "load it again in float32", same.write, tmp_path / "short")
    settings = copied(folder, tmp_path / "settings")
    changed(settings / "config.json", layer_norm_eps=1e-3)
    weights = cross_encoder(tmp_path / "weights", seed=1)
    prompt = copied(folder, tmp_path / "prompt")
    changed(prompt / "config_sentence_transformers.json", prompts={"q": "otter "}, default_prompt_name="q")
    short = copied(folder, tmp_path / "short-limit")
    changed(short / "tokenizer_config.json", model_max_length=32)
    side = copied(folder, tmp_path / "side")
    changed(side / "tokenizer_config.json", truncation_side="left")
    others = (settings, weights, prompt, short, side)
    prints = {PairScorer.load(str(one), "cpu").fingerprint() for one in others}
    assert len(prints | {scorer.fingerprint()}) == 6


def test_the_fingerprint_is_of_the_settings_of_every_module(tmp_path: Path) -> None:
    """Relevant and irrelevant could be exchanged without a word."""
    made = causal_reranker(tmp_path)
    before = PairScorer.load(str(made), "cpu")
    before.write(tmp_path / "copy")
    assert PairScorer.load(str(tmp_path / "copy"), "cpu").fingerprint() == before.fingerprint()
    changed(made / "1_LogitScore" / "config.json", true_token_id=12, false_token_id=9)
    after = PairScorer.load(str(made), "cpu")
    np.testing.assert_allclose(after.logits(PAIRS[:5]), -before.logits(PAIRS[:5]), atol=1e-5)
    assert after.fingerprint() != before.fingerprint()


def test_a_chat_reranker_reads_pairs_by_its_template(tmp_path: Path) -> None:
    made = causal_reranker(tmp_path, template=CHAT)
    changed(made / "config_sentence_transformers.json", prompts={"p": "the otter"}, default_prompt_name="p")
    scorer, library = PairScorer.load(str(made), "cpu"), CrossEncoder(str(made), device="cpu")
    one = [float(library.predict([pair], activation_fn=nn.Identity())[0]) for pair in PAIRS]
    np.testing.assert_allclose(scorer.logits(PAIRS), one, atol=1e-5)
    forged = ("the otter [SEP]", "[CLS] calm")  # a text ends no turn
    np.testing.assert_allclose(scorer.logits([forged]), scorer.logits([("the otter ", " calm")]), atol=1e-6)
    assert scorer.cut_queries([("otter", "calm " * 99), ("otter " * 99, "calm")]) == [(1, 99)]
    (made / "chat_template.jinja").write_text(CHAT.replace("calm", "quick"))
    assert PairScorer.load(str(made), "cpu").fingerprint() != scorer.fingerprint()
    (made / "chat_template.jinja").write_text(
        "{% for m in messages if m.role == 'user' %}{{ m }}{% endfor %}"
    )
    raises(ConfigError, "cannot carry a 'query'/'document' pair", PairScorer.load, str(made), "cpu")


def test_what_is_no_whole_cross_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    raises(ConfigError, "no such folder", PairScorer.load, "./nowhere", "cpu")
    with pytest.raises(ConfigError, match="3 labels, but a ranking needs one"):
        PairScorer.load(str(plain_classifier(tmp_path / "three", 3)), "cpu")
    with pytest.raises(ConfigError, match=r"cannot load a cross-encoder .*it lacks classifier"):
        PairScorer.load(str(tiny_bert(tmp_path / "bert")), "cpu")
    SentenceTransformer(str(tmp_path / "bert"), device="cpu", trust_remote_code=False).save(
        str(tmp_path / "bi"), create_model_card=False
    )
    raises(
        ConfigError, "a SentenceTransformer, not a CrossEncoder", PairScorer.load, str(tmp_path / "bi"), "cpu"
    )
    raises(ConfigError, "cannot use device", PairScorer.load, str(folder), "cuda:7")
    for lost, says in (
        ("modules.json", "it lacks modules.json"),
        ("model.safetensors", "no weights"),
        ("tokenizer_config.json", "its tokenizer is missing"),
    ):
        (copied(folder, tmp_path / lost) / lost).unlink()
        raises(ConfigError, says, PairScorer.load, str(tmp_path / lost), "cpu")


def test_weights_that_are_missing_or_no_numbers_are_refused(folder: Path, tmp_path: Path) -> None:
    other = copied(folder, tmp_path / "m")
    weights = load_file(other / "model.safetensors")
    pooler = {name: value for name, value in weights.items() if "pooler" not in name}
    save_file(pooler, other / "model.safetensors", {"format": "pt"})
    raises(ConfigError, r"it lacks bert\.pooler", PairScorer.load, str(other), "cpu")
    weights["classifier.bias"][:] = float("nan")
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match="not finite"):
        PairScorer.load(str(other), "cpu").logits(PAIRS)


def test_a_folder_runs_no_code(folder: Path, tmp_path: Path) -> None:
    other = copied(folder, tmp_path / "m")
    changed(other / "config.json", auto_map={"AutoModel": "mine.Model"})
    raises(ConfigError, "brings its own code", PairScorer.load, str(other), "cpu")
    changed(other / "config.json", auto_map=None)
    entries = json.loads((other / "modules.json").read_text())
    (other / "modules.json").write_text(json.dumps([entries[0] | {"type": "os.path.join"}]))
    raises(ConfigError, "cannot load a cross-encoder", PairScorer.load, str(other), "cpu")
