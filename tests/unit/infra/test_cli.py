"""The commands that need no service: tokens, settings, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra import cli
from infra.commands.tokens import issue, signing_secret
from infra.errors import InfraError
from pipeline.settings import AuthSettings, Settings
from query_service.scope import TokenVerifier

SECRET = "s" * 48


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """A runner in an empty folder with its own state directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("HEADWATER_CONFIG", raising=False)
    return CliRunner()


def test_a_token_is_accepted_by_the_query_service(run: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_AUTH__JWT_SECRET", SECRET)
    answer = run.invoke(cli.build(), ["token", "--user", "ann", "--tenant", "acme", "--json"])
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.stdout)
    scope = TokenVerifier(AuthSettings.model_validate({"jwt_secret": SECRET})).verify(said["token"])
    assert (scope.subject, scope.tenant) == ("ann", "acme")
    assert said["expires"] > 0


def test_without_a_secret_the_one_of_the_state_directory_signs(run: CliRunner, tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "state")
    signed, _ = issue(settings, "user:ann", "acme", 60)
    verifier = TokenVerifier(AuthSettings.model_validate({"jwt_secret": signing_secret(settings)}))
    assert verifier.verify(signed).subject == "ann"


@pytest.mark.parametrize(("user", "tenant"), [("", "acme"), (" ann", "acme"), ("ann", ""), ("ann", "no spaces")])
def test_a_wrong_argument_is_named(tmp_path: Path, user: str, tenant: str) -> None:
    with pytest.raises(InfraError, match="--user" if tenant == "acme" else "--tenant"):
        issue(Settings(state_dir=tmp_path), user, tenant, 60)


def test_with_a_public_key_nothing_is_signed(tmp_path: Path) -> None:
    settings = Settings.model_validate({"state_dir": tmp_path, "auth": {"jwt_public_key": "PEM"}})
    with pytest.raises(InfraError, match="identity provider"):
        issue(settings, "ann", "acme", 60)


@pytest.mark.requirement("E5")
def test_config_check_prints_values_and_masks_secrets(run: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_AUTH__JWT_SECRET", SECRET)
    monkeypatch.setenv("HEADWATER_KAFKA__PARTITIONS", "7")
    for arguments in (["config", "check"], ["config", "check", "--json"]):
        answer = run.invoke(cli.build(), arguments)
        assert answer.exit_code == 0, answer.output
        assert SECRET not in answer.output
    assert json.loads(answer.stdout)["settings"]["kafka"]["partitions"] == 7


@pytest.mark.requirement("E5")
def test_config_check_finds_what_types_cannot_say(run: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(
        '[auth]\njwt_secret = "short"\n[query]\nport = 8701\n[kafka]\nheartbeat_s = 5.0\n'
        '[[sources]]\nname = "wiki"\npath = "absent"\n'
    )
    answer = run.invoke(cli.build(), ["config", "check", "--json"])
    assert answer.exit_code == 1
    fields = {finding["field"] for finding in json.loads(answer.stdout)["findings"]}
    assert fields == {"sources.0.path", "auth.jwt_secret", "gateway.port", "kafka.heartbeat_s"}


@pytest.mark.requirement("E5")
def test_a_wrong_setting_is_named_with_its_variable(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWATER_KAFKA__PARTITIONS", "many")
    monkeypatch.setattr("sys.argv", ["headwater", "config", "check"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "kafka.partitions" in said
    assert "HEADWATER_KAFKA__PARTITIONS" in said


def test_errors_are_json_where_json_was_asked_for(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["headwater", "logs", "nobody", "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is False
    assert "nobody" in said["error"]
    assert "kafka" in said["remedy"]


def test_logs_prints_the_last_lines(run: CliRunner, tmp_path: Path) -> None:
    log = tmp_path / "state" / "logs" / "kafka.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\nthree\n")
    assert run.invoke(cli.build(), ["logs", "kafka", "-n", "2"]).output.splitlines() == ["two", "three"]


def test_status_of_nothing_says_down_and_fails(run: CliRunner) -> None:
    answer = run.invoke(cli.build(), ["status", "--json"])
    assert answer.exit_code == 1
    assert {line["state"] for line in json.loads(answer.stdout)["processes"]} == {"down"}
