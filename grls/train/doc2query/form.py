"""Input and output of a query generator, the same in training and generation.

The input is a line ``passage: …`` for each passage, then ``query:``; the output is the query. A causal model
reads the input as its prompt, an encoder-decoder with its encoder. The input is composed from token ids, so
that training and generation cannot differ at the joints. The module knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from grls.data.codec import controls, wrapping
from grls.data.spelling import encoded_texts
from grls.data.types import Passage
from grls.errors import ConfigError, DataError, at_least
from grls.io.files import read_json
from grls.models.load.base_models import find_writer

FORM = "query-generator.json"
"""The file beside a trained query generator with the form of its input and output."""

PassagesRead = Literal["one", "all", "some"]


class QueryForm(NamedTuple):
    """The form of a query generator's input and output.

    Attributes:
        passages: Gold passages that are read: ``one``, ``all`` of a query in their order, or ``some`` of
            them.
        passage_tokens: Longest passage in tokens; longer passages are cut.
        query_tokens: Longest query in tokens, without the end token.
        plain: Whether the passage alone is read, as other encoder-decoders do that write queries (doc2query,
            Nogueira et al. 2019, arXiv 1904.08375).
    """

    passages: PassagesRead = "one"
    passage_tokens: int = 128
    query_tokens: int = 64
    plain: bool = False

    @classmethod
    def read(cls, model: str | Path) -> QueryForm:
        """The form of a trained query generator.

        Raises:
            ConfigError: The folder holds no query generator.
            DataError: The file is damaged.
        """
        file = Path(model) / FORM
        if not file.is_file():
            raise ConfigError(
                f"{model} is no query generator ({FORM} is missing); train one with `grls train doc2query`."
            )
        content = read_json(file)
        try:
            form = cls(**content)
            if form.passages not in get_args(PassagesRead):
                raise ValueError(f"passages are {form.passages!r}")
            for tokens in (form.passage_tokens, form.query_tokens):
                if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
                    raise ValueError(f"a number of tokens is {tokens!r}")
        except (TypeError, ValueError) as error:
            raise DataError(
                f"expected the form of a query generator ({error}); train it again.", file
            ) from None
        return form

    @classmethod
    def of(cls, model: str) -> QueryForm:
        """The form of a query generator that was trained here, or of another encoder-decoder.

        Raises:
            ConfigError: There is no such model, or it is a language model that was not trained to write
                queries.
            DataError: The file is damaged.
        """
        if (Path(model).expanduser() / FORM).is_file():
            return cls.read(Path(model).expanduser())
        if find_writer(model).causal:
            raise ConfigError(
                f"{model} is a language model that was not trained to write queries ({FORM} is missing): "
                "train one with `grls train doc2query`, or give an encoder-decoder of doc2query."
            )
        return cls(passage_tokens=384, plain=True)


class QueryPrompt:
    """Token ids of a query generator's input and output.

    Args:
        tokenizer: The tokenizer of the model, with an end token.
        causal: Whether the model is causal.
        form: Length limits.

    Raises:
        ConfigError: A length limit is not positive.
    """

    def __init__(self, tokenizer: Any, causal: bool, form: QueryForm):
        at_least(1, max_passage_tokens=form.passage_tokens, max_query_tokens=form.query_tokens)
        self.tokenizer = tokenizer
        self.form = form
        self._before, after = wrapping(tokenizer)
        self._after = [] if causal else after  # after an end token, a causal model would write nothing
        self._line, self._ask = self._ids(["\n", "query:"])

    def passages(self, passages: Sequence[Passage]) -> list[list[int]]:
        """Token ids of each passage, cut to the length limit."""
        if self.form.plain:
            texts = [f"{p.title} {p.text}".strip() for p in passages]
        else:
            texts = [f"passage: {p.title}: {p.text}" if p.title else f"passage: {p.text}" for p in passages]
        return [row[: self.form.passage_tokens] for row in self._ids(texts)]

    def source(self, rows: Sequence[Sequence[int]]) -> list[int]:
        """The model input for rows of :meth:`passages`."""
        if self.form.plain:
            return [*self._before, *(token for row in rows for token in row), *self._after]
        body = [token for row in rows for token in (*row, *self._line)]
        return [*self._before, *body, *self._ask, *self._after]

    def targets(self, queries: Sequence[str]) -> list[list[int]]:
        """The output for each query, with the end token; nothing is cut."""
        end = self.tokenizer.eos_token_id
        return [[*row, end] for row in self._ids([" " + " ".join(text.split()) for text in queries])]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        rows = encoded_texts(self.tokenizer, texts)["input_ids"]
        barred = controls(self.tokenizer) | {self.tokenizer.eos_token_id}  # pieces of a Unigram vocabulary
        return [[token for token in row if token not in barred] for row in rows]
