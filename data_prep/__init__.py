"""From raw files to the data layout of ``grls.data.dataset``: one module a data set.

Each module is a command, ``python -m data_prep.NAME --raw DIR --out DIR [--seed 0]``, and holds one
documented function ``prepare`` whose parameters are the options. It reads the raw files, says file
and line where they are malformed, and hands a ``common.Dataset`` to ``common.finish``, which refuses
a query text that stands in two splits, writes the folder whole or not at all, and prints the
statistics of the paper's table 1. A corpus of full size goes to ``stream.finish_stream`` instead, which
does the same and writes each passage as it is read, so memory does not grow with the corpus.

================== ==================================================================================
common             pool of de-duplicated passages, split by query, statistics, command line
raw                tables, JSON lines and large JSON files, compressed or not, a record at a time
stream             a corpus written as it is read, queries judged at the end
hops               which of two gold passages is retrieved first, where the raw files do not say
entailmentbank     question + answer -> leaves; WorldTree as optional training pairs
strategyqa         question -> facts, or evidence paragraphs of Wikipedia
explagraphs        belief + argument -> paths of the explanation graph
nq                 question -> gold passage, with short answers; a sample
dpr                the same in full: DPR's 21 million passages
hotpotqa           question -> two gold passages in retrieval order; a sample
hotpotqa_full      the same in full: five million abstracts
beir               any BEIR folder, or a pair of JSONL files
texts              a folder of texts, cut into passages and texts to read
theory             subjects, predicates and rules of RuleTaker-Open, drawn at random
ruletaker          start facts and a goal -> a proof in forward order, over such a theory
================== ==================================================================================

DONE is not part of the data: training and retrieval add it.
"""

import signal
import sys
from types import FrameType


def interrupted(number: int, frame: FrameType | None) -> None:
    """End a command by Ctrl-C while it is imported."""
    print("error: interrupted; nothing was read or written.", file=sys.stderr)
    sys.exit(128 + number)


if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, interrupted)  # while a command is imported, which takes seconds
