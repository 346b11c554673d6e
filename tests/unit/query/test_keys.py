"""API keys: what they may, that they end at once, and that nothing of them is kept or shown."""

from __future__ import annotations

import hmac
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from infra.cli import build
from pipeline.settings import Settings
from query_service.keys import ApiKey, ApiKeys, KeyFile, new_secret, whole
from query_service.scope import KeysUnavailable, Scope, Unauthorized
from tests.unit.query.world import World, ref

NOW_S = 1_700_000_000.0
NOW = int(NOW_S * 1e6)


def made(**changes: Any) -> tuple[ApiKey, str]:
    key_id, secret, salt, digest = new_secret()
    fields = {"id": key_id, "salt": salt, "sha256": digest, "tenant": "acme", "subject": "ann", "created_at": NOW}
    return ApiKey(**{**fields, **changes}), whole(key_id, secret)


def written(path: Path, *entries: ApiKey) -> ApiKeys:
    path.write_text(KeyFile(keys=entries).model_dump_json())
    return ApiKeys(path, lambda: NOW_S)


@pytest.mark.requirement("B1")
def test_a_key_has_the_scope_that_it_was_made_with(tmp_path: Path) -> None:
    entry, key = made(roles=("operator",), products=("p",), as_of_from=3, as_of_until=5)
    scope = written(tmp_path / "k", entry).verify(key)
    assert scope == Scope("acme", "ann", (), 3, 5, frozenset({"p"}), operator=True, key_id=entry.id)
    plain, other = made()
    scope = written(tmp_path / "k", plain).verify(other)
    assert scope == Scope("acme", "ann", key_id=plain.id) and not scope.evaluator


@pytest.mark.requirement("B1")
def test_what_is_wrong_revoked_or_expired_is_refused(tmp_path: Path) -> None:
    entry, key = made()
    revoked, gone = made(revoked_at=NOW - 1)
    expired, late = made(expires_at=NOW)
    checked = written(tmp_path / "k", entry, revoked, expired)
    assert checked.verify(key).subject == "ann"
    other = made()[1]
    wrong = [key + "x", key[:-1], key.upper(), f"hw_{entry.id}_", f"hw_{entry.id}", "hw_", "hw__", other, gone, ""]
    wrong += [f"hw_{entry.id}_{entry.sha256}", f"hw_{entry.id}_{'é' * 40}", f"hw_{entry.id}_\ud800", key + "_" * 200]
    for each in wrong:
        with pytest.raises(Unauthorized) as refused:
            checked.verify(each)
        assert refused.value.reason == "the key is not valid here"  # one answer: ids cannot be found out
    with pytest.raises(Unauthorized, match="expired"):
        checked.verify(late)


@pytest.mark.requirement("B1")
def test_unknown_and_known_ids_are_compared_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []
    real = hmac.compare_digest

    def compare(a: str, b: str) -> bool:
        compared.append((a, b))
        return real(a, b)

    entry, key = made()
    checked = written(tmp_path / "k", entry)
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for each in (key + "x", made()[1]):
        with pytest.raises(Unauthorized):
            checked.verify(each)
    assert len(compared) == 2 and all(len(a) == len(b) == 64 for a, b in compared)


@pytest.mark.requirement("I12")
def test_the_file_is_followed_and_a_damaged_one_closes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "k"
    entry, key = made()
    checked = ApiKeys(path, lambda: NOW_S)
    with pytest.raises(Unauthorized):
        checked.verify(key)  # no file: no key
    written(path, entry)
    assert checked.verify(key).tenant == "acme"
    written(path, entry.model_copy(update={"revoked_at": NOW}))
    with pytest.raises(Unauthorized):
        checked.verify(key)
    path.write_text('{"keys": [{"id": "not-a-key-' + entry.sha256 + '"}]}')
    for _ in range(2):
        with pytest.raises(KeysUnavailable):
            checked.verify(key)
    assert entry.sha256 not in caplog.text
    written(path, entry)
    assert checked.verify(key).tenant == "acme"
    path.unlink()
    with pytest.raises(Unauthorized):
        checked.verify(key)


@pytest.mark.requirement("B1")
@given(st.text(max_size=200))
def test_no_text_opens_anything(text: str) -> None:
    checked = ApiKeys(Path("/nonexistent"), lambda: NOW_S)
    with pytest.raises(Unauthorized):
        checked.verify("hw_" + text)


@pytest.fixture
def settings_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWATER_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("HEADWATER_CONFIG", "")
    return tmp_path / "api-keys.json"


@pytest.mark.requirement("B1")
def test_the_commands_make_list_and_revoke(settings_in: Path) -> None:
    run, app = CliRunner(), build()
    options = ["--user", "user:ann", "--tenant", "acme", "--role", "evaluator", "--json"]
    done = run.invoke(app, ["keys", "create", *options])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    key, secret = told["key"], told["key"].split("_", 2)[2]
    assert settings_in.stat().st_mode & 0o777 == 0o600 and secret not in settings_in.read_text()
    checked = ApiKeys(settings_in)
    assert checked.verify(key).evaluator and checked.verify(key).subject == "ann"
    listed = run.invoke(app, ["keys", "list"]).stdout + run.invoke(app, ["keys", "list", "--json"]).stdout
    stored = json.loads(settings_in.read_text())["keys"][0]
    assert told["id"] in listed and not any(x in listed for x in (secret, stored["sha256"], stored["salt"]))
    assert run.invoke(app, ["keys", "revoke", told["id"]]).exit_code == 0
    with pytest.raises(Unauthorized):
        checked.verify(key)
    again = settings_in.read_text()
    assert run.invoke(app, ["keys", "revoke", told["id"]]).exit_code == 0 and settings_in.read_text() == again
    assert "no key" in str(run.invoke(app, ["keys", "revoke", "0" * 12]).exception)


@pytest.mark.requirement("B1")
def test_a_person_whom_nobody_knows_is_told(settings_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.commands.people.located", Settings)
    monkeypatch.setattr("infra.commands.people._answers", lambda address: True)
    monkeypatch.setattr("infra.commands.lag.known_users", lambda settings, tenant: ["user:ann"])
    for user, said in (("ghost", True), ("user:ghost", True), ("ann", False), ("user:ann", False)):
        done = CliRunner().invoke(build(), ["keys", "create", "--user", user, "--tenant", "acme"])
        assert done.exit_code == 0 and ("acme has no live record of user:ghost" in done.stderr) is said
        assert "live record" not in done.stdout


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--tenant", "a/b"], "--tenant"), (["--role", "king"], "--role"), (["--user", " "], "--user"),
        (["--as-of-from", "5", "--as-of-until", "4"], "as_of_from"), (["--as-of-from", "-5"], "--as-of-from"),
        (["--product", " "], "--product"),
    ],
)  # fmt: skip
def test_the_command_names_what_is_wrong(settings_in: Path, options: list[str], named: str) -> None:
    done = CliRunner().invoke(build(), ["keys", "create", "--user", "ann", "--tenant", "acme", *options])
    assert done.exit_code and named in str(done.exception) and not settings_in.exists()


@pytest.mark.anyio
@pytest.mark.requirement("B1")
async def test_both_headers_and_revocation_on_the_api(world: World, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    world.settings.auth.keys_file = path = tmp_path / "keys.json"
    entry, key = made()
    written(path, entry)
    world.principal("user:ann")
    world.document("a", "plan")
    async with world.running() as run:
        uid = ref("a").uid
        for headers in ({"X-API-Key": key}, {"Authorization": f"Bearer {key}"}):
            assert (await run.client.get(f"/v1/documents/{uid}", headers=headers)).status_code == 200
        both = {"X-API-Key": key, "Authorization": f"Bearer {world.token()}"}
        assert (await run.client.get(f"/v1/documents/{uid}", headers=both)).status_code == 401
        written(path, entry.model_copy(update={"revoked_at": NOW}))
        reply = await run.client.get(f"/v1/documents/{uid}", headers={"X-API-Key": key})
        assert reply.status_code == 401
        path.write_text("{")
        assert (await run.client.get(f"/v1/documents/{uid}", headers={"X-API-Key": key})).status_code == 503
        said = "".join(repr(vars(record)) for record in caplog.records)
        assert key.split("_", 2)[2] not in said + reply.text + world.metrics.render().decode()


@pytest.mark.parametrize("days", ["inf", "nan", "1e12", "-1"])
def test_a_time_without_sense_is_named(settings_in: Path, days: str) -> None:
    done = CliRunner().invoke(build(), ["keys", "create", "--user", "ann", "--tenant", "acme", "--days", days])
    assert done.exit_code == 2 and "--days" in done.output and not settings_in.exists()
