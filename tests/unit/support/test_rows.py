"""Rows of tables as answers show them: only those that a source has, cell by cell."""

from __future__ import annotations

import pytest

from tests.unit.support.conftest import source, verdicts

pytestmark = pytest.mark.requirement("B8")
BANDS = """
| Level | Engineering | Support |
| --- | --- | --- |
| 3 | 63 to 76 | 49 to 58 |
| 4 | 75 to 91 | **57** to 67 |
"""


@pytest.mark.parametrize(
    "row",
    ["- Level: 4; Engineering: 75 to 91; Support: 57 to 67.", "Level: 3; Engineering: 63 to 76; Support: 49 to 58"],
)
def test_a_row_of_a_source_is_supported_and_quoted(row: str) -> None:
    (one,) = verdicts([(row, (1,))], [source(1, BANDS), source(2, "Nothing of it.")])
    assert one.supported and one.cited == (1,)
    assert one.quotes[1] in BANDS and one.quotes[1].startswith("|")


def test_a_row_that_cites_another_source_is_put_right() -> None:
    (one,) = verdicts(
        [("Level: 4; Engineering: 75 to 91; Support: 57 to 67.", (2,))], [source(1, BANDS), source(2, "x")]
    )
    assert one.supported and one.cited == (1,)


@pytest.mark.parametrize(
    "row",
    [
        "Level: 4; Engineering: 63 to 76; Support: 57 to 67.",  # a cell of another row
        "Level: 4; Engineering: 57 to 67; Support: 75 to 91.",  # cells exchanged
        "Level: 4; Support: 75 to 91; Engineering: 57 to 67.",  # columns exchanged
        "Level: 5; Engineering: 95 to 99; Support: 70 to 80.",
    ],
)
def test_a_row_that_no_source_has_is_not(row: str) -> None:
    (one,) = verdicts([(row, (1,))], [source(1, BANDS)])
    assert not one.supported
