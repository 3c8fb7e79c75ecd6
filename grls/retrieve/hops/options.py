"""The options of retrieval hop by hop."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

from grls.data.types import Steps
from grls.errors import ConfigError, Option
from grls.io.arguments import Count, NonNegativeInt, PositiveFloat, Share, options
from grls.retrieve.spec import Member, recorded

Choice = Literal["likeliest", "expected-f1"]
CHOICES: tuple[Choice, ...] = get_args(Choice)

_CHAINED, _RANKED = 20, 4
"""Default numbers of hops."""

FEATURES = (
    "log of the number of passages in the chain",
    "score of DONE less that of the best hit",
    "entropy of the hits",
    "score of the best hit less that of the best one of the first hop",
    "log-probability of the last passage among the hits of its hop",
    "log-probability of the chain among the hits of its hops",
)
"""What the onward model reads of a hop. Scores are divided by T. The second one is 0 where a retriever has no
DONE; a DONE that is not among the best of a hop counts as its last hit, which it is below."""

UNLABELLED = (*[0.0] * len(FEATURES), math.log(0.4 / 0.6))
"""An onward model of the probability 0.4, whatever the scores. With two hops, it is the default of ranked
hops whose number is not given and which neither DONE nor a learned model ends. No rule that reads scores did
better without labels (docs/experiments.md).
"""

BIAS = "done_bias"
"""The name of the bias on DONE, in folders, runs and bodies."""

HopSteps = Literal["single", "fixed", "dynamic", "ranked"]

_OF_STEPS: dict[str, tuple[HopSteps, ...]] = {
    **dict.fromkeys(("branch", "repeat"), ("single", "fixed", "dynamic")),
    "sets": ("fixed", "dynamic"),
    "pool": ("fixed",),
    "choose": ("dynamic",),
    "stop": ("dynamic", "ranked"),
    **dict.fromkeys(
        ("temperature", "evidence", "done", "onward", "links", "named", "linked", "names"), ("ranked",)
    ),
}
"""Option -> the steps that it is for."""


@options("hops")
class HopOptions:
    """Options of retrieval hop by hop.

    Args:
        steps: ``single``: the top k without hops; ``fixed``: exactly ``max`` hops; ``dynamic``: hops until
            DONE; ``ranked``: the top k by the probability that a chain of ``max`` hops holds them.
        max: Number of hops (fixed, ranked), or largest number of hops (dynamic); null: 20. Null of ranked
            hops: 4 where DONE, an onward model or ``stop`` ends them; else 2, the second of the weight 0.4.
        chains: Number of chains kept for each query; null: 4 where scores are log-probabilities, else 1
            (ranked: 5; among up to 6 passages at least so many that no set of them is dropped).
        branch: Number of passages that continue a chain at each hop; null: 4 where scores are
            log-probabilities, else as many as ``chains``.
        done_bias: Bias on DONE, added at every hop to its log-odds (nats; bi-encoders: to its score). A
            negative bias makes chains longer. ``grls.retrieve.hops.stop`` says it in full.
        repeat: Allow a passage twice in a chain.
        sets: Merge chains of the same passages in different orders, and add up their probabilities.
        choose: The result of a query: the ``likeliest`` chain; or ``expected-f1``, the set of passages with
            the highest expected F1 over all chains (dynamic).
        pool: Rank the passages of all chains, those of the best chain first (fixed).
        temperature: Temperature of the softmax over the scores of a hop; null: the default of the retriever.
            Where scores have no unit, as in a fusion, a hit of rank r has the weight r^(-1/T); null: T is 0.4
            (ranked).
        evidence: Largest number of words of each evidence passage in the query of a hop: its first sentence
            and the sentences nearest to the question; 0: all. Not of a generator, which has the limit of its
            training (ranked).
        done: Let DONE end a chain; a bi-encoder that was not trained with DONE ignores it (ranked).
        onward: The onward model, which tells from the scores of a hop how probable it is that the hop finds a
            gold passage: six weights and the bias. It takes the place of DONE; `grls tune` learns it, with
            the temperature and evidence that it stores beside it (ranked).
        links: Let passages that the question or a passage of the chain names by their titles come next
            (ranked).
        named: Share of the probability of the first hop that goes to what the question names, from 0 to 1;
            less where the names are frequent (ranked).
        linked: Share of the probability of later hops that goes to what the question or the passages of the
            chain name, from 0 to 1; less where the names are frequent (ranked).
        names: Metadata fields whose texts are names of their passage, besides its title (ranked).
        stop: Name of a stop rule that takes the place of DONE (``grls.retrieve.hops.stop``); null: the rule
            that the other options and the retriever have (dynamic, ranked).
    """

    steps: HopSteps = "single"
    max: Count | None = None
    chains: Count | None = None
    branch: Count | None = None
    done_bias: float = 0.0
    repeat: bool = False
    sets: bool = False
    choose: Choice = "likeliest"
    pool: bool = False
    temperature: PositiveFloat | None = None
    evidence: NonNegativeInt = 0
    done: bool = True
    onward: tuple[float, ...] | None = None
    links: bool = True
    named: Share = 0.5
    linked: Share = 0.9
    names: tuple[str, ...] = ()
    stop: str | None = None

    @property
    def count(self) -> int:
        """The number of hops: ``max``, or the default of the steps."""
        return self.max or (_RANKED if self.steps == "ranked" else _CHAINED)

    @property
    def chained(self) -> Steps:
        """The kind of hops within ``steps``: ``ranked`` has a fixed number of hops."""
        return "fixed" if self.steps == "ranked" else self.steps

    def record(self) -> dict[str, Any]:
        """The options for manifests, beside the numbers; those without a default only if they are set."""
        ranked = self.steps == "ranked"
        names = (
            (BIAS, "evidence", "done", "links", "named", "linked")
            if ranked
            else (BIAS, "repeat", "sets", "choose", "pool")
        )
        chosen = [name for name in ("onward", "names", "stop") if getattr(self, name)]
        return {name: getattr(self, name) for name in (*names, *chosen)}

    def refuse_bias(self) -> None:
        """Refuse (ConfigError) a bias on DONE where single hops do not end with DONE."""
        if self.done_bias and self.steps != "dynamic":
            raise ConfigError(
                f"{Option('hops.done_bias', self.done_bias)} weighs DONE, which only "
                f"{Option('hops.steps', 'dynamic')} writes."
            )

    def __post_init__(self) -> None:
        for name, steps in _OF_STEPS.items():
            if getattr(self, name) != getattr(HopOptions, name) and self.steps not in steps:
                raise ConfigError(
                    f"{Option(f'hops.{name}')} is of other hops: choose {Option('hops.steps', *steps)}, or "
                    "leave it out."
                )
        if self.onward is not None and len(self.onward) != len(FEATURES) + 1:
            raise ConfigError(
                f"{Option('hops.onward')}: expected {len(FEATURES)} weights and the bias, "
                f"got {list(self.onward)}. `grls tune` learns them."
            )


USUAL_HOPS = HopOptions()
"""A single step."""


def hops_spec(retriever: Member, hops: HopOptions) -> dict[str, Any]:
    """A retriever that retrieves hop by hop with another one."""
    return {"kind": "hops", "retriever": retriever, "hops": recorded(hops)}
