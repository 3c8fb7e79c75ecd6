"""A folder of every kind that grls writes, small, for the fault harness."""

from pathlib import Path

import numpy as np
from composite_specs import COMPOSITES, write_kinds, write_spec
from encoder_models import tiny_colbert, tiny_splade
from small_data import small_retriever

from grls.data.codec import Limits
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.identifiers.spans import Spans
from grls.index.backends import BACKENDS
from grls.index.build import index_sequences
from grls.index.options import Form
from grls.index.storage import save_index
from grls.retrieve.build import Building
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.multi_vector import MultiVectorRetriever
from grls.retrieve.rescored.retriever import RescoredRetriever
from grls.retrieve.sparse import SparseRetriever
from grls.retrieve.spec import update_spec, write_link

ADDED = [Passage("new-1", "the otter is new ."), Passage("new-2", "the stoat is quick .")]


def write_every_kind(place: Path) -> dict[str, Path]:
    """Name -> retriever folder, of every kind and form. Beside them: ``data``, ``encoder``."""
    folders = write_usual_kinds(place) | _generative(place)
    folders["sparse"], folders["multi-vector"] = _encoded(place)
    write_link(place / "link", place / "fusion")
    folders["link"] = place / "link"
    cross = str(place / "encoder")
    RescoredRetriever.build(
        cross, str(place / "data"), Building(str(place / "embedded"), "auto", device="cpu")
    )
    folders["embedded"] = place / "embedded"
    return folders


def write_usual_kinds(place: Path) -> dict[str, Path]:
    """The folders of :func:`composite_specs.write_kinds` over passages with metadata, and all composites."""
    write_kinds(place, years=True)
    for name, spec in COMPOSITES.items():
        write_spec(place / name, spec["kind"], {key: spec[key] for key in spec if key != "kind"})
    return {name: place / name for name in ("bm25", "dense", "generative", *COMPOSITES)}


def _generative(place: Path) -> dict[str, Path]:
    """Generative folders: stored options, added and removed passages, spans, prefixes, other backends."""
    small = small_retriever(place / "data", beams=20)
    folders = {name: place / name for name in ("stored", "changed", "spans", "prefixes", "marisa", "flat")}
    small.save_pretrained(folders["stored"])
    update_spec(folders["stored"], {"search": {"beams": 7}, "hops": {"steps": "dynamic", "max": 3}})
    parts = (small.model, small.codec.tokenizer, small.corpus, Limits())
    made = {
        "spans": GenerativeRetriever.assemble(*parts, kind=Spans(3)),
        "prefixes": GenerativeRetriever.assemble(*parts, form="prefixes"),
        "marisa": GenerativeRetriever.assemble(*parts, backend="marisa"),
        "flat": GenerativeRetriever.assemble(*parts, backend="flat"),
    }
    for name, retriever in made.items():
        retriever.save_pretrained(folders[name])
    small.add(Corpus.from_passages(ADDED))
    small.remove(["otter-calm"])
    small.save_pretrained(folders["changed"])
    return folders


def _encoded(place: Path) -> tuple[Path, Path]:
    data = str(place / "data")
    sparse, late = place / "sparse", place / "multi-vector"
    cpu = {"kind": "auto", "device": "cpu"}
    SparseRetriever.build(str(tiny_splade(place / "splade-model")), data, Building(str(sparse), **cpu))
    MultiVectorRetriever.build(str(tiny_colbert(place / "late-model")), data, Building(str(late), **cpu))
    return sparse, late


def write_indexes(place: Path) -> dict[str, Path]:
    """Name -> folder of an index alone, of every backend and form."""
    rng = np.random.default_rng(0)
    sequences = [np.append(rng.integers(2, 6, int(rng.integers(1, 9))), 1) for _ in range(60)]
    folders = {}
    forms: tuple[Form, ...] = ("whole", "prefixes")
    for backend in BACKENDS:
        for form in forms if backend == "array" else forms[:1]:
            name = f"index-{backend}-{form}"
            folders[name] = place / name
            save_index(index_sequences(sequences, 1, backend, form), folders[name], "t", "c")
    return folders
