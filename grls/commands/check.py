"""``grls check``: what is peculiar about a corpus."""

from __future__ import annotations

from grls.check import check_corpus, format_check
from grls.corpus import Corpus
from grls.files import write_json
from grls.logs import quiet
from grls.models.build import load_tokenizer
from grls.text import Codec, Limits


def check(
    corpus: str,
    tokenizer: str | None = None,
    max_passage_tokens: int = 512,
    examples: int = 3,
    output: str | None = None,
) -> None:
    """Report what is peculiar about a corpus; none of it breaks retrieval.

    Counts, with examples: duplicates, empty passages, passages longer than the limit, passages that are a
    prefix of another one, passages equal to another once cut, passages that do not survive the tokenizer's
    round trip.

    Args:
        corpus: ``corpus.jsonl`` or the data set folder that holds it.
        tokenizer: Of the generator: a folder, a hub name, or a name that configs use; without it, tokens are
            words and the round trip is not tried.
        max_passage_tokens: The length limit.
        examples: Ids shown of each kind.
        output: Write the report as JSON here, too.
    """
    quiet()
    codec = None if tokenizer is None else Codec(load_tokenizer(tokenizer), Limits(max_passage_tokens))
    report = check_corpus(Corpus.read(corpus), codec, max_passage_tokens, examples)
    print(format_check(report))
    if output is not None:
        write_json(output, report._asdict() | {"findings": [f._asdict() for f in report.findings]})
