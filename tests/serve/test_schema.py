"""Requests made from the OpenAPI description, valid ones and others: no 500, and what is described holds.

The number of cases is that of the environment variable ``GRLS_SCHEMA_CASES``; ``make fuzz-serve`` has 10,000.
"""

import os
from pathlib import Path

import pytest
from serve_helpers import client_of, hostile_folder, serving_of

schemathesis = pytest.importorskip("schemathesis", reason='needs the extra fuzz: pip install "grls[fuzz]"')

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

CASES = int(os.environ.get("GRLS_SCHEMA_CASES", "200"))
PATIENCE = 120
"""Seconds: the machine of a test may have much to do, and stop for more than the usual 10."""


@pytest.mark.slow
def test_no_request_of_the_schema_fails(tmp_path: Path) -> None:
    from schemathesis import GenerationMode
    from schemathesis.checks import CHECKS, load_all_checks

    with client_of(serving_of({"one": hostile_folder(tmp_path / "one")})) as client:
        schema = schemathesis.openapi.from_asgi("/openapi.json", client.app)
        modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        cases = [
            operation.ok().as_strategy(generation_mode=mode)
            for operation in schema.get_all_operations()
            for mode in modes
        ]
        load_all_checks()
        # No schema describes the grammar of filters and the ids of a corpus.
        beyond = CHECKS.get_by_names(["positive_data_acceptance"])
        codes: dict[int, int] = {}

        @settings(
            max_examples=CASES,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            database=None,
            derandomize="GRLS_SCHEMA_CASES" not in os.environ,  # the short form is the same each time
        )
        @given(st.one_of(cases))
        def check(case: schemathesis.Case) -> None:
            response = case.call(session=client, timeout=PATIENCE)
            codes[response.status_code] = codes.get(response.status_code, 0) + 1
            assert response.status_code < 500 or response.status_code == 503, case.as_curl_command()
            case.validate_response(response, excluded_checks=beyond)

        check()
    assert codes.get(200, 0) > CASES / 100  # most name a retriever or an id that is not there
    assert codes.get(422, 0) > CASES / 20
