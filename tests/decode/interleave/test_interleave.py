"""Interlaced writing against a plain definition of it, on random models and random keys."""

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models_small import END, VOCABULARY, small_llama, small_t5

from grls.decode.interleave import search
from grls.decode.interleave.markers import Markers
from grls.decode.interleave.options import InterleaveOptions
from grls.decode.interleave.search import Interlaced, Interleaver
from grls.errors import ConfigError
from grls.index.build import index_sequences
from grls.index.keys import KeyIndex, PrefixKeys
from grls.index.substring import SubstringIndex
from grls.models.causal.slots import plant_causal
from grls.models.seq2seq.slots import Seq2SeqGenerator, plant

OPEN, CLOSE, CLOSE_2, BARRED = 10, 11, 12, 13
SIZE = 16
ONE = Markers(((OPEN,),), (CLOSE,), np.array([CLOSE, BARRED]))
TWO = Markers(((9, OPEN), (8,)), (CLOSE, CLOSE_2), np.array([CLOSE, BARRED]))
Key = tuple[int, ...]


def score(prefix: Sequence[int]) -> torch.Tensor:
    """The logits of a model that is a hash of what it has read, fond of opening keys and of ending."""
    seed = int.from_bytes(hashlib.sha256(repr(tuple(prefix)).encode()).digest()[:4], "big")
    logits = torch.from_numpy(np.random.default_rng(seed).normal(0, 2, SIZE)).float()
    logits[[8, 9, OPEN]] += 2
    logits[END] += 1
    return logits


class Hashed:
    """A generator of trees over that model."""

    def open_trees(self, slots: int, longest: int) -> "Hashed":
        self.texts: dict[tuple[int, int], Key] = {}
        self.nodes = itertools.count(100)
        return self

    def load(self, slots: Any, inputs: Any) -> Any:
        self.now = [tuple(tokens) for tokens in inputs]
        for slot in slots.tolist():  # forget what it held
            self.texts = {place: text for place, text in self.texts.items() if place[0] != slot}
        nodes = [len(text) for text in self.now]
        self.texts |= {(s, n): t for s, n, t in zip(slots.tolist(), nodes, self.now, strict=True)}
        return np.array(nodes)

    def feed(self, branches: Any) -> Any:
        assert (np.diff(branches.slots) >= 0).all()
        nodes, now = [], []
        for slot, parent, token in zip(branches.slots, branches.parents, branches.tokens, strict=True):
            now.append((*self.texts[int(slot), int(parent)], int(token)))
            nodes.append(next(self.nodes))
            self.texts[int(slot), nodes[-1]] = now[-1]
        self.now = now
        return np.array(nodes)

    def every(self) -> torch.Tensor:
        return torch.stack([score(text) for text in self.now])


def parse(
    tokens: Key, markers: Markers, exhausted: Any = lambda closed: False
) -> tuple[str, int, list[tuple[int, int]]]:
    """Where an output stands: free, in a key or closing; where that key began; the closed keys."""
    mode, first, closed, at = "free", 0, [], 0
    while at < len(tokens):
        at += 1
        opens = any(tokens[max(0, at - len(w)) : at] == w for w in markers.opening)
        if mode == "free" and opens and not exhausted(closed):
            mode, first = "key", at
        elif mode == "key" and tokens[at - 1] == markers.closing[0]:
            closed.append((first, at - 1))
            mode = "free" if len(markers.closing) == 1 else "closing"
        elif mode == "closing":
            mode = "free"
    return mode, first, closed


def spans(keys: list[Key], anywhere: bool) -> dict[Key, set[int]]:
    found: dict[Key, set[int]] = {}
    for n, key in enumerate(keys):
        for a in range(len(key) if anywhere else 1):
            for b in range(a, len(key) + 1):
                found.setdefault(key[a:b], set()).add(n)
    return found


def reference(
    prompt: Key, keys: list[Key], anywhere: bool, markers: Markers, options: InterleaveOptions, k: int
) -> list[tuple[Key, float]]:
    """The definition, written plainly: every prefix is parsed anew, every span looked up in a set."""
    known = spans(keys, anywhere)

    def holding(span: Key) -> set[int]:
        return {n for n in known[span] if keys[n][-len(span) :] == span and (anywhere or keys[n] == span)}

    def used(tokens: Key, closed: list[tuple[int, int]]) -> set[int]:
        return {n for a, b in closed for n in holding(tokens[a:b])}

    def stand(tokens: Key) -> tuple[str, int, list[tuple[int, int]]]:
        return parse(tokens, markers, exhausted(tokens))

    def exhausted(tokens: Key) -> Any:
        return lambda closed: not options.repeat and len(used(tokens, closed)) == len(keys)

    def continuations(tokens: Key) -> list[tuple[int, float]]:
        logits = score([*prompt, *tokens]).double()
        full = logits.log_softmax(-1)
        mode, first, closed = stand(tokens)
        if mode == "free":
            allowed = full.clone()
            allowed[markers.barred] = -torch.inf
            best = allowed.topk(options.beams if options.beam == "full" else 1).indices.tolist()
            return [(t, float(full[t])) for t in best]
        if mode == "closing":
            step = 0.0 if options.mode == "renormalized" else float(full[markers.closing[1]])
            return [(markers.closing[1], step)]
        span = tokens[first:]
        after = sorted({s[len(span)] for s in known if s[: len(span)] == span and len(s) > len(span)})
        may = bool(span) and bool(holding(span))
        if may and not options.repeat:
            before = used(tokens, closed)
            may = not (before and before >= holding(span))
        if not options.repeat and used(tokens, closed):
            after = [t for t in after if not used(tokens, closed) >= known[(*span, t)]]
        after += [markers.closing[0]] if may else []
        if not after:
            return []
        values = full[after] - (full[after].logsumexp(-1) if options.mode == "renormalized" else 0)
        pairs = list(zip(after, values.tolist(), strict=True))
        return [max(pairs, key=lambda pair: pair[1])] if options.beam == "greedy" else pairs

    beams: list[tuple[Key, float]] = [((), 0.0)]
    results: list[tuple[Key, float]] = []
    while beams:
        options_now = [
            ((*tokens, t), s + step, t == END and stand(tokens)[0] == "free")
            for tokens, s in beams
            for t, step in continuations(tokens)
        ]
        options_now.sort(key=lambda c: -c[1])
        for tokens, s, ended in options_now[: options.beams]:
            if ended:
                results.append((tokens[:-1], s))
        beams = []
        for tokens, s, _ in [c for c in options_now if not c[2]][: options.beams]:
            (results if len(tokens) >= options.max_new_tokens else beams).append((tokens, s))
        results = sorted(results, key=lambda r: -r[1])[:k]
        if len(results) == k:
            beams = [beam for beam in beams if beam[1] > results[-1][1]]
    return results


def key_index(keys: list[Key], anywhere: bool) -> KeyIndex:
    if anywhere:
        return SubstringIndex.build([np.array(key) for key in keys])
    return PrefixKeys(index_sequences([np.array([*key, END]) for key in keys], END))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_writes_what_the_definition_says(data: Any) -> None:
    key = st.lists(st.integers(3, 6), min_size=1, max_size=4).map(tuple)
    keys = data.draw(st.lists(key, min_size=1, max_size=8))
    anywhere = data.draw(st.booleans())
    markers = data.draw(st.sampled_from([ONE, TWO]))
    beams = data.draw(st.integers(1, 5))
    options = InterleaveOptions(
        beams,
        data.draw(st.sampled_from(["adaptive", "full", "greedy"])),
        data.draw(st.sampled_from(["full", "renormalized"])),
        repeat=data.draw(st.booleans()),
        max_new_tokens=data.draw(st.integers(1, 14)),
        batch_size=data.draw(st.integers(1, 3)),
    )
    k = data.draw(st.integers(1, beams))
    prompts = data.draw(st.lists(st.lists(st.integers(3, 9), min_size=1).map(tuple), min_size=1, max_size=4))
    writer = Interleaver(Hashed(), key_index(keys, anywhere), markers, (END,), options)  # type: ignore[arg-type]
    outputs = writer.write(prompts, k)
    known = spans(keys, anywhere)
    for prompt, found in zip(prompts, outputs, strict=True):
        expected = reference(prompt, keys, anywhere, markers, options, k)
        assert found  # no dead end
        assert [output.score for output in found] == pytest.approx([s for _, s in expected], abs=1e-4)
        assert [output.tokens for output in found] == [tokens for tokens, _ in expected]
        for output in found:
            _check_spans(output, keys, known, markers, options)


def _check_spans(
    output: Interlaced, keys: list[Key], known: dict[Key, set[int]], markers: Markers, options: Any
) -> None:
    """Every quoted span is one of the corpus, and names the keys that hold it."""

    def exhausted(closed: list[tuple[int, int]]) -> bool:
        quoted = {key for span in output.spans[: len(closed)] for key in span.keys}
        return not options.repeat and len(quoted) == len(keys)

    mode, _, closed = parse(output.tokens, markers, exhausted)
    assert [(s.first, s.last) for s in output.spans if s.closed] == [
        place for place in closed if mode != "closing" or place != closed[-1]
    ]
    for span in output.spans:
        tokens = output.tokens[span.first : span.last]
        assert tokens in known
        if not span.closed:
            assert span.keys == ()
            assert mode != "free"
        else:
            assert set(span.keys) <= known[tokens]
            assert span.keys
    if not options.repeat:
        seen: set[int] = set()
        for span in output.spans:
            assert not (span.closed and seen and seen >= set(span.keys))
            seen |= set(span.keys)


def models() -> dict[str, Any]:
    t5 = plant(Seq2SeqGenerator(small_t5(1, scale=2.0)))
    return {"causal": plant_causal(small_llama(1), [7, 8, 9]), "seq2seq": t5}


@pytest.mark.parametrize("name", ["causal", "seq2seq"])
def test_any_kind_of_model_writes(name: str) -> None:
    """The batch does not matter, and opening is learned by nobody here: every token opens a key."""
    markers = Markers(tuple((t,) for t in range(4, VOCABULARY)), (3,), np.array([0, 2, 3]))
    index = SubstringIndex.build([np.array([5, 6, 7, 8]), np.array([6, 9])])
    options = InterleaveOptions(4, max_new_tokens=20, batch_size=2, repeat=True)
    writer = Interleaver(models()[name], index, markers, (END,), options)
    inputs = [[4, 5, 6], [9, 8], [11, 12, 13, 14], [30]]
    told: list[int] = []
    together = writer.write(inputs, 2, told.append)
    assert sum(told) == len(inputs)
    assert any(output.spans for outputs in together for output in outputs)
    for tokens, found in zip(inputs, together, strict=True):
        alone = writer.write([tokens], 2)[0]
        assert [o.tokens for o in alone] == [o.tokens for o in found]
        assert [o.score for o in alone] == pytest.approx([o.score for o in found], abs=1e-3)


def test_a_stop_ends_free_text_only() -> None:
    index = SubstringIndex.build([np.array([3, 4, 5])])
    options = InterleaveOptions(3, max_new_tokens=12, repeat=True)
    writer: Any = Interleaver(
        Hashed(), index, ONE, (END,), options, stop=lambda tokens, _: tokens[-1] in (3, 4)
    )  # type: ignore[arg-type]
    for outputs in writer.write([(n,) for n in range(3, 9)]):
        for output in outputs:
            inside = [t for s in output.spans for t in range(s.first, s.last)]
            places = [p for p, t in enumerate(output.tokens) if t in (3, 4) and p not in inside]
            assert all(p == len(output.tokens) - 1 for p in places)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"beams": 0}, "beams"), ({"beam": "wide"}, "beam must be one of .*'wide'"), ({"mode": "half"}, "half"),
     ({"batch_size": 0}, "batch_size")],
)  # fmt: skip
def test_wrong_options_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        InterleaveOptions(**wrong)


def test_wrong_k_is_refused() -> None:
    index = SubstringIndex.build([np.array([3])])
    writer: Any = Interleaver(Hashed(), index, ONE, (END,), InterleaveOptions(2))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="k must be between 1 and the beam width 2, got 3"):
        writer.write([(3,)], 3)
    assert writer.write([]) == []


@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_span_held_by_more_keys_than_are_named_is_no_dead_end(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Quoting(Hashed):
        def every(self) -> torch.Tensor:
            logits = torch.full((len(self.now), SIZE), -5.0)
            logits[:, OPEN], logits[:, 3], logits[:, CLOSE] = 3.0, 2.0, 2.5
            return logits

    monkeypatch.setattr(search, "MOST_KEYS", most)
    index = key_index([(4, 3), (5, 3), (6, 3), (7, 3)], anywhere=True)
    options = InterleaveOptions(1, max_new_tokens=30)
    writer = Interleaver(Quoting(), index, ONE, (END,), options)  # type: ignore[arg-type]
    (found,) = writer.write([(7,)])[0]
    named = [span.keys for span in found.spans]
    assert sorted(key for some in named for key in some) == [0, 1, 2, 3]  # each once
    assert {len(some) for some in named} <= {most, 4 % most or most, 4}
    assert len(found.tokens) == 30
