"""Options of In-Context RALM: windows, reranking, and training examples of a reranker."""

from __future__ import annotations

from typing import Annotated, Literal

from grls.errors import ConfigError, Option
from grls.io.arguments import Count, NonNegativeInt, options
from grls.models.option_names import Device
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions

RerankBy = Literal["none", "zero-shot", "trained", "oracle"]


@options("reader")
class WindowOptions:
    """The strides of a text, and the documents and tokens that a language model reads before each.

    Every input begins with the tokens that the tokenizer puts before a text. They count in the window, and
    the first token of a text is then predicted as well.

    Args:
        stride: Tokens predicted between two retrievals, s.
        query_tokens: Tokens before a stride that form the query, l.
        documents: Documents put before the text; 0 for no retrieval.
        document_tokens: Most tokens of a document; a longer one is cut at its end.
        window: Most tokens that the model sees, w: documents, text, and the stride itself.
        cut: If the window is full, cut the text before a stride at multiples of this number of tokens. 1 as
            in the paper (section 3.1; ``configs/paper/ralm.yaml``): as much text as fits. With c > 1 a stride
            sees up to c - 1 tokens less, and strides with the same document share its computation.
    """

    stride: Count = 4
    query_tokens: Count = 32
    documents: NonNegativeInt = 1
    document_tokens: Count = 256
    window: Count = 1024
    cut: Count = 64

    def __post_init__(self) -> None:
        self.refuse_small()

    def refuse_small(self, begin: int = 0) -> None:
        """Refuse (ConfigError) a window that cannot hold b, D, cut and stride; ``begin`` is b."""
        needed = begin + self.documents * self.document_tokens + self.stride + self.cut
        if needed > self.window:
            first = f"{begin} tokens that the tokenizer puts first, " if begin else ""
            raise ConfigError(
                f"a window of {self.window} tokens is too small: {first}{self.documents} documents of "
                f"{self.document_tokens} tokens, a stride of {self.stride} and a cut of {self.cut} take "
                f"{needed}. Lower document_tokens, documents or cut, or take a larger window."
            )

    def start(self, before: int, last: int) -> int:
        """The first token of a text that the model sees if it sees the tokens up to ``last``.

        Args:
            before: Tokens before the text: b, and the tokens of the documents.
            last: The token after the last predicted one.
        """
        over = max(0, before + last - self.window)
        return -(-over // self.cut) * self.cut


USUAL_WINDOW = WindowOptions()


@options("rerank")
class RerankOptions:
    """Which of the retrieved documents the model reads.

    Args:
        by: none: the retriever's order; zero-shot: a language model judges by the last 16 tokens of the
            prefix; trained: a reranker judges; oracle: the likelihood of the stride itself, the upper bound
            of reranking.
        candidates: Documents to choose from.
        judge: The language model that judges (zero-shot); null: the model itself.
        reranker: Folder of a trained reranker (trained).
    """

    by: RerankBy = "none"
    candidates: Count = 16
    judge: str | None = None
    reranker: str | None = None

    def __post_init__(self) -> None:
        if (self.reranker is not None) != (self.by == "trained"):
            raise ConfigError(
                f"{Option('rerank.by', 'trained')} and {Option('rerank.reranker', 'FOLDER')} go together."
            )
        if self.judge is not None and self.by != "zero-shot":
            raise ConfigError(f"{Option('rerank.judge')} goes with {Option('rerank.by', 'zero-shot')}.")


_Several = Annotated[int, "[2, inf)"]


@options("examples")
class ExampleOptions:
    """Training examples of a reranker.

    Args:
        candidates: Documents of an example, each scored by the likelihood of the stride behind it.
        every: Take one stride out of this many.
    """

    candidates: _Several = 16
    every: Count = 1


USUAL_RERANK = RerankOptions()
USUAL_EXAMPLES = ExampleOptions()


@options(kw_only=True)
class TaskOptions:
    """A run of In-Context RALM.

    Args:
        model: Folder or hub name of a causal language model; a .gguf file is read, too.
        text: A text file, or a folder whose .txt files are the texts.
        output: Path of the results without ending.
        data: Corpus, or data set folder with one: what the retriever bm25 retrieves from.
        retriever: Retriever folder of any kind, or bm25. Its folder stores the options of search.
        hops: How it retrieves hop by hop; the passages of a query's chains are its ranking.
        reader: Options of the model's input.
        exclude: A file of titles or passage ids, one a line, that must not be found: of the texts themselves.
            A line that is neither is reported.
        limit: Number of first tokens of each text to read; null: all.
    """

    model: str
    text: str
    output: str
    data: str | None = None
    retriever: str | None = None
    hops: HopOptions = USUAL_HOPS
    reader: WindowOptions = USUAL_WINDOW
    exclude: str | None = None
    limit: Count | None = None
    device: Device = "auto"
