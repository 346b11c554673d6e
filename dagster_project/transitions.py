"""Jobs that move generations. Each sends one command to control, which decides it; a refusal fails with its reason.

create_generation ▸ index_generation (build) ▸ generation_verification ▸ activate_generation
rollback_generation goes back to the standby one; retire_generation ends one; drop_generation gives its space back
"""

from typing import Any

from dagster import Config, Definitions, Failure, MetadataValue, OpExecutionContext, job, op
from pydantic import Field

from dagster_project.partitions import GENERATIONS
from dagster_project.resources import Headwater

# a crash leaves the command on the log, where it is decided: sending it again is for a person to choose
TAGS = {"dagster/max_retries": "0"}


class Create(Config):
    """A new generation."""

    generation: str = Field(description="Its name: letters, digits and '_', beginning with a letter.")
    declaration: dict[str, Any] = Field(
        default_factory=dict,
        description=(
            "What differs from the defaults: encoder (model, revision, weights_sha256, dimension, …), chunking, index. "
            "The same as in a file for `headwater generation create`."
        ),
    )


class Activate(Config):
    """Which generation is to serve."""

    generation: str = Field(description="A ready one, or one that stands by.")
    expected_active: str = Field(
        default="", description="The active one as you saw it: refused where another one is by then. Empty: any."
    )
    override: str = Field(
        default="",
        max_length=500,
        description="A reason for going on without a fresh passing report or in spite of a lag; kept in the record.",
    )


class Rollback(Config):
    """Where to go back to."""

    generation: str = Field(default="", description="Empty: the one that stands by and served last.")
    expected_active: str = Field(default="", description="The active one as you saw it. Empty: any.")


class Retire(Config):
    """Which generation ends."""

    generation: str = Field(description="Not the active one. Its consumers stop; its collections stay for a while.")


class Drop(Config):
    """Which retired generation's collections go."""

    generation: str = Field(description="A retired one.")
    override: str = Field(default="", max_length=500, description="A reason for not waiting for its retention time.")


def _send(context: OpExecutionContext, headwater: Headwater, type: Any, generation: str, **fields: Any) -> None:
    """Raises Failure with the reason of a refusal and what was checked."""
    from pipeline.operate.control import Refused

    try:
        receipt = headwater.command(type, generation, **{name: value for name, value in fields.items() if value})
    except Refused as refusal:
        raise Failure(
            str(refusal), metadata={"reason": refusal.reason, "checked": MetadataValue.json(refusal.details)}
        ) from refusal
    context.add_output_metadata(
        {
            "generation": generation,
            "outcome": receipt.outcome,
            "warning": receipt.reason or "none",
            "details": MetadataValue.json(receipt.details or {}),
        }
    )
    context.log.info(f"{type} {generation}: {receipt.outcome}")


@op
def create(context: OpExecutionContext, config: Create, headwater: Headwater) -> None:
    """Try the encoder, make the collections and the consumer group. Then build the generation's partition."""
    _send(context, headwater, "create", config.generation, declaration=config.declaration or {})
    context.instance.add_dynamic_partitions(str(GENERATIONS.name), [config.generation])


@op
def activate(context: OpExecutionContext, config: Activate, headwater: Headwater) -> None:
    """Have searches begin on this generation: one write. Searches under way end where they began."""
    _send(
        context, headwater, "activate", config.generation,
        expected_active=config.expected_active, override=config.override,
    )  # fmt: skip


@op
def rollback(context: OpExecutionContext, config: Rollback, headwater: Headwater) -> None:
    """Have searches begin on the former generation again, which was kept up to date."""
    from pipeline.operate.control import standby

    back = config.generation or standby(headwater.known()).name
    _send(context, headwater, "rollback", back, expected_active=config.expected_active)


@op
def retire(context: OpExecutionContext, config: Retire, headwater: Headwater) -> None:
    """End a generation that no search runs on. There is no way back but building it again."""
    _send(context, headwater, "retire", config.generation)


@op
def drop(context: OpExecutionContext, config: Drop, headwater: Headwater) -> None:
    """Remove a retired generation's collections. The receipt says what that freed."""
    _send(context, headwater, "drop", config.generation, override=config.override)


@job(tags=TAGS, description=create.description)
def create_generation() -> None:
    """See ``create``."""
    create()


@job(tags=TAGS, description=activate.description)
def activate_generation() -> None:
    """See ``activate``."""
    activate()


@job(tags=TAGS, description=rollback.description)
def rollback_generation() -> None:
    """See ``rollback``."""
    rollback()


@job(tags=TAGS, description=retire.description)
def retire_generation() -> None:
    """See ``retire``."""
    retire()


@job(tags=TAGS, description=drop.description)
def drop_generation() -> None:
    """See ``drop``."""
    drop()


defs = Definitions(
    jobs=[create_generation, activate_generation, rollback_generation, retire_generation, drop_generation]
)
