"""Jobs that ask a source's owner: to pause, to resume, to read everything again."""

import threading
from typing import TYPE_CHECKING

from dagster import Config, Definitions, OpExecutionContext, job, op
from pydantic import Field

from dagster_project.following import Followed, followed
from dagster_project.resources import Headwater

if TYPE_CHECKING:
    from schemas.reconciliation import ReconciliationReport


class OneSource(Config):
    """Which source."""

    tenant: str = Field(description="The source's tenant.")
    source: str = Field(description="The source.")


@op
def pause(config: OneSource, headwater: Headwater) -> None:
    """Read nothing from a source until it is resumed. What is indexed stays searchable; lost rights are not seen."""
    headwater.pause(config.tenant, config.source)


@op
def resume(config: OneSource, headwater: Headwater) -> None:
    """Read a paused source again, beginning with all that happened meanwhile."""
    headwater.resume(config.tenant, config.source)


@op
def reset(context: OpExecutionContext, config: OneSource, headwater: Headwater) -> None:
    """Forget the place at a source and read every document again. Nothing is deleted for it, and what did not change
    is neither appended nor embedded. A paused source must be resumed first."""

    def work(told: Followed, stop: threading.Event) -> "ReconciliationReport":
        return headwater.reset(config.tenant, config.source, told.bar)

    found = followed(context, f"reset of {config.source}", work)
    context.add_output_metadata(
        {
            "listed": found.listed,
            "repaired": found.repaired,
            "seconds": round(found.seconds, 1),
            "remarks": "; ".join(found.why) or "none",
        }
    )


@job(description=pause.description)
def pause_source() -> None:
    """See ``pause``."""
    pause()


@job(description=resume.description)
def resume_source() -> None:
    """See ``resume``."""
    resume()


@job(description=reset.description)
def reset_source() -> None:
    """See ``reset``."""
    reset()


defs = Definitions(jobs=[pause_source, resume_source, reset_source])
