"""The tokens that may follow, of fixed-length ids: ``grls.constraint`` beside engines of grammars.

    pip install llguidance xgrammar
    OMP_NUM_THREADS=1 python -m benchmarks.grammars

llguidance (github.com/guidance-ai/llguidance) and xgrammar (arXiv 2411.15100) get the ids as one regular
expression. A step takes the last token of each row and makes the masks of the next ones; their application to
logits is left out. All engines have to allow the same tokens. Times are of the processor, of one thread.
Memory is the peak of a process that has one engine alone, above what it had before it compiled. It is stopped
after ``limit`` of these seconds.
"""

from __future__ import annotations

import resource
import string
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
from jsonargparse import auto_cli

from benchmarks.common import END, RESERVED, in_process, machine, print_table
from benchmarks.static import fixed_length_index, random_ids
from grls.constraint import PassageConstraint
from grls.index.rows import Array, Ints

TOGETHER = 64
"""Rows of a batch."""
SIGNS = string.ascii_letters + string.digits + "-_"
"""A token is two of them."""

Step = Callable[[Ints], Any]
"""From the tokens that rows have written, ``[R, length]``, to their masks; called for each length."""
Engine = Callable[[int], Step]
"""Makes the step of so many new rows."""


def regular_expression(ids: Ints) -> str:
    """All ids as alternatives."""
    return "|".join("".join(map(text, row)) for row in ids.tolist())


def text(token: int) -> str:
    """The text of a token, for grammars."""
    return SIGNS[token // len(SIGNS)] + SIGNS[token % len(SIGNS)]


def names(vocabulary: int) -> list[bytes]:
    """The texts of all tokens."""
    reserved = [f"<{token}>".encode() for token in range(RESERVED)]
    return reserved + [text(token).encode() for token in range(RESERVED, vocabulary)]


def llguidance(ids: Ints, vocabulary: int) -> Engine:
    """Compile for llguidance."""
    from llguidance import LLExecutor, LLMatcher, LLTokenizer
    from llguidance._tokenizer import TokenizerWrapper
    from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask, fill_next_token_bitmask_par

    class Tokenizer:
        eos_token_id, bos_token_id, special_token_ids = END, None, range(RESERVED)
        tokens = names(vocabulary)

        def __call__(self, words: bytes) -> list[int]:
            pairs = (words[place : place + 2] for place in range(0, len(words) - 1, 2))
            return [self.tokens.index(pair) for pair in pairs]

    grammar = LLMatcher.grammar_from_regex(regular_expression(ids))
    compiled = LLMatcher(LLTokenizer(TokenizerWrapper(Tokenizer())), grammar)
    if compiled.is_error():
        raise RuntimeError(compiled.get_error())
    pool = LLExecutor(num_threads=1)

    def engine(count: int) -> Step:
        rows = [(compiled.deep_copy(), row) for row in range(count)]
        masks = allocate_token_bitmask(count, vocabulary)

        def step(written: Ints) -> Any:
            for (row, _), tokens in zip(rows, written.tolist(), strict=True):
                if tokens:
                    row.consume_token(tokens[-1])
            if count == 1:
                fill_next_token_bitmask(rows[0][0], masks)
            else:
                fill_next_token_bitmask_par(pool, rows, masks)
            return masks

        return step

    return engine


def xgrammar(ids: Ints, vocabulary: int) -> Engine:
    """Compile for xgrammar, without its cache, which takes minutes at 10,000 ids."""
    from xgrammar import (
        BatchGrammarMatcher,
        GrammarCompiler,
        GrammarMatcher,
        TokenizerInfo,
        VocabType,
        allocate_token_bitmask,
    )

    tokenizer = TokenizerInfo(names(vocabulary), VocabType.RAW, stop_token_ids=[END])
    compiled = GrammarCompiler(tokenizer, max_threads=1, cache_enabled=False).compile_regex(
        regular_expression(ids)
    )
    together = BatchGrammarMatcher(max_threads=1)

    def engine(count: int) -> Step:
        rows = [GrammarMatcher(compiled) for _ in range(count)]
        masks = allocate_token_bitmask(count, vocabulary)

        def step(written: Ints) -> Any:
            for row, tokens in zip(rows, written.tolist(), strict=True):
                if tokens:
                    row.accept_token(tokens[-1])
            if count == 1:
                rows[0].fill_next_token_bitmask(masks)
            else:
                together.batch_fill_next_token_bitmask(rows, masks)
            return masks

        return step

    return engine


def grls(ids: Ints, vocabulary: int) -> Engine:
    """Our index."""
    constraint = PassageConstraint(fixed_length_index(ids - RESERVED))

    def engine(count: int) -> Step:
        return lambda written: constraint.allowed(list(written), END)[:2]

    return engine


ENGINES = {"grls": grls, "llguidance": llguidance, "xgrammar": xgrammar}


def opened(masks: Any, count: int, vocabulary: int) -> Array:
    """``[count, vocabulary]`` the tokens that the masks of an engine allow."""
    if isinstance(masks, tuple):
        allowed = np.zeros((count, vocabulary), dtype=bool)
        allowed[masks] = True
        return allowed
    return np.unpackbits(np.asarray(masks).view(np.uint8), axis=1, bitorder="little")[:, :vocabulary] > 0


def measured(name: str, count: int, length: int, vocabulary: int, limit: int) -> tuple[list[float], bytes]:
    """Seconds to compile, MB, milliseconds of a step of one row and of many; and what was allowed, packed."""
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    ids = random_ids(count, length, vocabulary) + RESERVED
    width = vocabulary + RESERVED
    chosen = ids[np.random.default_rng(1).integers(0, len(ids), TOGETHER)]
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    engine = ENGINES[name](ids, width)
    figures = [time.process_time() - start]
    figures.append((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000)
    allowed = []
    for rows in (1, TOGETHER):
        spent = []
        for batch in np.split(chosen, TOGETHER // rows):
            step = engine(rows)
            for written in range(length):
                prefixes = np.ascontiguousarray(batch[:, :written])
                start = time.process_time()
                masks = step(prefixes)
                spent.append(time.process_time() - start)
                allowed.append(np.packbits(opened(masks, rows, width)))
        figures.append(1000 * float(np.mean(spent)))
    return figures, np.concatenate(allowed).tobytes()


def main(
    counts: tuple[int, ...] = (10_000, 100_000, 1_000_000),
    length: int = 8,
    vocabulary: int = 2048,
    limit: int = 120,
) -> None:
    """Measure and print a table.

    Args:
        counts: Ids.
        length: Tokens of an id.
        vocabulary: Tokens to choose from.
        limit: Seconds of the processor after which an engine is stopped.
    """
    print(machine())
    header = ["ids", "engine", "compile, s", "MB", "1 row, ms", f"{TOGETHER} rows, ms", "refusal"]
    title = f"a step over ids of {length} tokens, vocabulary {vocabulary:,}"
    print_table(title, header, lines(counts, length, vocabulary, limit))


def lines(counts: tuple[int, ...], length: int, vocabulary: int, limit: int) -> Iterator[list[str]]:
    """The lines of the table."""
    for count in counts:
        expected = b""
        for name in ENGINES:
            cells, refusal = 4 * ["-"], ""
            try:
                figures, allowed = in_process(measured, name, count, length, vocabulary, limit)
                cells = [f"{figure:.{digits}f}" for figure, digits in zip(figures, (2, 0, 3, 3), strict=True)]
                expected = expected or allowed
                refusal = "" if allowed == expected else "allows other tokens"
            except BrokenProcessPool:
                refusal = f"stopped: above {limit} s, or out of memory"
            except (ImportError, RuntimeError) as error:
                refusal = " ".join(str(error).split())[:100]
            yield [f"{count:,}", name, *cells, refusal]


if __name__ == "__main__":
    auto_cli(main)
