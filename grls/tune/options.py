"""Options of tuning: the settings to try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grls.errors import ConfigError, Option
from grls.io.arguments import Count, PositiveFloat, Share, options

if TYPE_CHECKING:
    from grls.retrieve.hops.stop import StopRule

_NEVER_EMPTY = {
    "cross_encoder_passages": "give one number of passages, or more",
    "done_biases": "give one number, or more",
}


@options("grid")
class TuneOptions:
    """The settings that tuning tries.

    Args:
        k: Cut-off of the recall that is to be high (priors, rescoring, cross-encoder, fusion); where it is
            level nDCG decides, then the smaller weight. The priors of a ranking by hops are judged by the
            first hit of every hop.
        prior_weights: Weights of each prior; weight 0 always is tried.
        rescore_passages: Passages of each query that a generator rescores.
        rescore_weights: Weights of rescoring; 0 always is tried.
        cross_encoder_passages: Numbers of passages that a cross-encoder reads. Its logits are weighed beside
            the first retriever's scores, or count alone where no chain has to end.
        done_biases: Biases on DONE; null: those of the kind, -4 to 2 nats for a generator, 0 to 0.3 for a
            bi-encoder.
        hops: Numbers of hops of a ranking by hops; 1 is a single step. Where DONE ends none, two hops are
            tried with the weight 0.4 of the second, too, which they have without tuning.
        hop_temperatures: Factors of the usual temperature of a hop's scores, with each number of hops.
        named: Shares of the first hop for what the question names (`--hops.named`), where passages have
            names; each with each of ``linked``. Of those within one standard error of the best the nearest
            to the folder's are taken, before anything else of the hops is tuned.
        linked: Shares of later hops for what the question or the chain names (`--hops.linked`).
        onward: Learn an onward model for a ranking by hops: with what probability one more hop finds a gold
            passage, by its scores. It is taken where it finds more, cross-validated.
    """

    k: Count = 10
    prior_weights: tuple[PositiveFloat, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    rescore_passages: Count = 50
    rescore_weights: tuple[PositiveFloat, ...] = (
        0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0
    )  # fmt: skip
    cross_encoder_passages: tuple[Count, ...] = (10, 20, 50, 100)
    done_biases: tuple[float, ...] | None = None
    hops: tuple[Count, ...] = (1, 2, 3, 4)
    hop_temperatures: tuple[PositiveFloat, ...] = (1.0, 0.5, 2.0)
    named: tuple[Share, ...] = (0.0, 0.3, 0.5, 0.7)
    linked: tuple[Share, ...] = (0.0, 0.5, 0.9)
    onward: bool = True

    def __post_init__(self) -> None:
        for name, remedy in _NEVER_EMPTY.items():
            values = getattr(self, name)
            if values is not None and not values:
                raise ConfigError(f"{Option(f'grid.{name}')} is empty: {remedy}.")
        if not self.hop_temperatures or 1 not in self.hops:
            raise ConfigError(
                f"{Option('grid.hops')} must hold 1, a single step, and {Option('grid.hop_temperatures')} a "
                "factor."
            )

    def biases_of(self, stop: StopRule) -> Sequence[float]:
        """The biases on DONE that are tried with a stop rule."""
        return stop.biases if self.done_biases is None else self.done_biases


USUAL_GRID = TuneOptions()


@options("tune")
class TuneRuns:
    """Runs that weights are tuned on.

    Args:
        runs: Runs of the same systems, in the same order, for development queries: those of their manifests,
            or else of the split dev. The weights (rrf, sum) with the best recall on them are used: multiples
            of 0.1 that sum to one; among equal recalls nDCG decides, then the most even weights.
        k: Cut-off of that recall.
    """

    runs: list[str] | None = None
    k: Count = 10


UNTUNED = TuneRuns()
