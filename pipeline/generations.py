"""Transitions of generations: decided in order by one consumer, refused with a reason (invariant 7). Pure.

    create ▶ building ─ready▶ ready ─activate▶ active ─another is activated▶ standby ─activate, rollback▶ active
    building, ready, standby ─retire▶ retired ─drop▶ its collections are gone

The active record is the switch: one write. States in the records follow it; where a crash left them behind,
``repairs`` says what to write, and the command that is decided again finishes what it began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from pipeline.bus.instances import Instance
from pipeline.chunk.presets import preset
from pipeline.errors import ConfigError
from pipeline.settings import GenerationSettings
from schemas.base import ClosedModel
from schemas.events import ControlCommand
from schemas.generation import CHUNKING_REVISION, ChunkingSpec, EncoderSpec, Generation, IndexSpec

CLOCK_US = 60_000_000  # a report from further in the future than this was made by a wrong clock
DAY_US = 86_400_000_000


class Declaration(ClosedModel):
    """What an operator declares of a generation; everything has a default."""

    encoder: EncoderSpec = EncoderSpec()
    chunking: ChunkingSpec = ChunkingSpec()
    index: IndexSpec = IndexSpec()
    vectors_from: str | None = None


@dataclass(frozen=True)
class Evidence:
    """What the control consumer found before it decides; what a command does not need stays at its default.

    ``unread``: records that the log had when the generation was created and that it has not applied. ``behind``:
    records that the active generation has applied and this one has not. ``members``: consumers of its group.
    """

    known: Mapping[str, Generation]
    active: str | None
    unread: int = 0
    behind: int = 0
    instances: tuple[Instance, ...] = ()
    members: int = 0


@dataclass(frozen=True)
class Decision:
    """``create`` asks the caller to build, ``activate`` names the new active one (written before ``write``), ``drop``
    asks to remove the generation's collections. ``details`` hold what was checked, with its values."""

    refused: str | None = None
    create: Declaration | None = None
    write: tuple[Generation, ...] = ()
    activate: str | None = None
    drop: bool = False
    warnings: tuple[str, ...] = ()
    details: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class _Check:
    """One condition; ``problem`` says what is wrong where it does not hold."""

    name: str
    holds: bool
    found: object
    problem: str


def declaration(command: ControlCommand) -> Declaration:
    """The command's declaration. Raises ConfigError naming the field."""
    return declared(command.declaration or {})


def declared(values: Mapping[str, object]) -> Declaration:
    """A declaration as written in a file or command; ``chunking`` may name a preset. Raises ConfigError naming the
    field."""
    named = values.get("chunking")
    if isinstance(named, str):
        values = {**values, "chunking": preset(named).model_dump()}
    try:
        found = Declaration.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(("declaration", *(str(p) for p in first["loc"])))
        raise ConfigError(name, first["msg"], "Correct the declaration and send it again.") from error
    if found.chunking.revision != CHUNKING_REVISION:
        raise ConfigError(
            "declaration.chunking.revision",
            f"this version cuts documents by revision {CHUNKING_REVISION}, not {found.chunking.revision}",
            "Leave it out.",
        )
    if found.chunking.child_max_tokens > found.encoder.max_tokens:
        raise ConfigError(
            "declaration.chunking.child_max_tokens",
            f"{found.chunking.child_max_tokens} exceeds encoder.max_tokens {found.encoder.max_tokens}",
            "Lower it: chunks would be cut when they are embedded.",
        )
    return found


def repairs(known: Mapping[str, Generation], active: str | None, now: int) -> tuple[Generation, ...]:
    """Records whose state contradicts the active record, corrected."""
    wrong = [g for g in known.values() if (g.state == "active") != (g.name == active)]
    return tuple(_moved(g, now, state="active" if g.name == active else "standby") for g in wrong)


def decide(command: ControlCommand, evidence: Evidence, policy: GenerationSettings, now: int) -> Decision:
    """What the command leads to, given what was found. Deciding it again after it was carried out changes nothing."""
    present = evidence.known.get(command.generation)
    if command.type == "create":
        return _create(command, present, evidence.known)
    if present is None:
        return Decision(refused=f"there is no generation {command.generation}; create it first")
    if command.type in ("activate", "rollback"):
        return _activate(command, present, evidence, policy, now)
    if command.expected_active is not None and command.expected_active != evidence.active:
        return Decision(refused=_another(command, evidence))
    match command.type:
        case "ready":
            return _ready(command, present, evidence, policy, now)
        case "report":
            return _report(command, present, now)
        case "retire":
            return _retire(command, present, evidence, policy, now)
        case _:
            return _drop(command, present, evidence, now)


def _moved(generation: Generation, now: int, **changes: object) -> Generation:
    """The record's next version; a change of state notes its moment."""
    if "state" in changes:
        changes = {"state_since": now, **changes}
    return generation.model_copy(update={**changes, "version": generation.version + 1})


def _create(command: ControlCommand, present: Generation | None, known: Mapping[str, Generation]) -> Decision:
    try:
        wanted = declaration(command)
    except ConfigError as error:
        return Decision(refused=str(error))
    if present is None and wanted.vectors_from is not None:
        donor = known.get(wanted.vectors_from)
        if donor is None or donor.dropped_at is not None:
            return Decision(refused=f"vectors_from: there is no generation {wanted.vectors_from} with collections")
        if donor.encoder != wanted.encoder:
            return Decision(refused=f"vectors_from: {donor.name} has another encoder, its vectors are of another space")
    if present is None:
        return Decision(create=wanted)
    if present.state == "retired":
        return Decision(refused=f"generation {command.generation} exists and is retired; choose a new name")
    if (present.encoder, present.chunking, present.index) != (wanted.encoder, wanted.chunking, wanted.index):
        return Decision(refused=f"generation {command.generation} exists with another declaration; choose a new name")
    return Decision(details={"state": present.state})  # asked for again: nothing to do


def _ready(
    command: ControlCommand, present: Generation, evidence: Evidence, policy: GenerationSettings, now: int
) -> Decision:
    if present.state in ("ready", "active", "standby"):
        return Decision(details={"state": present.state})
    if present.state == "retired":
        return Decision(refused=f"generation {present.name} is retired")
    checks = [
        _Check(
            "built", evidence.unread == 0, evidence.unread,
            f"{evidence.unread} records that the log had when it was created are not applied yet: let it be built",
        ),
        _lag(evidence, policy),
    ]  # fmt: skip
    if problems := _problems(checks):
        return Decision(refused=problems, details=_details(checks))
    return Decision(
        write=(_moved(present, now, state="ready", requested_by=command.requested_by),), details=_details(checks)
    )


def _report(command: ControlCommand, present: Generation, now: int) -> Decision:
    report = command.report
    if report is None:
        return Decision(refused="a report command carries a report")
    if present.state == "retired":
        return Decision(refused=f"generation {present.name} is retired")
    if report.finished_at > now + CLOCK_US:
        return Decision(refused="the report was finished in the future: set the verifier's clock")
    if present.report == report:
        return Decision()
    if present.report is not None and present.report.finished_at > report.finished_at:
        return Decision(refused=f"report {present.report.report_id} is newer")
    return Decision(write=(_moved(present, now, report=report),), details={"passed": report.passed})


def _activate(
    command: ControlCommand, present: Generation, evidence: Evidence, policy: GenerationSettings, now: int
) -> Decision:
    changes: dict[str, object] = {
        "activated_at": now, "requested_by": command.requested_by, "override": command.override, "drop_after": None,
    }  # fmt: skip
    if evidence.active == present.name:
        # decided before, or a crash came between the switch and the records
        left = repairs(evidence.known, evidence.active, now)
        done = [_moved(present, now, state="active", **changes) if g.name == present.name else g for g in left]
        return Decision(write=tuple(done), details={"already": True})
    if command.expected_active is not None and command.expected_active != evidence.active:
        return Decision(refused=_another(command, evidence))
    allowed = ("standby",) if command.type == "rollback" else ("ready", "standby")
    if present.state not in allowed:
        return Decision(
            refused=f"generation {present.name} is {present.state}; only a {' or '.join(allowed)} one can serve"
        )
    checks = []
    if evidence.active is not None:
        if command.type == "activate":
            checks.append(_reported(present, evidence.active, policy, now))
        checks += [_lag(evidence, policy), _warm(present, evidence)]
    details = _details(checks) | {"before": evidence.active}
    problems = _problems(checks)
    forced = command.type == "rollback" or command.override is not None
    if problems and not forced:
        return Decision(refused=problems, details=details)
    before = evidence.known.get(evidence.active) if evidence.active is not None else None
    if not problems:
        changes["override"] = None  # nothing was passed over
    write = [_moved(present, now, state="active", **changes)]
    if before is not None:
        write.append(_moved(before, now, state="standby"))
    warnings = tuple(c.problem for c in checks if not c.holds)
    return Decision(write=tuple(write), activate=present.name, warnings=warnings, details=details)


def _retire(
    command: ControlCommand, present: Generation, evidence: Evidence, policy: GenerationSettings, now: int
) -> Decision:
    if evidence.active == present.name:
        return Decision(refused=f"generation {present.name} is active; activate another one first")
    if present.state == "retired":
        return Decision(details={"state": "retired", "drop_after": present.drop_after})
    checks = [_unused(present, evidence)]
    if problems := _problems(checks):
        return Decision(refused=problems, details=_details(checks))
    drop_after = now + int(policy.retention_days * DAY_US)
    retired = _moved(present, now, state="retired", requested_by=command.requested_by, drop_after=drop_after)
    return Decision(write=(retired,), details=_details(checks) | {"drop_after": drop_after})


def _drop(command: ControlCommand, present: Generation, evidence: Evidence, now: int) -> Decision:
    if present.state != "retired":
        return Decision(refused=f"generation {present.name} is {present.state}; retire it first")
    if present.dropped_at is not None:
        return Decision(details={"dropped_at": present.dropped_at})
    due = present.drop_after is not None and now >= present.drop_after
    checks = [
        _Check("retention", due or command.override is not None, present.drop_after,
               "its retention time is not over; wait, or state an override"),
        _Check("stopped", evidence.members == 0, evidence.members,
               f"{evidence.members} consumers are still in its group; stop them"),
        _unused(present, evidence),
    ]  # fmt: skip
    if problems := _problems(checks):
        return Decision(refused=problems, details=_details(checks))
    return Decision(drop=True, details=_details(checks))


# ---------------------------------------------------------------- conditions


def _another(command: ControlCommand, evidence: Evidence) -> str:
    return f"{evidence.active or 'none'} is active by now, not {command.expected_active}: look again and decide anew"


def _reported(present: Generation, active: str, policy: GenerationSettings, now: int) -> _Check:
    report = present.report
    if report is None:
        return _Check("report", False, None, f"it was never verified: headwater generation verify {present.name}")
    age = (now - report.finished_at) / 1_000_000
    found = {"report_id": report.report_id, "passed": report.passed, "against": report.against, "age_s": round(age, 1)}
    problem = ""
    if not report.passed:
        problem = f"report {report.report_id} did not pass: {'; '.join(report.failures) or 'no reason given'}"
    elif report.against != active:
        problem = f"report {report.report_id} compares with {report.against or 'nothing'}, and {active} is active"
    elif age > policy.report_max_age_s:
        problem = (
            f"report {report.report_id} is {age:.0f} s old, allowed are {policy.report_max_age_s:.0f}: verify again"
        )
    return _Check("report", not problem, found, problem)


def _lag(evidence: Evidence, policy: GenerationSettings) -> _Check:
    return _Check(
        "behind", evidence.behind <= policy.behind_records, evidence.behind,
        f"it is {evidence.behind} records behind {evidence.active}, allowed are {policy.behind_records}",
    )  # fmt: skip


def _warm(present: Generation, evidence: Evidence) -> _Check:
    cold = [i.beat.instance for i in evidence.instances if present.name not in i.beat.warm]
    found = {i.beat.instance: present.name in i.beat.warm for i in evidence.instances}
    return _Check("warm", not cold, found, f"its encoder is not loaded in query service {', '.join(cold)}")


def _unused(present: Generation, evidence: Evidence) -> _Check:
    """No query service runs a request on it or begins new ones there, as told since it stopped serving."""
    problems = []
    for instance in evidence.instances:
        beat = instance.beat
        if running := beat.in_flight.get(present.name, 0):
            problems.append(f"query service {beat.instance} runs {running} requests on it")
        elif beat.active == present.name:
            problems.append(f"query service {beat.instance} has not switched yet")
        elif present.activated_at is not None and instance.heard_at < (present.state_since or 0):
            problems.append(f"query service {beat.instance} was not heard since the switch")
    found = {i.beat.instance: i.beat.in_flight.get(present.name, 0) for i in evidence.instances}
    return _Check("in_flight", not problems, found, "; ".join(problems) + ": try again in a moment")


def _problems(checks: Sequence[_Check]) -> str | None:
    return "; ".join(c.problem for c in checks if not c.holds) or None


def _details(checks: Sequence[_Check]) -> dict[str, object]:
    return {"checks": {c.name: {"holds": c.holds, "found": c.found} for c in checks}}
