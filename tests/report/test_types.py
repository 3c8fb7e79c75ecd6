"""A page over questions of several types has one table for them."""

import json
from pathlib import Path

from report_helpers import page_text
from small_data import passages, queries

from grls.cli import main
from grls.data.dataset import write_dataset


def test_each_type_of_questions_has_a_row_of_one_table(tmp_path: Path) -> None:
    asked = [
        query._replace(metadata=json.dumps({"type": "two hops" if len(query.evidence) > 1 else "single"}))
        for query in queries()
    ]
    qrels = {"test": {query.id: dict.fromkeys(query.evidence, 1) for query in asked}}
    write_dataset(tmp_path / "data", passages(), asked, qrels)
    run = tmp_path / "run"
    assert main(["retrieve", "bm25", f"--data={tmp_path / 'data'}", f"--output={run}"]) == 0
    assert main(["report", f"{run}.jsonl", f"--output={tmp_path / 'page'}"]) == 0
    page = page_text(tmp_path / "page.html")
    assert page.count("Scores by the type of a question") == 1
    rows = [
        line for line in page.splitlines() if "| single | single |" in line or "| single | two hops |" in line
    ]
    assert len(rows) == 2
    assert all("(" in row for row in rows)  # few questions
