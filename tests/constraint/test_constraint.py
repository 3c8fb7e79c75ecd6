"""Each door for an engine against the dictionary of prefixes, ``generate`` against our decoder."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import engines
import numpy as np
import pytest
import torch
from failing import raises
from models_small import END, PAD, VOCABULARY, small_gpt2, small_llama, small_t5

from grls.constraint import ARGUMENT, VARIABLE, PassageConstraint, open_index
from grls.constraint.layouts import StaticArrays, beam_dictionary, static_arrays
from grls.constraint.transformers import GenerateProcessor
from grls.decode.beam import Decoder
from grls.errors import ConfigError, IndexFormatError, MismatchError
from grls.index.backends import FlatIndex
from grls.index.base import ConstraintIndex
from grls.index.build import index_sequences
from grls.index.ranges import PrefixRanges, write_ranges
from grls.index.storage import save_index
from grls.models.causal.slots import CausalGenerator
from grls.models.seq2seq.slots import Seq2SeqGenerator

WIDTH = 300
Rows = list[list[int]]


def passages(kind: str, count: int = 400) -> Rows:
    """Short ones of few tokens, with a duplicate and a prefix; long ones of many; ids of one length."""
    rng = np.random.default_rng(3)
    if kind == "short":
        rows = [[*rng.integers(2, 9, rng.integers(1, 8)).tolist(), END] for _ in range(count)]
        return [*rows, rows[0], [*rows[1][:1], END]]
    if kind == "long":
        ranks = rng.zipf(1.3, (count, 30)).clip(max=WIDTH - 3) + 1
        return [[*row[: rng.integers(4, 30)].tolist(), END] for row in ranks]
    return [[*row, END] for row in np.unique(rng.integers(2, 20, (count, 4)), axis=0).tolist()]


def draws(rows: Rows, count: int = 10_000) -> list[tuple[int, ...]]:
    """Random prefixes, a tenth of them with another last token."""
    rng = np.random.default_rng(4)
    found = []
    for row in rng.integers(0, len(rows), count).tolist():
        prefix = rows[row][: rng.integers(0, len(rows[row]) + 1)]
        if prefix and rng.random() < 0.1:
            prefix = [*prefix[:-1], int(rng.integers(2, WIDTH))]
        found.append(tuple(prefix))
    return found


@pytest.fixture(scope="module")
def doors() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        engines.install(patch)
        from grls.constraint import sglang, vllm

        yield SimpleNamespace(vllm=vllm.VllmProcessor, sglang=sglang.SglangProcessor)


def open_tokens(logits: torch.Tensor) -> list[list[int]]:
    return [row.isfinite().nonzero()[:, 0].tolist() for row in logits]


def through_generate(folder: Path, prefixes: list[tuple[int, ...]], _: Any) -> list[list[int]]:
    """Prefixes of one length at a time, behind a prompt of three tokens, in no order."""
    processor = GenerateProcessor(folder, END, prompt_length=3)
    allowed: list[Any] = [None] * len(prefixes)
    for length in {len(prefix) for prefix in prefixes}:
        at = [n for n, prefix in enumerate(prefixes) if len(prefix) == length]
        ids = torch.tensor([[5, 5, 5, *prefixes[n]] for n in at])
        for n, tokens in zip(at, open_tokens(processor(ids, torch.zeros(len(at), WIDTH))), strict=True):
            allowed[n] = tokens
    return allowed


def through_vllm(folder: Path, prefixes: list[tuple[int, ...]], doors: Any) -> list[list[int]]:
    processor = doors.vllm(None, None, False)
    params = engines.SamplingParams({ARGUMENT: str(folder)})
    doors.vllm.validate_params(params)
    added = [(row, params, None, list(prefix)) for row, prefix in enumerate(prefixes)]
    processor.update_state(engines.BatchUpdate(len(added), added=added))
    return open_tokens(processor.apply(torch.zeros(len(prefixes), WIDTH)))


def through_sglang(folder: Path, prefixes: list[tuple[int, ...]], doors: Any) -> list[list[int]]:
    params = [{ARGUMENT: str(folder), "__req__": engines.Req([9], list(prefix))} for prefix in prefixes]
    return open_tokens(doors.sglang()(torch.zeros(len(prefixes), WIDTH), params))


@pytest.mark.filterwarnings("ignore:a request wrote tokens")
@pytest.mark.parametrize("kind", ["short", "long", "fixed"])
@pytest.mark.parametrize("door", [through_generate, through_vllm, through_sglang])
def test_a_door_allows_what_the_dictionary_of_prefixes_has(
    door: Callable[..., Any], kind: str, doors: Any, tmp_path: Path
) -> None:
    rows = passages(kind)
    save_index(index_sequences([np.array(row) for row in rows], END), tmp_path / "index")
    naive = index_sequences([np.array(row) for row in rows], END, "flat")
    assert isinstance(naive, FlatIndex)
    prefixes = draws(rows)
    allowed = door(tmp_path / "index", prefixes, doors)
    for prefix, tokens in zip(prefixes, allowed, strict=True):
        assert tokens == (naive.following.get(prefix) or [END]), prefix


@pytest.mark.parametrize("backend", ["array", "marisa", "flat", "ranges"])
def test_every_backend_is_opened_in_its_folder_and_in_that_of_a_retriever(
    backend: str, tmp_path: Path
) -> None:
    rows = [np.array(row) for row in passages("short")]
    index = index_sequences(rows, END, "array" if backend == "ranges" else backend)
    folder = tmp_path / "retriever" / "index"
    folder.mkdir(parents=True)
    if backend == "ranges":
        write_ranges(index, folder, PrefixRanges(3), "", "")
    else:
        save_index(index, folder)
    for place in (folder, folder.parent):
        prefixes = PassageConstraint(place)
        for number in range(0, len(rows), 40):
            same = [n for n, row in enumerate(rows) if row.tolist() == rows[number].tolist()]
            assert prefixes.passages(rows[number].tolist()) == same


def test_the_module_loads_numpy_alone(tmp_path: Path) -> None:
    rows = [np.array(row) for row in passages("short", 30)]
    (tmp_path / "parts").mkdir()
    index = index_sequences(rows, END)
    save_index(index, tmp_path / "whole")
    write_ranges(index, tmp_path / "parts", PrefixRanges(3), "", "")
    heavy = {"torch", "transformers", "pandas", "scipy", "faiss", "pyarrow", "ray", "lightning"}
    program = (
        f"import sys, numpy as np\nheavy = {heavy}\nimport grls.constraint\n"
        "print(sorted(m for m in sys.modules if m.startswith('grls.')))\n"
        "for folder in sys.argv[1:]:\n"
        "    found = grls.constraint.PassageConstraint(folder).allowed([np.array([], dtype=np.int64)], 1)\n"
        "    assert len(found[1]) > 1\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    folders = [str(tmp_path / name) for name in ("whole", "parts")]
    ran = subprocess.run(
        [sys.executable, "-c", program, *folders], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == ["['grls.constraint', 'grls.errors']", "[]"]


class Counted:
    """An index that counts what it is asked."""

    def __init__(self, index: Any):
        self._index, self.states = index, 0
        self.rows, self.start, self.passages = index.rows, index.start, index.passages

    def allowed(self, states: Any) -> Any:
        self.states += len(states)
        return self._index.allowed(states)


def test_beams_may_be_reordered_and_rows_may_leave() -> None:
    """Every step asks the index twice for each row at most: for the last token, and for the next."""
    rows = passages("long")
    index = Counted(index_sequences([np.array(row) for row in rows], END))
    processor = GenerateProcessor(index, PAD, 2)  # type: ignore[arg-type]
    rng = np.random.default_rng(5)
    ids = torch.zeros((64, 2), dtype=torch.long)
    for _ in range(12):
        before = index.states
        logits = processor(ids, torch.randn(len(ids), WIDTH))
        assert index.states - before <= 2 * len(ids)
        fresh = GenerateProcessor(index, PAD, 2)(ids, torch.zeros(len(ids), WIDTH))  # type: ignore[arg-type]
        assert open_tokens(logits) == open_tokens(fresh)
        ids = torch.cat((ids, logits.softmax(1).multinomial(1)), 1)
        ids = ids[torch.from_numpy(rng.integers(0, len(ids), max(8, len(ids) - 4)))]


@pytest.mark.parametrize("mode", ["full", "renormalized"])
@pytest.mark.parametrize("make", [small_t5, small_llama, small_gpt2])
def test_generate_finds_what_our_decoder_finds(make: Callable[[], Any], mode: Any) -> None:
    """The best five of a beam as wide as the corpus, for a padded batch."""
    model = make()
    encodes = model.config.is_encoder_decoder
    rows = [row for row in passages("short", 24) if max(row) < VOCABULARY]
    index = index_sequences([np.array(row) for row in rows], END)
    beams = len(index.rows)
    rng = np.random.default_rng(6)
    inputs = [rng.integers(3, VOCABULARY, length).tolist() for length in (3, 7, 5)]
    longest = max(map(len, inputs))
    padded = [[PAD] * (longest - len(row)) + row for row in inputs]
    ids = torch.tensor(padded)
    processor = GenerateProcessor(index, PAD, 1 if encodes else longest)
    written = model.generate(
        input_ids=ids, attention_mask=(ids != PAD).long(), num_beams=beams, num_return_sequences=5,
        do_sample=False, max_new_tokens=20, logits_processor=[processor], length_penalty=0.0,
        renormalize_logits=mode == "renormalized", return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    generator = Seq2SeqGenerator(model) if encodes else CausalGenerator(model)
    decoder = Decoder(generator, index, beams=beams, mode=mode, early_stop=False)  # type: ignore[arg-type]
    theirs = written.sequences[:, 1 if encodes else longest :].tolist()
    scores = written.sequences_scores.reshape(3, 5)
    for query, hits in enumerate(decoder.search(inputs)):
        found = [
            processor._constraint.passages([token for token in row if token != PAD])
            for row in theirs[5 * query : 5 * query + 5]
        ]
        ours = {score: set[int]() for score in {round(hit.score, 3) for hit in hits}}
        for hit in hits:
            ours[round(hit.score, 3)].add(hit.passage)
        for numbers, score in zip(found, scores[query].tolist(), strict=True):
            near = [n for at, members in ours.items() if abs(at - score) < 2e-3 for n in members]
            assert set(numbers) <= set(near)


def test_requests_enter_leave_and_move_in_vllm(doors: Any, tmp_path: Path) -> None:
    """Two indexes and free requests in one batch: each writes a passage of its own."""
    corpora = {str(tmp_path / kind): passages(kind) for kind in ("short", "long")}
    for folder, rows in corpora.items():
        save_index(index_sequences([np.array(row) for row in rows], END), folder)
    batch, generator = engines.VllmBatch(doors.vllm(None, None, False)), torch.Generator().manual_seed(0)

    class Request:
        def __init__(self, folder: str):
            self.arguments, self.output = {ARGUMENT: folder}, list[int]()

        @property
        def done(self) -> bool:
            return len(self.output) > 40 or END in self.output

    folders = [*corpora, ""]
    waiting = [Request(folders[n % 3]) for n in range(60)]
    requests = list(waiting)
    while waiting or not all(request.done for request in batch.rows):
        free = 7 - sum(not request.done for request in batch.rows)
        arrivals, waiting = waiting[:free], waiting[free:]
        batch.step(arrivals, WIDTH, generator)
    for request in requests:
        if folder := request.arguments[ARGUMENT]:
            assert request.output in corpora[folder]
    assert any(END not in r.output for r in requests if not r.arguments[ARGUMENT])  # free ones are free


def walked(arrays: StaticArrays, prefix: tuple[int, ...], dense: int) -> list[int]:
    """The next tokens after a prefix, read from the arrays as STATIC's paper describes them."""
    if not prefix:
        return np.flatnonzero(arrays.start_mask).tolist()
    if len(prefix) < dense:
        return np.flatnonzero(arrays.dense_mask[prefix]).tolist()
    state = int(arrays.dense_states[prefix[:dense]])
    for token in [*prefix[dense:], None]:
        edges = arrays.packed_csr[arrays.indptr[state] : arrays.indptr[state + 1]]
        assert len(edges) <= arrays.layer_max_branches[len(prefix)] or token is not None
        if token is None:
            return edges[:, 0].tolist()
        state = dict(edges.tolist()).get(token, 0)
    raise AssertionError


@pytest.mark.parametrize("dense", [1, 2])
@pytest.mark.parametrize("source", ["array", "ranges"])
def test_static_arrays_allow_what_the_dictionary_of_prefixes_has(
    source: str, dense: int, tmp_path: Path
) -> None:
    rows = passages("fixed")
    naive = index_sequences([np.array(row) for row in rows], END, "flat")
    assert isinstance(naive, FlatIndex)
    index: ConstraintIndex = index_sequences([np.array(row) for row in [*rows, [19, END]]], END)
    if source == "ranges":
        write_ranges(index, tmp_path, PrefixRanges(3), "", "")
        index = open_index(tmp_path)
    arrays = static_arrays(index, 25, dense, exclude=[len(rows)])
    valid = [prefix for prefix in draws(rows) if prefix in naive.following and len(prefix) < 4]
    for prefix in valid:
        assert walked(arrays, prefix, dense) == naive.following[prefix]
    absent = np.ones((25,) * dense, dtype=bool)
    absent[tuple(np.array(rows)[:, :dense].T)] = False
    assert (arrays.dense_mask == ~absent).all()
    assert (len(arrays.indptr), arrays.indptr[-1]) == (
        int(arrays.packed_csr[:, 1].max()) + 3,
        len(arrays.packed_csr),
    )


STATIC = Path(os.environ.get("GRLS_STATIC", "nowhere"))


@pytest.mark.skipif(not STATIC.is_dir(), reason="GRLS_STATIC names no checkout of STATIC")
@pytest.mark.parametrize("dense", [1, 2])
def test_static_has_these_arrays_and_finds_the_same_ids(dense: int) -> None:
    from benchmarks.static import Device, Table, module

    ids = np.array(passages("fixed"))[:, :-1]
    arrays = static_arrays(index_sequences([np.array(row) for row in passages("fixed")], END), 25, dense)
    theirs = module(STATIC, "csr_utils").build_static_index(ids, 25, dense)
    for our_array, their_array in zip(arrays, theirs, strict=True):
        np.testing.assert_array_equal(np.asarray(our_array), np.asarray(their_array))
    search = module(STATIC, "decoding_pt").sparse_transition_torch
    logits = torch.randn(4, 3, 8, 25, generator=torch.Generator().manual_seed(0))
    csr, indptr, branches, *masks = arrays
    tensors = [torch.from_numpy(array) for array in (csr, indptr, *masks)]
    found = search(Table(logits), 3, 8, 25, 0, 4, 25, branches, *tensors, torch.device("cpu"), dense)
    assert torch.equal(found.long(), Device(ids, logits)())


@pytest.mark.parametrize("kind", ["short", "long", "fixed"])
def test_the_dictionary_of_sglang_s_fork_holds_the_passages(kind: str) -> None:
    rows = passages(kind)
    naive = index_sequences([np.array(row) for row in rows], END, "flat")
    assert isinstance(naive, FlatIndex)
    made = beam_dictionary(
        index_sequences([np.array(row) for row in [*rows, [2, 2, 2, END]]], END), [len(rows)]
    )
    texts = {tuple(row[:-1]) for row in rows}
    assert made["num_sequences"] == len(texts)
    assert (
        made["num_nodes"]
        == 1 + made["num_edges"]
        == len({row[:n] for row in texts for n in range(len(row) + 1)})
    )
    assert (made["max_depth"], made["min_depth"]) == (max(map(len, texts)), min(map(len, texts)))
    for prefix in draws(rows):
        node: Any = made["tree"]
        for token in prefix:
            node = node and node.get("c", {}).get(token)
        expected = naive.following.get(prefix)
        if node is not None:  # the fork adds the end token where a passage ends
            assert sorted([*node.get("c", {}), *([END] if node["t"] else [])]) == expected
        else:
            assert END in prefix or expected is None


def test_what_cannot_work_is_named(doors: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [np.array(row) for row in passages("short", 30)]
    index = index_sequences(rows, END)
    save_index(index, tmp_path / "index")
    (tmp_path / "empty").mkdir()
    raises(IndexFormatError, "empty: no index here", open_index, tmp_path / "empty")
    prefixes = index_sequences(rows, END, form="prefixes")
    for door in (lambda i: PassageConstraint(i), beam_dictionary, lambda i: static_arrays(i, 25)):
        raises(ConfigError, "--index.form whole", door, prefixes)
    # requests
    for arguments in (None, {}):
        for call in (doors.vllm.validate_params, lambda p: doors.vllm(None, None, False).update_state(
            engines.BatchUpdate(1, added=[(0, p, None, [])])
        )):  # fmt: skip
            raises(
                (ValueError, ConfigError), f'"{ARGUMENT}": FOLDER', call, engines.SamplingParams(arguments)
            )
    gone = engines.SamplingParams({ARGUMENT: str(tmp_path / "gone")})
    raises(ValueError, "gone: no index here", doors.vllm.validate_params, gone)
    request = engines.Req([3], [])
    raises(ConfigError, "names no index", doors.sglang(), torch.zeros(1, WIDTH), [{"__req__": request}])
    raises(ConfigError, "where a prompt ends", doors.sglang(), torch.zeros(1, WIDTH), [{ARGUMENT: ""}])
    monkeypatch.setenv(VARIABLE, str(tmp_path / "index"))
    doors.vllm.validate_params(engines.SamplingParams())
    assert open_tokens(doors.sglang()(torch.zeros(1, WIDTH), [{"__req__": request}]))[0][0] > 0
    request.output_ids[:] = [200]
    with pytest.warns(UserWarning, match="begin no passage.*without its overlap schedule"):
        assert open_tokens(doors.sglang()(torch.zeros(1, WIDTH), [{"__req__": request}])) == [[END]]
    # another tokenizer, and lengths
    raises(
        MismatchError, "allows the token 8 and the model has 5", GenerateProcessor(index, PAD), *batch(1, 5)
    )
    raises(ConfigError, "no row begins like a passage", GenerateProcessor(index, PAD), *batch(4, 50))
    raises(ConfigError, "continuous batching", GenerateProcessor(index, PAD, 9), *batch(4, 50))
    raises(ConfigError, "of one length.*exclude", static_arrays, index, 25)
    fixed = index_sequences([np.array(row) for row in passages("fixed")], END)
    raises(MismatchError, "the token 19, above the vocabulary of 19", static_arrays, fixed, 19)
    raises(ConfigError, "1 or 2 dense levels", static_arrays, fixed, 25, 3)
    raises(ConfigError, "holds no id", static_arrays, index_sequences([], END), 25)


def batch(length: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((2, length), 40), torch.zeros(2, width)


@pytest.mark.parametrize(
    "option", [{"min_new_tokens": 15}, {"suppress_tokens": list(range(2, 50))}, {"forced_bos_token_id": 40}]
)
def test_options_of_generate_that_bar_a_passage_are_named(option: dict[str, Any]) -> None:
    index = index_sequences([np.array(row) for row in passages("short", 30)], END)
    with pytest.raises(ConfigError, match=r"bars all tokens.*forced_bos_token_id=None"):
        small_t5().generate(
            input_ids=torch.tensor([[5, 6, END]]), num_beams=3, max_new_tokens=20,
            logits_processor=[GenerateProcessor(index, PAD)], **option,
        )  # fmt: skip


def test_another_end_token_in_generate_is_named() -> None:
    """All passages are written, and ``generate`` goes on after their ends."""
    index = index_sequences([np.array(row) for row in passages("short", 30)], END)
    with pytest.raises(ConfigError, match=f"after the end of a passage: give it eos_token_id={END},"):
        small_t5().generate(
            input_ids=torch.tensor([[5, 6, END]]), max_new_tokens=20, eos_token_id=12,
            logits_processor=[GenerateProcessor(index, PAD)],
        )  # fmt: skip


def test_in_an_engine_what_is_barred_stays_a_passage(doors: Any, tmp_path: Path) -> None:
    save_index(index_sequences([np.array([3, 4, END])], END), tmp_path)
    params = [{ARGUMENT: str(tmp_path), "__req__": engines.Req([9], [3])}]
    assert open_tokens(doors.sglang()(torch.full((1, WIDTH), -torch.inf), params)) == [[4]]
