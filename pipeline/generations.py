"""Transitions of generations: decided in order by one consumer, refused with a reason (invariant 7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from pipeline.errors import ConfigError
from schemas.base import ClosedModel
from schemas.events import ControlCommand
from schemas.generation import ChunkingSpec, EncoderSpec, Generation, IndexSpec


class Declaration(ClosedModel):
    """What an operator declares of a generation; everything has a default."""

    encoder: EncoderSpec = EncoderSpec()
    chunking: ChunkingSpec = ChunkingSpec()
    index: IndexSpec = IndexSpec()


@dataclass(frozen=True)
class Decision:
    """``create`` asks the caller to build, ``write`` lists records to write, ``activate`` names the new active one."""

    refused: str | None = None
    create: Declaration | None = None
    write: tuple[Generation, ...] = ()
    activate: str | None = None


def declaration(command: ControlCommand) -> Declaration:
    """The command's declaration. Raises ConfigError naming the field."""
    try:
        return Declaration.model_validate(command.declaration or {})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(p) for p in first["loc"])
        raise ConfigError(f"declaration.{field}", first["msg"], "Correct the declaration and send it again.") from error


def decide(command: ControlCommand, known: Mapping[str, Generation], active: str | None, now: int) -> Decision:
    """What the command leads to, given the records as they stand. Pure."""
    present = known.get(command.generation)
    if command.type == "create":
        try:
            wanted = declaration(command)
        except ConfigError as error:
            return Decision(refused=str(error))
        if present is None:
            return Decision(create=wanted)
        same = (present.encoder, present.chunking, present.index) == (wanted.encoder, wanted.chunking, wanted.index)
        if same and present.state != "retired":
            return Decision()  # asked for again: nothing to do
        return Decision(refused=f"generation {command.generation} exists with another declaration; choose a new name")
    if present is None:
        return Decision(refused=f"there is no generation {command.generation}; create it first")
    if command.type == "activate":
        if active == command.generation:
            return Decision()
        if present.state not in ("ready", "standby"):
            return Decision(
                refused=f"generation {command.generation} is {present.state}; only a ready or standby one can serve"
            )
        write = [present.model_copy(update={"state": "active", "activated_at": now, "version": present.version + 1})]
        before = known.get(active) if active else None
        if before is not None:
            write.append(before.model_copy(update={"state": "standby", "version": before.version + 1}))
        return Decision(write=tuple(write), activate=command.generation)
    if active == command.generation:
        return Decision(refused=f"generation {command.generation} is active; activate another one first")
    return Decision(write=(present.model_copy(update={"state": "retired", "version": present.version + 1}),))
