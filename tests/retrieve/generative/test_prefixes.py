"""An index of unique prefixes: the same retrieval where early stop is exact, a clear refusal elsewhere."""

from pathlib import Path

import numpy as np
import pytest
from failing import fails
from small_data import queries, small_retriever, write_jsonl, write_small

from grls.cli import main
from grls.data.types import Passage
from grls.decode import PrefixAllowedTokens
from grls.decode.score_all import score_all
from grls.errors import ConfigError
from grls.index import UnionIndex, build_index, index_sequences, load_index, save_index
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever

END = 1


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same model over the same corpus, in both forms."""
    data = write_small(tmp_path_factory.mktemp("prefixes") / "data")
    whole = small_retriever(data)
    index = build_index(whole.corpus, whole.codec, form="prefixes")
    made = {
        "whole": whole,
        "prefixes": GenerativeRetriever(whole.model, whole.codec, whole.corpus, index),
    }
    for form, retriever in made.items():
        retriever.save_pretrained(data.parent / form)
    return {form: data.parent / form for form in made} | {"data": data}


def opened(folders: dict[str, Path], form: str, **options: object) -> GenerativeRetriever:
    return GenerativeRetriever.from_pretrained(folders[form], "cpu", options=SearchOptions(**options))


@pytest.mark.parametrize("options", [{}, {"mode": "full", "early_stop": True}])
def test_retrieval_finds_the_same(folders: dict[str, Path], options: dict[str, object]) -> None:
    whole, prefixes = (opened(folders, form, **options) for form in ("whole", "prefixes"))
    assert prefixes.index.rows.form == "prefixes"
    assert len(prefixes.index.rows.tokens) < len(whole.index.rows.tokens)
    assert prefixes.retrieve(queries(), 5) == whole.retrieve(queries(), 5)


def test_evidence_is_whole_passages(folders: dict[str, Path]) -> None:
    whole, prefixes = (opened(folders, form) for form in ("whole", "prefixes"))
    for passage in range(len(whole.index)):
        np.testing.assert_array_equal(prefixes.index.tokens(passage), whole.index.tokens(passage))
    chains = [
        HopsRetriever(r, HopOptions("dynamic", 3)).retrieve_chains(queries()[:4]) for r in (whole, prefixes)
    ]
    assert chains[0] == chains[1]


@pytest.mark.parametrize("merged", [False, True])
def test_filters_and_removals_find_the_same(folders: dict[str, Path], tmp_path: Path, merged: bool) -> None:
    found = {}
    for form in ("whole", "prefixes"):
        retriever = opened(folders, form, beams=12)
        few = ["otter-calm", "lynx-quick", "r1"]
        filtered = retriever.retrieve(queries(), 5, few)
        retriever.remove(["r0", "otter-calm"])
        if merged:
            retriever.merge()
        retriever.save_pretrained(tmp_path / form)
        back = GenerativeRetriever.from_pretrained(tmp_path / form, "cpu", options=retriever.options)
        hops = [
            HopsRetriever(some, HopOptions("dynamic", 3)).retrieve_chains(queries()[:4], allow)
            for some in (retriever, back)
            for allow in (None, few[1:])
        ]
        left = [some.retrieve(queries(), 5) for some in (retriever, back)]
        assert back.index.rows.form == form
        assert (hops[:2], left[0]) == (hops[2:], left[1])
        found[form] = filtered, hops, left
    assert found["whole"] == found["prefixes"]


def test_passages_cannot_be_added(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    retriever = opened(folders, "prefixes")
    before = retriever.retrieve(queries(), 3)
    with pytest.raises(ConfigError, match=r"adding passages needs whole.*--index.form whole`\.$"):
        retriever.add([Passage("new", "the otter is proud .")])
    assert retriever.retrieve(queries(), 3) == before
    write_jsonl(tmp_path / "new.jsonl", [{"_id": "new", "text": "the otter is proud ."}])
    given = ("index", "update", f"{folders['prefixes']}", f"--add={tmp_path / 'new.jsonl'}")
    assert "--index.form whole" in fails(capsys, *given, f"--output={tmp_path / 'r'}")
    assert not (tmp_path / "r").exists()


def test_an_index_sorted_on_disk_is_changed_as_any_other(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arrays are mapped from files that go with it."""
    monkeypatch.setattr("grls.index.build.SMALLEST_MEMORY", 1)
    plain = opened(folders, "whole", beams=12)
    index = build_index(plain.corpus, plain.codec, memory=1000)
    assert index.files is not None
    other = GenerativeRetriever(plain.model, plain.codec, plain.corpus, index, plain.options)
    for retriever in (plain, other):
        retriever.add([Passage("new", "the otter is proud .")])
        retriever.remove(["r0"])
    expected = plain.retrieve(queries(), 5)
    assert other.retrieve(queries(), 5) == expected
    other.save_pretrained(tmp_path / "r")
    back = GenerativeRetriever.from_pretrained(tmp_path / "r", "cpu", options=plain.options)
    assert isinstance(back.index, UnionIndex)
    assert back.retrieve(queries(), 5) == expected
    merged = []
    for retriever in (plain, back):
        retriever.merge()
        retriever.save_pretrained(tmp_path / "merged")
        merged.append({f.name: f.read_bytes() for f in (tmp_path / "merged" / "index").iterdir()})
    assert merged[0] == merged[1]


def test_what_needs_whole_passages_is_refused(folders: dict[str, Path]) -> None:
    for options in ({"mode": "full"}, {"early_stop": False}):
        retriever = opened(folders, "prefixes", **options)
        for call in (lambda r=retriever: r.retrieve(queries(), 3), lambda r=retriever: r.decoder(3)):
            with pytest.raises(ConfigError, match=r"without early stop needs whole.*--index.form whole"):
                call()
    retriever = opened(folders, "prefixes")
    with pytest.raises(ConfigError, match=r"generate.*--index.form whole"):
        PrefixAllowedTokens(retriever.index, 0)
    generator = retriever.decoder(1).generator
    with pytest.raises(ConfigError, match=r"every passage needs whole.*--index.form whole"):
        score_all(generator, retriever.index, [3])


def test_an_index_by_itself_refuses_what_it_does_not_hold() -> None:
    index = index_sequences([np.array([3, 4, 5, END]), np.array([3, END])], END, form="prefixes")
    assert index.rows.tokens.tolist() == [3, END, 3, 4]
    with pytest.raises(ConfigError, match=r"the token sequence.*--index.form whole"):
        index.tokens(0)
    first = index.allowed(np.array([index.start()]))
    second = index.allowed(first.states)
    assert second.tokens.tolist() == [END, 4]
    ended, cut = second.states
    assert len(index.allowed(np.array([ended])).tokens) == 0
    with pytest.raises(ConfigError, match=r"beyond the unique prefix.*--index.form whole"):
        index.allowed(np.array([cut]))


def test_only_the_array_backend_has_the_form() -> None:
    with pytest.raises(ConfigError, match="needs the backend 'array'"):
        index_sequences([np.array([3, END])], END, "flat", "prefixes")


def test_the_form_is_kept_on_disk(tmp_path: Path) -> None:
    save_index(index_sequences([np.array([3, 4, END])], END, form="prefixes"), tmp_path / "index")
    assert load_index(tmp_path / "index").rows.form == "prefixes"


def test_the_command(
    folders: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = ["index", f"{folders['whole'] / 'model'}", f"--corpus={folders['data']}"]
    assert main([*given, f"--output={tmp_path / 'a'}", "--index.form=prefixes"]) == 0
    assert "tokens of unique prefixes" in capsys.readouterr().out
    # So little memory that the corpus is sorted on disk: the same files.
    monkeypatch.setattr("grls.index.build.SMALLEST_MEMORY", 1)
    assert main([*given, f"--output={tmp_path / 'b'}", "--index.form=prefixes", "--index.memory=1KB"]) == 0
    one, other = (tmp_path / name / "index" for name in "ab")
    assert sorted(f.name for f in one.iterdir()) == sorted(f.name for f in other.iterdir())
    for file in one.iterdir():
        assert file.read_bytes() == (other / file.name).read_bytes(), file.name
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a", "b"]  # nothing of the sort is left
    assert "such as 500MB" in fails(capsys, *given, f"--output={tmp_path / 'c'}", "--index.memory=much")


def test_too_little_memory_is_refused(folders: dict[str, Path]) -> None:
    retriever = opened(folders, "whole")
    with pytest.raises(ConfigError, match="at least 64 MiB"):
        build_index(retriever.corpus, retriever.codec, memory=2**20)
