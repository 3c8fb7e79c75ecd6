"""Examples of a reranker in which one document helps."""

from grls.answer.ralm.reranker import RerankExample
from grls.data.corpus import Corpus
from grls.data.types import Passage

NAMES = ("otter", "heron", "badger", "lynx")
ANIMALS = Corpus.from_passages([Passage(name, f"the {name} is calm .") for name in NAMES])


def examples(count: int = 12) -> list[RerankExample]:
    """The heron, in changing places, makes the stride likely."""
    orders = [(*NAMES[n % 4 :], *NAMES[: n % 4]) for n in range(count)]
    texts = [tuple(f"the {name} is calm ." for name in order) for order in orders]
    scores = [tuple(-1.0 if name == "heron" else -9.0 for name in order) for order in orders]
    return [RerankExample(f"is the {NAMES[n % 4]} calm", texts[n], scores[n]) for n in range(count)]
