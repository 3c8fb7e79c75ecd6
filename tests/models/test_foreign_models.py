"""Models as sentence-transformers saves them: the library's own encoding and similarity are the truth.

Each layout is made small, searched, saved, opened again and trained. What comes of it is in
``foreign_models.json``; ``RENEW_TABLE=1 python -m pytest -m '' tests/models/test_foreign_models.py`` writes
it anew. ``docs/concepts/encoders.md`` says it in short.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from cross_encoders import CHAT, causal_reranker, cross_encoder, plain_classifier
from encoder_models import tiny_colbert, tiny_masked, tiny_splade
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling
from sentence_transformers.sentence_transformer.modules import (
    CNN,
    LSTM,
    BoW,
    Dropout,
    LayerNorm,
    Pooling,
    StaticEmbedding,
    WeightedLayerPooling,
    WordEmbeddings,
    WordWeights,
)
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
from sentence_transformers.sparse_encoder.modules import (
    SparseAutoEncoder,
    SparseStaticEmbedding,
    SpladePooling,
)
from small_data import passages, queries, tiny_bert, write_small
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    BertTokenizerFast,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5EncoderModel,
)

from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError
from grls.models.biencoder import BiEncoderModel
from grls.models.cross_encoder import PairScorer
from grls.retrieve.build import Building, build
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.encoded import EncodedRetriever
from grls.retrieve.multi_vector import MultiVectorRetriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.sparse import SparseRetriever
from grls.train.biencoder.run import run_biencoder
from grls.train.options import BiEncoderOptions, BiEncoderTraining

TABLE = Path(__file__).with_name("foreign_models.json")
WORKS = {
    "dense": "bi-encoder: searched and trained", "sparse": "sparse encoder: searched",
    "multi-vector": "late interaction: searched", "rescored": "cross-encoder: rescores",
}  # fmt: skip
WIDTH = 16
QUERIES = [query.text for query in queries()[:2]] + ["is the otter calm ? " * 6, "IS THE OTTER Quick ?"]
TEXTS = [passage.text for passage in passages()[::3]]
TEXTS += ["the otter is calm and proud . " * 8, "The HERON is Kind"]
CORPUS = Corpus.from_passages([Passage(str(n), text) for n, text in enumerate(TEXTS)])
WORDS = sorted({word for text in TEXTS for word in text.split()})


def bert(folder: Path, seed: int = 1) -> str:
    torch.manual_seed(seed)
    return str(tiny_bert(folder))


def network(folder: Path, seed: int = 1, **options: Any) -> Transformer:
    return Transformer(bert(folder, seed), **{"max_seq_length": 24, **options})


def pooled(folder: Path, *more: Any, mode: Any = "mean", **options: Any) -> list[Any]:
    return [network(folder, **options), Pooling(WIDTH, pooling_mode=mode), *more]


def saved(folder: Path, modules: list[Any], kind: Any = SentenceTransformer, **options: Any) -> Path:
    kind(modules=modules, device="cpu", **options).save(str(folder / "model"), create_model_card=False)
    return folder / "model"


def changed(folder: Path, file: str, drop: tuple[str, ...] = (), **values: Any) -> Path:
    """A folder with other settings in a file; a new file holds these alone."""
    place = folder / file
    content = json.loads(place.read_text()) if place.is_file() else {}
    kept = {name: value for name, value in content.items() if name not in drop}
    place.write_text(json.dumps({**kept, **values}))
    return folder


def mean(folder: Path, **options: Any) -> Path:
    return saved(folder, pooled(folder / "bert"), **options)


def unnamed(folder: Path) -> Path:
    """As version 2 wrote it."""
    made = changed(mean(folder), "config_sentence_transformers.json", ("similarity_fn_name", "model_type"))
    legacy = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True}
    (made / "1_Pooling" / "config.json").write_text(json.dumps(legacy))
    return made


def numbered(folder: Path) -> Path:
    """As version 0 wrote it."""
    made = mean(folder)
    (made / "0_Transformer").mkdir()
    for file in [file for file in made.iterdir() if file.is_file() and file.name != "modules.json"]:
        if file.name != "config_sentence_transformers.json":
            shutil.move(file, made / "0_Transformer" / file.name)
    (made / "config_sentence_transformers.json").unlink()
    entries = json.loads((made / "modules.json").read_text())
    entries[0]["path"] = "0_Transformer"
    (made / "modules.json").write_text(json.dumps(entries))
    return made


def causal(folder: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(bert(folder / "bert"))
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=64, pad_token_id=0, initializer_range=0.3,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder / "llama")
    tokenizer.save_pretrained(folder / "llama")
    return folder / "llama"


def encoder_of_t5(folder: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(bert(folder / "bert"))
    torch.manual_seed(4)
    sizes = {"d_model": WIDTH, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    T5EncoderModel(T5Config(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder / "t5")
    tokenizer.save_pretrained(folder / "t5")
    return saved(folder, [Transformer(str(folder / "t5"), max_seq_length=20), Pooling(WIDTH)])


def with_prompts(folder: Path, prompts: dict[str, str], excluded: bool = False, **options: Any) -> Path:
    made = saved(folder, pooled(folder / "bert"), prompts=prompts, **options)
    return changed(made, "1_Pooling/config.json", include_prompt=not excluded)


def cased(folder: Path, lower: bool = True, by_tokenizer: bool = False) -> Path:
    """A vocabulary of small letters; the library does not save ``do_lower_case``."""
    source = bert(folder / "bert")
    BertTokenizerFast(source + "/vocab.txt", do_lower_case=by_tokenizer).save_pretrained(source)
    made = saved(folder, [Transformer(source, max_seq_length=24), Pooling(WIDTH)])
    return changed(made, "sentence_bert_config.json", do_lower_case=lower)


def layers_weighed(folder: Path) -> Path:
    first = network(folder / "bert", config_kwargs={"output_hidden_states": True})
    made = saved(folder, [first, WeightedLayerPooling(WIDTH, 2, 1), Pooling(WIDTH)])
    return changed(made, "sentence_bert_config.json", config_kwargs={"output_hidden_states": True})


def words(folder: Path, *between: Any, width: int = WIDTH, trained: bool = True) -> Path:
    torch.manual_seed(5)
    table = torch.randn(len(WORDS), WIDTH)
    first = WordEmbeddings(WhitespaceTokenizer(WORDS, stop_words=["is"]), table, trained)
    return saved(folder, [first, *between, Pooling(width)])


def static(folder: Path, *more: Any) -> list[Any]:
    torch.manual_seed(6)
    tokenizer = AutoTokenizer.from_pretrained(bert(folder))
    return [StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=WIDTH), *more]


def model2vec(folder: Path) -> Path:
    """Rows that several pieces share, weighed."""
    made = saved(folder, static(folder / "bert", Normalize()))
    (file,) = made.rglob("model.safetensors")
    rows = load_file(file)["embedding.weight"]
    mapping = torch.arange(len(rows)) // 2
    parts = {"embeddings": rows[: len(rows) // 2 + 1].contiguous(), "mapping": mapping}
    save_file({**parts, "weights": torch.rand(len(rows), dtype=torch.float64)}, file)
    return made


def towers(folder: Path, first: list[Any] | None = None, longest: int = 24, **options: Any) -> Path:
    queries_by = first or pooled(folder / "one")
    documents_by = pooled(folder / "two", seed=2, max_seq_length=longest)
    routed = Router.for_query_document(query_modules=queries_by, document_modules=documents_by, **options)
    return saved(folder, [routed, Normalize()])


def asym(folder: Path) -> Path:
    """As version 4 wrote it."""
    made = towers(folder)
    entries = json.loads((made / "modules.json").read_text())
    entries[0]["type"] = "sentence_transformers.models.Asym"
    (made / "modules.json").write_text(json.dumps(entries))
    (settings,) = made.rglob("router_config.json")
    settings.rename(settings.with_name("config.json"))
    return made


def other_tasks(folder: Path) -> Path:
    made = towers(folder, default_route="document")
    (settings,) = made.rglob("router_config.json")
    content = json.loads(settings.read_text())
    content["structure"] = {f"{name}s": modules for name, modules in content["structure"].items()}
    content["parameters"] |= {"default_route": None, "allow_empty_key": False}
    settings.write_text(json.dumps(content))
    return made


def padded_left(made: Path) -> Path:
    return changed(made, "tokenizer_config.json", padding_side="left")


def padded_left_at_calls(made: Path) -> Path:
    return changed(made, "sentence_bert_config.json", processing_kwargs={"text": {"padding_side": "left"}})


def no_pooling(folder: Path) -> Path:
    made = mean(folder)
    entries = json.loads((made / "modules.json").read_text())
    (made / "modules.json").write_text(json.dumps(entries[:1]))
    return made


def half(folder: Path) -> Path:
    made = mean(folder)
    AutoModel.from_pretrained(made, dtype=torch.bfloat16).save_pretrained(made)
    return made


def renamed_settings(folder: Path) -> Path:
    """As version 0 wrote it for RoBERTa; with the names of arguments of version 3."""
    made = mean(folder)
    (made / "sentence_bert_config.json").unlink()
    arguments = {"model_args": {"attn_implementation": "eager"}, "tokenizer_args": {"model_max_length": 9}}
    return changed(made, "sentence_roberta_config.json", max_seq_length=20, do_lower_case=False, **arguments)


def pickled(folder: Path) -> Path:
    made = mean(folder)
    torch.save(load_file(made / "model.safetensors"), made / "pytorch_model.bin")
    (made / "model.safetensors").unlink()
    return made


def exported(folder: Path) -> Path:
    made = mean(folder)
    (made / "onnx").mkdir()
    shutil.move(made / "model.safetensors", made / "onnx" / "model.onnx")
    return made


def adapters(folder: Path, whole: bool = False, config: bool = False) -> Path:
    """transformers would read the model that they name, whatever else is there."""
    made = mean(folder)
    if not whole:
        (made / "model.safetensors").rename(made / "adapter_model.safetensors")
    if not config:
        (made / "config.json").unlink()
    return changed(made, "adapter_config.json", peft_type="LORA", base_model_name_or_path="no/model")


def own_code(folder: Path) -> Path:
    return changed(mean(folder), "config.json", auto_map={"AutoModel": "own.Model"})


def large_tokenizer(made: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(made)
    tokenizer.add_tokens([f"w{n}" for n in range(9)])
    tokenizer.save_pretrained(made)
    return made


def small_tokenizer(folder: Path) -> Path:
    """More rows than pieces, as models are padded."""
    source = Path(bert(folder / "bert"))
    torch.manual_seed(1)
    BertModel(BertConfig.from_pretrained(source, vocab_size=64)).save_pretrained(source)
    return saved(folder, [Transformer(str(source), max_seq_length=24), Pooling(WIDTH)])


def large_static(folder: Path) -> Path:
    made = saved(folder, static(folder / "bert"))
    (file,) = made.rglob("model.safetensors")
    save_file({"embedding.weight": load_file(file)["embedding.weight"][:-9].contiguous()}, file)
    return made


def inference_free(folder: Path) -> Path:
    masked = Transformer(str(tiny_masked(folder / "mlm")), transformer_task="fill-mask", max_seq_length=24)
    tokenizer = AutoTokenizer.from_pretrained(folder / "mlm")
    torch.manual_seed(7)
    idf = SparseStaticEmbedding(tokenizer=tokenizer, weight=torch.rand(len(tokenizer)), frozen=True)
    routed = Router.for_query_document(query_modules=[idf], document_modules=[masked, SpladePooling("max")])
    return saved(folder, [routed], SparseEncoder, similarity_fn_name="dot")


def sparse_code(folder: Path) -> Path:
    torch.manual_seed(8)
    return saved(folder, [*pooled(folder / "bert"), SparseAutoEncoder(WIDTH, 32, 8)], SparseEncoder)


def with_pieces(folder: Path, *pieces: str) -> Path:
    """A BERT with further pieces in its vocabulary."""
    source = Path(bert(folder))
    vocabulary = [*(source / "vocab.txt").read_text().split(), *pieces]
    (source / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    BertTokenizerFast(str(source / "vocab.txt")).save_pretrained(source)
    torch.manual_seed(1)
    BertModel(BertConfig.from_pretrained(source, vocab_size=len(vocabulary))).save_pretrained(source)
    return source


def stanford(folder: Path) -> Path:
    """As the code of ColBERTv2 wrote it: the projection lies among the weights of the BERT."""
    made = with_pieces(folder / "bert", "[unused0]", "[unused1]")
    weights = {f"bert.{name}": weight for name, weight in load_file(made / "model.safetensors").items()}
    save_file({**weights, "linear.weight": torch.randn(8, WIDTH)}, made / "model.safetensors")
    sizes = {"query_maxlen": 12, "doc_maxlen": 20, "mask_punctuation": True, "attend_to_mask_tokens": False}
    (made / "artifact.metadata").write_text(json.dumps(sizes))
    return changed(made, "config.json", architectures=["HF_ColBERT"])


def pylate(folder: Path, **settings: Any) -> Path:
    """As version 1 of PyLate wrote it: a transformer and a projection, all else by settings."""
    source = with_pieces(folder / "bert", "[X]", "[Y]")
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.add_tokens(["[Q] ", "[D] "])
    network = AutoModel.from_pretrained(source)
    network.resize_token_embeddings(len(tokenizer))
    for part in (network, tokenizer):
        part.save_pretrained(source)
    projection = Dense(WIDTH, 8, bias=False, activation_function=torch.nn.Identity())
    made = saved(folder, [Transformer(str(source), max_seq_length=20), projection])
    (made / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": false}')
    entries = json.loads((made / "modules.json").read_text())
    entries[1]["type"] = "pylate.models.Dense.Dense"
    (made / "modules.json").write_text(json.dumps(entries))
    names = ("in_features", "out_features", "bias", "activation_function")
    file = made / entries[1]["path"] / "config.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({name: content[name] for name in names}))
    told = {
        "query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 12, "document_length": 20,
        "attend_to_expansion_tokens": False, "skiplist_words": list(".?"), "model_type": "ColBERT",
    }  # fmt: skip
    (made / "config_sentence_transformers.json").unlink()
    return changed(made, "config_sentence_transformers.json", **told, **settings)


def expanded(folder: Path, **how: Any) -> Path:
    return tiny_colbert(folder, query_expansion={"strategy": "fixed", "attend": True, "length": 12, **how})


def tokens_pooled(folder: Path, **how: Any) -> Path:
    model = MultiVectorEncoder(str(tiny_colbert(folder)), device="cpu")
    model.append(HierarchicalTokenPooling(2, **how))
    model.save(str(folder / "model"), create_model_card=False)
    return folder / "model"


def pairs_with_prompts(folder: Path, **named: str) -> Path:
    prompts = {"query": "is the otter ", "find": "the fox "}
    made = cross_encoder(folder / "model")
    return changed(made, "config_sentence_transformers.json", prompts=prompts, **named)


def numbered_pairs(folder: Path) -> Path:
    made = cross_encoder(folder / "model")
    (made / "0_Transformer").mkdir()
    for file in [file for file in made.iterdir() if file.is_file()]:
        if file.name not in ("modules.json", "config_sentence_transformers.json"):
            shutil.move(file, made / "0_Transformer" / file.name)
    first = {"idx": 0, "name": "0", "path": "0_Transformer"}
    first["type"] = "sentence_transformers.base.modules.Transformer"
    (made / "modules.json").write_text(json.dumps([first]))
    return made


def modular_pairs(folder: Path, bias: float = 3.0) -> Path:
    torch.manual_seed(9)
    head = Dense(
        WIDTH, 1, activation_function=torch.nn.Identity(), module_input_name="sentence_embedding",
        module_output_name="scores",
    )  # fmt: skip
    torch.nn.init.constant_(head.linear.bias, bias)
    return saved(folder, [*pooled(folder / "bert"), head], CrossEncoder)


QUERY_PROMPT = {"query": "is the otter ", "document": "the "}
Make = Callable[[Path], Path]
"""Makes the folder of a layout."""
LAYOUTS: dict[str, dict[str, Make]] = {
    "dense": {
        "transformer, mean pooling": mean,
        "`similarity_fn_name` dot": lambda f: mean(f, similarity_fn_name="dot"),
        "`similarity_fn_name` euclidean": lambda f: mean(f, similarity_fn_name="euclidean"),
        "`similarity_fn_name` manhattan": lambda f: mean(f, similarity_fn_name="manhattan"),
        "no similarity named (version 2): the cosine": unnamed,
        "plain encoder, no `modules.json`: the cosine": lambda f: Path(bert(f / "bert")),
        "plain causal model: its last token": causal,
        "encoder of a T5": encoder_of_t5,
        "transformer in `0_Transformer` (version 0)": numbered,
        "settings in `sentence_roberta_config.json`, with `model_args`, `tokenizer_args`": renamed_settings,
        **{
            f"pooling {mode}": lambda f, mode=mode: saved(f, pooled(f / "bert", mode=mode))  # type: ignore[misc]
            for mode in ("cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
        },
        "pooling mean and max": lambda f: saved(f, pooled(f / "bert", mode=("mean", "max"))),
        "pooling over weighted layers": layers_weighed,
        "prompts of queries and documents": lambda f: with_prompts(f, QUERY_PROMPT),
        "prompts that pooling leaves out (`include_prompt`)": lambda f: with_prompts(f, QUERY_PROMPT, True),
        "a prompt named passage (not read: version 6 wants document)": lambda f: with_prompts(
            f, {"passage": "the "}
        ),
        "`default_prompt_name` (not read: version 6 wants query and document)": lambda f: with_prompts(
            f, {"own": "is "}, default_prompt_name="own"
        ),
        "`max_seq_length` 7: longer texts are cut": lambda f: saved(f, pooled(f / "bert", max_seq_length=7)),
        "`do_lower_case`": cased,
        "`do_lower_case`, a tokenizer that does so, too": lambda f: cased(f, by_tokenizer=True),
        "`truncate_dim`": lambda f: mean(f, truncate_dim=5),
        **{
            f"pooling {mode}, padding on the left": lambda f, mode=mode: padded_left(  # type: ignore[misc]
                saved(f, pooled(f / "bert", mode=mode))
            )
            for mode in ("cls", "mean", "lasttoken")
        },
        "padding on the left by `processing_kwargs`": lambda f: padded_left_at_calls(mean(f)),
        "no pooling": no_pooling,
        "weights in bfloat16 (computed in float32)": half,
        "Normalize": lambda f: saved(f, pooled(f / "bert", Normalize()), similarity_fn_name="dot"),
        "Dense, LayerNorm, Dropout": lambda f: saved(
            f, pooled(f / "bert", Dense(WIDTH, 8), LayerNorm(8), Dropout())
        ),
        "static embeddings": lambda f: saved(f, static(f / "bert")),
        "static embeddings as model2vec saves them": model2vec,
        "word embeddings": words,
        "word embeddings, frozen": lambda f: words(f, trained=False),
        "word embeddings, word weights": lambda f: words(f, WordWeights(WORDS, {"calm": 3.0})),
        "word embeddings, LSTM": lambda f: words(f, LSTM(WIDTH, 8)),
        "word embeddings, CNN": lambda f: words(f, CNN(WIDTH, 4), width=12),
        "bag of words": lambda f: saved(f, [BoW(WORDS, {"calm": 3.0})]),
        "Router: two towers": towers,
        "Router: two towers of other lengths": lambda f: towers(f, longest=12),
        "Router: static queries": lambda f: towers(f, static(f / "static")),
        "Router as `Asym` (version 4)": asym,
        "Router without a route for queries": other_tasks,
        "more rows than pieces": small_tokenizer,
        "tokenizer with more pieces than rows": lambda f: large_tokenizer(mean(f)),
        "static embeddings, tokenizer with more pieces than rows": large_static,
        "weights as a pickle": pickled,
        "weights for ONNX alone": exported,
        "adapters (LoRA) alone": adapters,
        "adapters (LoRA) beside the config of their model": lambda f: adapters(f, config=True),
        "adapters (LoRA) beside a whole model": lambda f: adapters(f, whole=True, config=True),
        "own code": own_code,
        "attention by a kernel of the hub": lambda f: changed(
            mean(f), "config.json", attn_implementation="some/kernel"
        ),
    },
    "sparse": {
        "SPLADE": tiny_splade,
        "SPLADE by the cosine": lambda f: tiny_splade(f, similarity_fn_name="cosine"),
        "SPLADE by a distance": lambda f: tiny_splade(f, similarity_fn_name="euclidean"),
        "SPLADE, `max_active_dims`": lambda f: tiny_splade(f, max_active_dims=6),
        "SPLADE without a model for queries (Router)": inference_free,
        "SPLADE, tokenizer with more pieces than rows": lambda f: large_tokenizer(tiny_splade(f)),
        "SPLADE, padding on the left": lambda f: padded_left(tiny_splade(f)),
        "sparse code of a dense vector": sparse_code,
    },
    "multi-vector": {
        "ColBERT": tiny_colbert,
        "ColBERT by the mean": lambda f: tiny_colbert(f, "meanmaxsim"),
        "ColBERT, `query_length`, `document_length`": lambda f: tiny_colbert(
            f, query_length=9, document_length=12
        ),
        "ColBERT, padding on the left": lambda f: padded_left(tiny_colbert(f)),
        "ColBERT, query expansion": expanded,
        "ColBERT, query expansion, padding on the left": lambda f: padded_left(expanded(f)),
        "ColBERT, query expansion without attention": lambda f: expanded(f, attend=False),
        "ColBERT, query expansion of short queries alone (`min`)": lambda f: expanded(f, strategy="min"),
        "ColBERT, query expansion by another token": lambda f: expanded(f, token="[PAD]"),
        "ColBERT, token pooling": tokens_pooled,
        "ColBERT, token pooling of queries, too": lambda f: tokens_pooled(f, tasks=["query", "document"]),
        "ColBERT as Stanford's code saves it": stanford,
        "ColBERT as PyLate saves it": pylate,
        "ColBERT as PyLate saves it, without query expansion": lambda f: pylate(f, do_query_expansion=False),
        "ColBERT, tokenizer with more pieces than rows": lambda f: large_tokenizer(tiny_colbert(f)),
    },
    "rescored": {
        "cross-encoder": lambda f: cross_encoder(f / "model"),
        "cross-encoder in `0_Transformer`": numbered_pairs,
        "cross-encoder, `default_prompt_name`": lambda f: pairs_with_prompts(f, default_prompt_name="find"),
        "cross-encoder, prompts of which none is the default (not read)": pairs_with_prompts,
        "cross-encoder, padding on the left": lambda f: padded_left(cross_encoder(f / "model")),
        "cross-encoder of a transformer, pooling and Dense": modular_pairs,
        "causal cross-encoder with learned positions": causal_reranker,
        "causal cross-encoder with a chat template": lambda f: causal_reranker(f, template=CHAT),
        "plain classifier with one label": lambda f: plain_classifier(f / "model"),
        "classifier with several labels": lambda f: cross_encoder(f / "model", labels=3),
        "cross-encoder, tokenizer with more pieces than rows": lambda f: large_tokenizer(
            cross_encoder(f / "model")
        ),
    },
}
"""By the kind of their retriever."""
NAMES = {name: kind for kind, layouts in LAYOUTS.items() for name in layouts}
BESIDE: dict[str, Make] = {
    "`do_lower_case`": lambda f: cased(f, lower=False),
    "plain encoder, no `modules.json`: the cosine": lambda f: saved(f, pooled(f / "bert", max_seq_length=64)),
    "pooling cls, padding on the left": LAYOUTS["dense"]["pooling cls"],
    "pooling lasttoken, padding on the left": LAYOUTS["dense"]["pooling lasttoken"],
    "word embeddings, frozen": words,
    "Router as `Asym` (version 4)": towers,
    "static embeddings as model2vec saves them": LAYOUTS["dense"]["static embeddings"],
    "more rows than pieces": LAYOUTS["dense"]["transformer, mean pooling"],
    "ColBERT, query expansion without attention": expanded,
    "ColBERT, query expansion of short queries alone (`min`)": expanded,
    "ColBERT, query expansion by another token": expanded,
    "ColBERT, token pooling of queries, too": tokens_pooled,
    "ColBERT as PyLate saves it, without query expansion": pylate,
    "cross-encoder of a transformer, pooling and Dense": lambda f: modular_pairs(f, 0.0),
    "causal cross-encoder with learned positions": lambda f: causal_reranker(f, 12, 9),
    "causal cross-encoder with a chat template": causal_reranker,
}
"""The layout without the setting that a row names, where it is not the first one of its kind."""
SAME = {
    "no similarity named (version 2): the cosine", "plain encoder, no `modules.json`: the cosine",
    "transformer in `0_Transformer` (version 0)", "pooling mean_sqrt_len_tokens",
    "a prompt named passage (not read: version 6 wants document)",
    "`default_prompt_name` (not read: version 6 wants query and document)",
    "`do_lower_case`, a tokenizer that does so, too", "pooling cls, padding on the left",
    "pooling mean, padding on the left", "pooling lasttoken, padding on the left",
    "padding on the left by `processing_kwargs`", "Normalize", "word embeddings, frozen",
    "Router as `Asym` (version 4)", "SPLADE, padding on the left", "ColBERT, padding on the left",
    "cross-encoder in `0_Transformer`", "cross-encoder, prompts of which none is the default (not read)",
    "cross-encoder, padding on the left", "plain classifier with one label",
}  # fmt: skip
"""Layouts that have the scores of the layout beside them."""
LIKE_OTHERS = {
    "`similarity_fn_name` euclidean", "`similarity_fn_name` manhattan", "pooling max", "pooling weightedmean",
    "pooling mean_sqrt_len_tokens", "prompts of queries and documents", "static embeddings",
    "word embeddings, frozen", "Router: two towers of other lengths",
    "SPLADE by the cosine", "ColBERT by the mean", "ColBERT, query expansion by another token",
    "ColBERT, token pooling", "ColBERT as PyLate saves it",
    "pooling mean and max", "pooling mean, padding on the left", "pooling lasttoken, padding on the left",
    "`do_lower_case`, a tokenizer that does so, too", "word embeddings, word weights", "word embeddings, CNN",
    "SPLADE, `max_active_dims`", "SPLADE, tokenizer with more pieces than rows",
    "ColBERT, query expansion without attention", "ColBERT, token pooling of queries, too",
    "ColBERT, query expansion of short queries alone (`min`)",
    "ColBERT as PyLate saves it, without query expansion", "ColBERT, tokenizer with more pieces than rows",
    "cross-encoder, tokenizer with more pieces than rows",
    "static embeddings, tokenizer with more pieces than rows", "Router as `Asym` (version 4)",
    "attention by a kernel of the hub",
}  # fmt: skip
"""Layouts that differ from another one in a value alone."""
KINDS: dict[str, tuple[type[EncodedRetriever], Any]] = {
    "dense": (DenseRetriever, SentenceTransformer), "sparse": (SparseRetriever, SparseEncoder),
    "multi-vector": (MultiVectorRetriever, MultiVectorEncoder),
}  # fmt: skip


@cache
def expected(kind: str, folder: Path) -> np.ndarray:
    """``[queries, passages]`` scores of the library, one text at a time, in float32."""
    if kind == "rescored":
        pairs = CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())
        rows = [pairs.predict([(query, text) for text in TEXTS], batch_size=1) for query in QUERIES]
        return np.stack(rows)
    model = KINDS[kind][1](str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    vectors = model.encode_query(QUERIES, batch_size=1), model.encode_document(TEXTS, batch_size=1)
    scores: np.ndarray = model.similarity(*vectors).cpu().numpy()
    return scores


@cache
def first_of(kind: str) -> np.ndarray:
    """The scores of the first layout of a kind, which others stand beside."""
    with TemporaryDirectory() as place:
        return expected(kind, next(iter(LAYOUTS[kind].values()))(Path(place)))


def check_scores(kind: str, folder: Path, place: Path) -> None:
    """Search as the library ranks, from a folder that was written and opened again."""
    if kind == "rescored":
        found = PairScorer.load(str(folder), "cpu").logits([(q, text) for q in QUERIES for text in TEXTS])
        truth = expected(kind, folder)
        assert found.reshape(truth.shape) == pytest.approx(truth, abs=1e-5)
        return
    CORPUS.write(place / "corpus.jsonl")
    how = Building(str(place / "retriever"), kind, device="cpu")
    build(str(folder), str(place / "corpus.jsonl"), how)
    opened = load_retriever(place / "retriever", Opening("cpu"))
    opened.truncate_queries = True
    check_ranking(opened, expected(kind, folder))


def check_ranking(retriever: EncodedRetriever, truth: np.ndarray) -> None:
    assert np.ptp(truth, axis=1).min() > 1e-3  # passages differ
    for row, hits in zip(truth, retriever.retrieve(QUERIES, len(TEXTS)), strict=True):
        scores = {int(hit.id): hit.score for hit in hits}
        every = [scores.get(n, 0.0) for n in range(len(TEXTS))]  # a sparse retriever finds no score of 0
        assert every == pytest.approx(row.tolist(), rel=1e-5, abs=1e-5)
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        assert len(hits) == len(TEXTS) or retriever.kind == "sparse"


def reason(error: ConfigError, folder: Path) -> str:
    """Why a model is refused, without its place, its numbers and the remedy."""
    text = re.sub(r"^cannot load .*? from '.*?': ", "", str(error)).replace(f"{folder}/", "")
    text = re.sub(r"\b\d+\b", "N", text)
    return "refused: " + re.sub(r"(?<=[\w)])[:;] .*|\. [A-Z].*|\.$", "", text, flags=re.DOTALL)


def tried(name: str, place: Path) -> str:
    """Whether a layout is searched and trained as the library does, in batches, or why not."""
    kind = NAMES[name]
    torch.manual_seed(0)  # its weights are random
    beside = expected(kind, BESIDE[name](place / "beside")) if name in BESIDE else first_of(kind)
    torch.manual_seed(0)
    folder = LAYOUTS[kind][name](place)
    try:
        check_scores(kind, folder, place)
        if name != next(iter(LAYOUTS[kind])):
            assert (np.abs(expected(kind, folder) - beside).max() < 1e-4) == (name in SAME)
    except ConfigError as error:
        return reason(error, folder)
    if kind != "dense":
        return WORKS[kind]
    options = BiEncoderOptions(max_steps=2, batch_size=4, learning_rate=1e-2, warmup=0.0, device="cpu")
    before = BiEncoderModel.load(str(folder), device="cpu")
    try:
        data, output = str(write_small(place / "data")), place / "trained"
        training = BiEncoderTraining(
            data=data, output=str(output), source=str(folder), dev_split=None, fit=options
        )
        run_biencoder(training)
    except ConfigError as error:
        return f"bi-encoder: searched; training {reason(error, folder)}"
    with torch.no_grad():  # as training sees it, but each text alone: some layouts also see what pads it
        roles: Any = ((QUERIES, "query"), (TEXTS, "passage"))
        rows = [[before.model(before.features([text], role)) for text in texts] for texts, role in roles]
    parts = [torch.cat([row["sentence_embedding"] for row in some]) for some in rows]
    assert before.scores(*parts).numpy() == pytest.approx(expected(kind, folder), rel=1e-5, abs=1e-5)
    after = BiEncoderModel.load(str(output / "model"), device="cpu")
    assert (after.similarity, after.max_tokens) == (before.similarity, before.max_tokens)
    assert read(after) == read(before)
    assert np.abs(after.encode(QUERIES, "query") - before.encode(QUERIES, "query")).max() > 1e-4
    again = DenseRetriever.assemble(after, CORPUS, truncate_queries=True)
    check_ranking(again, expected("dense", output / "model"))
    return WORKS["dense"]


def read(model: BiEncoderModel) -> tuple[int, dict[str, str]]:
    return model.limit("passage"), model.model.prompts


def table() -> dict[str, str]:
    """Layout -> what comes of it."""
    results: dict[str, str] = json.loads(TABLE.read_text(encoding="utf-8"))
    return results


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LIKE_OTHERS)) for name in NAMES]
)
def test_a_layout_is_read_as_the_library_reads_it(name: str, tmp_path: Path) -> None:
    result = tried(name, tmp_path)
    if os.environ.get("RENEW_TABLE"):
        renewed = json.dumps({**table(), name: result}, indent=0, ensure_ascii=False)
        TABLE.write_text(f"{renewed}\n", encoding="utf-8")
    assert table().get(name) == result, "the table says something else: run this file with RENEW_TABLE=1"


def test_the_table_holds_no_other_layout() -> None:
    assert table().keys() == NAMES.keys()
    assert NAMES.keys() >= LIKE_OTHERS | SAME | BESIDE.keys()
