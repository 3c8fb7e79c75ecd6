"""The options of decoding passages."""

from __future__ import annotations

from typing import Annotated

from grls.data.types import ScoreMode
from grls.io.arguments import Count, NonNegativeInt, PositiveFloat, options

_Temperature = Annotated[float, "[0.001, 1000000]"]


@options("search")
class SearchOptions:
    """Options of decoding passages.

    Args:
        beams: Beam width: number of prefixes that are kept at every step.
        mode: Score mode: ``renormalized`` over the allowed tokens, or ``full`` over the vocabulary.
        early_stop: Stop decoding a passage at its unique prefix; null: where this is exact
            (``renormalized``).
        batch_size: Model inputs decoded together (slots of the fast search).
        truncate_queries: Cut queries longer than the limit; false refuses them.
        span_temperature: Temperature at which the scores of a passage's spans are combined, for generators
            that write spans. Low: the best span decides; high: many likely spans count more.
        span_threshold: Nats by which a prefix of a span may fall below the best one of its query before it is
            followed no further: fewer beams, and less time. At 8, a dropped prefix has less than 0.04 percent
            of the best one's probability, but a passage's score may change by more at a ``span_temperature``
            above 1, where many unlikely spans count. null: none is dropped for this.
        rescore: Number of best passages of each input that the generator reads to their end and ranks anew,
            for a generator that has learned to rescore. 0: no rescoring.
        rescore_weight: Weight of the log-odds of rescoring (nats) beside the score of decoding.
        compile: Use the search for GPUs with a compiled step, replayed on a GPU as a CUDA graph. The first
            queries wait for the compiler (seconds to minutes for each of a few sizes), later ones are faster:
            useful for thousands of queries. It needs the index backend ``array`` in one segment, and a model
            whose decoder runs in slots (T5, not BART).
    """

    beams: Count = 10
    mode: ScoreMode = "renormalized"
    early_stop: bool | None = None
    batch_size: Count = 32
    truncate_queries: bool = False
    span_temperature: _Temperature = 3.0
    span_threshold: PositiveFloat | None = 8.0
    compile: bool = False
    rescore: NonNegativeInt = 0
    rescore_weight: float = 1.0


USUAL_SEARCH = SearchOptions()
