"""The beam tree: the prefixes that a search kept, step by step, and those of the gold passage.

A node is a prefix. After the search dropped the gold passage, its further prefixes are added as nodes that
the search never saw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from grls.decode.trace import PathStep, SearchTrace, beaten
from grls.index.rows import Ints

Kind = Literal["kept", "finished", "beaten", "lost"]


class Node(NamedTuple):
    """One prefix.

    Attributes:
        step: Its decoding step, from 1.
        parent: Number of the node it continues; -1 for the empty prefix.
        token: Text of its last token.
        score: Log-probability (nats).
        kind: ``kept`` lives on, ``finished`` is a whole passage, ``beaten`` was dropped because k results
            score higher, ``lost`` is a prefix of the gold passage that the search did not keep.
        gold: Whether it is a prefix of the gold passage.
        passages: Ids of the passages that it finishes.
        rank: The best rank of these passages among the results, from 1.
    """

    step: int
    parent: int
    token: str
    score: float
    kind: Kind
    gold: bool
    passages: tuple[str, ...] = ()
    rank: int | None = None


class Tree(NamedTuple):
    """A beam tree.

    Attributes:
        nodes: Every node, parents before children.
        candidates: Number of candidates of each step; 0 after the search had ended.
    """

    nodes: tuple[Node, ...]
    candidates: tuple[int, ...]


def beam_tree(
    search: SearchTrace,
    path: tuple[PathStep, ...],
    text: Callable[[int], str],
    passages: Callable[[int], list[int]],
    names: Callable[[list[int]], list[str]],
) -> Tree:
    """The tree of one search.

    ``path`` has the steps of the gold passage (empty if it was excluded), ``text`` gives the text of a token,
    ``passages`` those that a state finishes, ``names`` their ids.
    """
    nodes: list[Node] = []
    ranks = {hit.passage: rank for rank, hit in enumerate(search.found, start=1)}
    parents: Ints = np.array([-1])
    gold_node = -1  # the gold prefix so far
    for position in range(max(len(search.steps), len(path))):
        goal = path[position] if position < len(path) else None
        kept_gold = goal is not None and goal.fate in ("kept", "finished", "beaten")
        gold_here = -1
        if position < len(search.steps):
            step = search.steps[position]
            numbers: dict[int, int] = {}  # candidate -> node
            kinds: dict[Kind, Ints] = {
                "finished": step.chosen.finished, "kept": step.live, "beaten": beaten(step),
            }  # fmt: skip
            for kind, candidates in kinds.items():
                for c in candidates.tolist():
                    parent = int(parents[step.parents[c]])
                    gold = bool(
                        kept_gold and goal and parent == gold_node and step.tokens[c] == goal.token.token
                    )
                    under = passages(int(step.states[c])) if kind == "finished" else []
                    numbers[c] = len(nodes)
                    rank = min((ranks[p] for p in under if p in ranks), default=None)
                    gold_here = len(nodes) if gold else gold_here
                    nodes.append(
                        Node(
                            position + 1, parent, text(int(step.tokens[c])), float(step.scores[c]), kind,
                            gold, tuple(names(under)), rank,
                        )
                    )  # fmt: skip
            parents = np.array([numbers[c] for c in step.live.tolist()], dtype=np.int64)
        if goal is not None and gold_here < 0:
            gold_here = len(nodes)
            nodes.append(Node(position + 1, gold_node, text(goal.token.token), goal.score, "lost", True))
        gold_node = gold_here
    sizes = [len(step.scores) for step in search.steps]
    return Tree(tuple(nodes), (*sizes, *[0] * (len(path) - len(sizes))))
