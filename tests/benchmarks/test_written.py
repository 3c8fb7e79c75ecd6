"""The stand-in for a good writer answers with training questions."""

from benchmarks.written import stand_in
from grls.answer.writer import Continuation, Sampling
from grls.data.dataset import evidence_qrels, write_dataset
from grls.data.types import Passage, Query
from grls.train.doc2query.questions import Endpoint, QuestionPrompt


def test_a_question_of_these_passages(tmp_path):
    otter = Passage("otter", "Otters\nsleep in holts.", "Otter")
    holt, moon = Passage("holt", "It is a den."), Passage("moon", "Far.")
    both, one = Query("1", "Where does it sleep?", ("otter", "holt")), Query("2", "What is a den?", ("holt",))
    asked = Query("3", "How far is it?", ("moon",))
    splits = {"train": evidence_qrels([both, one]), "test": evidence_qrels([asked])}
    write_dataset(tmp_path, [otter, holt, moon], [both, one, asked], splits)
    asked_of = [otter], [holt], [otter, holt], [moon, holt], [moon]
    prompts = [QuestionPrompt(True).turns(passages) for passages in asked_of]
    with stand_in(str(tmp_path)) as address:
        answers = Endpoint(address, "people").write(prompts, [Sampling(1.0, 0)] * 5, 64)
        texts = [answer.text for answer in answers if isinstance(answer, Continuation)]
    assert texts == [both.text, one.text, both.text, "", ""]
