"""From raw files to the data layout of ``grls.data.dataset``: one module a data set, or a family of them.

A data set is a documented function whose parameters are the options of ``grls prepare NAME``: ``prepare`` of
the module of its name, or a function of its own name in a module of several sets. It reads the raw files,
reports file and line of malformed records, and passes a ``common.Dataset`` to ``common.finish``, which
refuses a query text in two splits, writes the folder completely or not at all, and prints the statistics of
the paper's table 1. A corpus of full size goes to ``stream.finish_stream`` instead, which does the same and
writes each passage as it is read, so memory does not grow with the corpus. ``common.compare`` says which
numbers differ from the published ones.

================== ==================================================================================
common             pool of de-duplicated passages, split by query, statistics
raw                tables, JSON lines and large JSON files, compressed or not, a record at a time
stream             a corpus written as it is read, queries judged at the end
hops               order of two gold passages, for raw files that do not say it
entailmentbank     question + answer -> leaves; WorldTree as optional training pairs
strategyqa         question -> facts, or evidence paragraphs of Wikipedia
explagraphs        belief + argument -> paths of the explanation graph
nq                 question -> gold passage, with short answers; a sample
dpr                Natural Questions in full, and Open-SQuAD: DPR's 21 million passages
nq320k             Natural Questions over whole articles
hotpotqa           question -> two gold passages in retrieval order; a sample
hotpotqa_full      HotpotQA in full, and HoVer: five million abstracts
pooled             questions with paragraphs: MuSiQue, 2WikiMultihopQA, HotpotQA distractor, HippoRAG
multihop_rag       question -> news articles
judged             corpus and judgements: MS MARCO and TREC DL, BrowseComp-Plus, QReCC
beir               any BEIR folder, or a pair of JSONL files
texts              a folder of texts -> passages to retrieve, and texts to read
theory             subjects, predicates and rules of RuleTaker-Open, drawn at random
ruletaker          start facts and a goal -> a proof in forward order, over such a theory
ruletaker_release  the same from RuleTaker's own files
================== ==================================================================================

DONE is not part of the data: training and retrieval add it.
"""
