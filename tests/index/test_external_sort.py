"""The build from a stream, held against the build in memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from fixture_types import Patch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from grls.index.array import ArrayIndex
from grls.index.build import index_sequences, index_tokens
from grls.index.rows import ROW_BYTES
from grls.index.storage import load_index, save_index, save_stream

END = 1
BIG = 70_000  # needs 32-bit tokens

token = st.sampled_from([0, 2, 3, 4])
wide = st.sampled_from([0, 3, BIG, 2**32 - 1])
body = st.one_of(
    st.lists(token, max_size=7),
    st.lists(wide, max_size=5),
    st.lists(st.just(3), max_size=11),  # prefixes of each other
    st.sampled_from([(), (4, 4, 4, 4, 4), (4, 4, 4, 4, 4, 4)]),  # many equal rows
)
corpora = st.lists(body.map(lambda ids: np.array([*ids, END])), max_size=40)


def pieces(corpus, size):
    """The corpus as a stream, ``size`` passages at a time; an empty piece comes first."""
    yield np.empty(0, np.int64), np.zeros(1, np.int64)
    for low in range(0, len(corpus), size):
        some = corpus[low : low + size]
        yield np.concatenate(some), np.concatenate(([0], np.cumsum([len(s) for s in some])))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def both(corpus, size, memory, form, folder: Path) -> None:
    save_index(index_sequences(corpus, END, form=form), folder / "memory")
    save_stream(pieces(corpus, size), folder / "stream", END, memory, form)
    expected, found = contents(folder / "memory"), contents(folder / "stream")
    assert found.keys() == expected.keys()
    for name, content in expected.items():
        assert found[name] == content, name


equal = [np.array([3, 4, 5, 6, 7, END])] * 30
titles = [
    np.array([3, 4, 5, 6, 7, 8, n, 3 + n % 3, END]) for n in range(20, 60)
]  # longer prefixes than a key


@pytest.mark.parametrize("form", ["whole", "prefixes"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(corpus=corpora, size=st.integers(1, 50), memory=st.integers(1, 30 * ROW_BYTES))
@example(corpus=[], size=1, memory=1)
@example(corpus=[np.array([END])], size=1, memory=1)
@example(corpus=equal, size=4, memory=5 * ROW_BYTES)
@example(corpus=[*titles, *equal, *titles[::-1]], size=7, memory=6 * ROW_BYTES)
def test_the_files_are_those_of_the_build_in_memory(corpus, size, memory, form, tmp_path: Path) -> None:
    both(corpus, size, memory, form, tmp_path)


@pytest.mark.parametrize("form", ["whole", "prefixes"])
@pytest.mark.parametrize("longest", [50, 3_000])
def test_pieces_within_the_last_steps_do_not_show(form, longest, tmp_path: Path, monkeypatch: Patch) -> None:
    """The steps over all rows go some rows at a time; rows of 3,000 tokens have plain offsets."""
    monkeypatch.setattr("grls.index.external_sort._AT_ONCE", 64)
    rng = np.random.default_rng(0)
    corpus = [np.append(rng.integers(2, 9, n), END) for n in rng.integers(0, 12, 512)]
    corpus[7] = np.append(rng.integers(2, 9, longest), END)
    both(corpus, 100, 90 * ROW_BYTES, form, tmp_path)
    rows = load_index(tmp_path / "stream").rows
    assert bool(len(rows.offsets.within)) == (longest == 50 or form == "prefixes")


def test_memory_stays_within_the_bound(tmp_path: Path) -> None:
    """Twelve megabytes of tokens are sorted in four, and what is held beside is small."""
    rng = np.random.default_rng(0)

    def stream():
        for _ in range(50):
            tokens = rng.integers(2, 30_000, (2_000, 60)).astype(np.uint16)
            tokens[:, -1] = END
            yield tokens.ravel(), np.arange(0, tokens.size + 1, 60)

    tracemalloc.start()
    try:
        save_stream(stream(), tmp_path / "index", END, memory=4 * 2**20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    index = load_index(tmp_path / "index")
    assert index.rows.tokens.nbytes == 12_000_000
    # 4 MiB for sorting; the nodes of 100,000 rows: 6 bytes a row, and about 100 a row looked at together.
    assert peak < 4 * 2**20 + 16 * 10**6


def test_a_stream_that_breaks_leaves_nothing_and_keeps_the_earlier_index(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    save_index(index_sequences([np.array([3, END])], END), folder)
    before = contents(folder)

    def broken():
        yield from pieces(titles, 5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_stream(broken(), folder, END, memory=2_000)
    assert [file.name for file in tmp_path.iterdir()] == ["index"]
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("sequence", "problem"), [([3, 4], "must end in"), ([END, 3, END], "inside a sequence")]
)
def test_a_bad_sequence_is_refused(sequence: list[int], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=problem):
        save_stream(pieces([*titles, np.array(sequence)], 3), tmp_path / "index", END, memory=2_000)
    assert list(tmp_path.iterdir()) == []


def test_an_index_is_at_most_16_bytes_a_passage_beside_the_tokens() -> None:
    from benchmarks.streams import passages

    some = list(passages(70_000, 80))  # so many that row numbers need four bytes
    index = index_sequences([t[o[n] : o[n + 1]] for t, o in some for n in range(len(o) - 1)], END)
    assert isinstance(index, ArrayIndex)
    rows = index.rows
    arrays = [*index.arrays().values(), rows.offsets.blocks, rows.offsets.within]
    assert sum(array.nbytes for array in (*arrays, rows.members, rows.member_offsets)) <= 16 * len(index)


@pytest.mark.parametrize("rows", [2**15 - 1, 2**15, 2**16 - 1, 2**16])
def test_numbers_of_every_width_lead_to_the_same_passages(rows: int, tmp_path: Path) -> None:
    """The last row's number, and those of nodes and edges, just fit their type or just need a wider one."""
    digits = np.arange(rows)[:, None] // 41 ** np.arange(3)[::-1] % 41 + END + 1
    sequences = np.concatenate((digits, np.full((rows, 1), END)), axis=1)[::-1]  # passage 0 has the last row
    tokens, offsets = sequences.ravel().astype(np.uint16), np.arange(rows + 1) * 4
    index = index_tokens(tokens, offsets, END)
    assert isinstance(index, ArrayIndex)
    found = [p for p in (0, 1, rows // 2, rows - 2, rows - 1) if _written(index, sequences[p]) == (p,)]
    assert found == [0, 1, rows // 2, rows - 2, rows - 1]
    assert index.arrays()["edge_nodes"].itemsize == (2 if rows < 2**15 else 4)
    assert index.rows.members.itemsize == (2 if rows < 2**16 else 4)
    save_index(index, tmp_path / "memory")
    save_stream(iter([(tokens, offsets)]), tmp_path / "stream", END, memory=1 << 22)
    assert contents(tmp_path / "memory") == contents(tmp_path / "stream")


def _written(index: ArrayIndex, sequence: np.ndarray) -> tuple[int, ...]:
    """The passages that are these tokens, and on the way there whether each may follow."""
    state = index.start()
    for token in sequence:
        allowed = index.allowed(np.array([state]))
        state = int(allowed.states[list(allowed.tokens).index(token)])
    return tuple(index.passages(state).tolist())
