"""Building a generative retriever's folder, with the settings that training wrote beside the model.

Files beside a model say with which length limits it was trained, which spans it writes and how it rescores.
Options override these files.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from grls.cluster.plan import alone_at_shards
from grls.data.codec import LIMITS, Codec, Limits, limits_of
from grls.data.corpus import Corpus
from grls.data.spans import SPANS, Spans, read_spans
from grls.errors import Option
from grls.index.base import Segment
from grls.index.build import build_index
from grls.index.options import memory_bytes
from grls.index.rows import Rows
from grls.io.files import read_json, scratch_folder
from grls.io.progress import counted
from grls.models.load.build import Pretrained
from grls.models.load.kinds import is_causal
from grls.models.rescore_spec import RESCORE, read_rescore_input
from grls.retrieve.build import Building
from grls.retrieve.generative.folder import index_by_workers
from grls.retrieve.generative.retriever import GenerativeRetriever


def build_generative(model: str, corpus: str, how: Building) -> str:
    """Build a folder; see :func:`grls.retrieve.build.build`."""
    how.refuse_unused("a generator", ("similarity",), f"leave it out, or choose {Option('kind', 'dense')}")
    source = Pretrained(model)
    loaded = source.load()
    passages = Corpus.read(corpus)
    trained, limits = Path(model) / LIMITS, Limits()
    if trained.is_file():
        limits = limits_of(read_json(trained), trained, "train the model again, or remove the file")
    given = {name: value for name, value in asdict(how.limits).items() if value is not None}
    codec = Codec(loaded.tokenizer, limits._replace(**given), is_causal(loaded.model))
    span_words = how.index.span_words
    if span_words is None and (Path(model) / SPANS).is_file():
        span_words = read_spans(read_json(Path(model) / SPANS), Path(model) / SPANS)
    spans = Spans(passages, span_words) if span_words else None
    alone = nullcontext() if how.workers is None else alone_at_shards(how.output)
    with alone, scratch_folder(how.output) as scratch:
        index: Segment
        options, plan = how.index, None
        if how.workers is not None:
            by_workers = options, how.workers, how.output, scratch
            index, plan = index_by_workers(model, spans or passages, codec, *by_workers)
        else:
            memory = memory_bytes(options.memory)
            listed = spans or passages
            index = build_index(listed, codec, options.backend, True, options.form, memory, scratch)
        learned = Path(model) / RESCORE
        rescore_input = read_rescore_input(read_json(learned), learned) if learned.is_file() else None
        retriever = GenerativeRetriever(
            loaded.model,
            codec,
            passages,
            index,
            None,
            source.stages(),
            spans=spans,
            rescore_input=rescore_input,
        )
        retriever.save_pretrained(how.output)
        if plan is not None:
            plan.remove()
    rows = retriever.index.rows
    assert isinstance(rows, Rows)
    tokens, count = len(rows.tokens), len(passages)
    size = sum(file.stat().st_size for file in (Path(how.output) / "index").iterdir())
    written = "" if spans is None else f"{counted(len(spans), 'span')} of {counted(spans.words, 'word')}, "
    return (
        f"{how.output}: {counted(count, 'passage')}, {written}{counted(len(rows), 'distinct sequence')} with "
        f"DONE, {tokens:,} tokens{' of unique prefixes' if options.form == 'prefixes' else ''}, index "
        f"{size / 2**20:.1f} MiB ({size / tokens:.2f} B a token, {size / count:.1f} B a passage)"
    )
