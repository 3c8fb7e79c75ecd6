"""Building a generative retriever's folder, with the settings that training wrote beside the model.

Files beside a model say with which length limits it was trained, which spans it writes and how it rescores.
Options override these files.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from grls.data.codec import LIMITS, Limits, limits_of
from grls.data.corpus import Corpus
from grls.data.spans import SPANS, By, read_spans
from grls.index.options import memory_bytes
from grls.index.rows import Rows
from grls.io.files import read_json, scratch_folder
from grls.models.load.build import Pretrained
from grls.models.rescore_spec import RESCORE, RescoreInput, read_rescore_input
from grls.retrieve.build import Building
from grls.retrieve.generative.earlier import learned_file
from grls.retrieve.generative.retriever import GenerativeRetriever


def build_generative(model: str, corpus: str, how: Building) -> str:
    """Build a folder; see :func:`grls.retrieve.build.build`."""
    source = Pretrained(model)
    loaded = source.load()
    passages = Corpus.read(corpus)
    span_words, span_by = _spans(Path(model), how.index.span_words)
    with scratch_folder(how.output) as scratch:
        retriever = GenerativeRetriever.assemble(
            loaded.model,
            loaded.tokenizer,
            passages,
            _limits(Path(model), how),
            how.index.backend,
            progress=True,
            stages=source.stages(),
            form=how.index.form,
            memory=memory_bytes(how.index.memory),
            scratch=scratch,
            span_words=span_words or None,
            span_by=span_by,
            rescore_input=_rescore_input(Path(model)),
        )
        retriever.save_pretrained(how.output)
    return _made(retriever, how)


def _spans(model: Path, asked: int | None) -> tuple[int | None, By]:
    """Words of a span (0 or None: whole passages), and where spans begin."""
    learned = learned_file(model, SPANS)
    if not learned.is_file() or (cut := read_spans(read_json(learned), learned)) is None:
        return asked, "script"
    return (cut[0] if asked is None else asked), cut[1]


def _rescore_input(model: Path) -> RescoreInput | None:
    file = learned_file(model, RESCORE)
    return read_rescore_input(read_json(file), file) if file.is_file() else None


def _limits(model: Path, how: Building) -> Limits:
    trained, limits = model / LIMITS, Limits()
    if trained.is_file():
        limits = limits_of(read_json(trained), trained, "train the model again, or remove the file")
    given = asdict(how.limits)
    return limits._replace(**{name: value for name, value in given.items() if value is not None})


def _made(retriever: GenerativeRetriever, how: Building) -> str:
    """What was made, in a line."""
    rows = retriever.index.rows
    assert isinstance(rows, Rows)
    tokens, passages, spans = len(rows.tokens), len(retriever.corpus), retriever.spans
    size = sum(file.stat().st_size for file in (Path(how.output) / "index").iterdir())
    written = "" if spans is None else f"{len(spans):,} spans of {spans.words} words, "
    return (
        f"{how.output}: {passages:,} passages, {written}{len(rows):,} distinct sequences with DONE, "
        f"{tokens:,} tokens{' of unique prefixes' if how.index.form == 'prefixes' else ''}, index "
        f"{size / 2**20:.1f} MiB ({size / tokens:.2f} B a token, {size / passages:.1f} B a passage)"
    )
