"""A person who is listed for an account gets no other account by its login."""

from __future__ import annotations

import pytest

from pipeline.sources.remote.people import Account, join
from tests.unit.sources.remote.test_people import settings


@pytest.mark.requirement("A8", "I12")
def test_a_login_that_is_the_name_of_a_listed_person_joins_nobody() -> None:
    """The settings say that the person ann is account 17 (asmith). Account 5 (ann) is somebody else."""
    found = join([Account("17", "asmith"), Account("5", "ann")], settings(join="login", people={"17": "ann"}))
    assert found.people == {"17": "ann"}


@pytest.mark.requirement("A8", "I12")
def test_a_login_that_looks_like_the_id_of_a_listed_account_joins_nobody() -> None:
    """Logins may be digits: whoever registers as "17" is not account 17."""
    found = join([Account("17", "asmith"), Account("5", "17")], settings(people={"17": "ann"}))
    assert found.people == {"17": "ann"}
