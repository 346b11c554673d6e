"""Jobs on dead letters: process them again, discard them with a reason, take a parked source up again."""

import threading
from typing import TYPE_CHECKING

from dagster import Config, Definitions, Failure, OpExecutionContext, job, op
from pydantic import Field

from dagster_project.following import Followed, followed
from dagster_project.rendering import table
from dagster_project.resources import Headwater

if TYPE_CHECKING:
    from pipeline.operate.replay import Replayed

SHOWN = 100


class Selected(Config):
    """Which letters; everything that is given must fit."""

    letters: list[str] = Field(default_factory=list, description="Coordinates, as content/3/1042.")
    tenant: str = Field(default="", description="Empty: any.")
    source: str = Field(default="", description="Empty: any.")
    stage: str = Field(default="", description="Empty: any. For instance extract.")
    kind: str = Field(default="", description="Empty: any. As the asset dead_letters shows it.")
    generation: str = Field(default="", description="Empty: any.")
    everything: bool = Field(default=False, description="All of them, where nothing else is given.")

    def narrowing(self) -> dict[str, str]:
        """What is given. Raises Failure where nothing is."""
        given = {
            name: value
            for name in ("tenant", "source", "stage", "kind", "generation")
            if (value := str(getattr(self, name)))
        }
        if not (given or self.letters or self.everything):
            raise Failure("No letter is named: give coordinates, a narrowing, or everything: true.")
        return given


class Discarded(Selected):
    """Which letters, and why."""

    reason: str = Field(min_length=1, max_length=2000, description="Kept with the letter.")


class Parked(Config):
    """A source that was parked because most of its content failed."""

    tenant: str = Field(description="Its tenant.")
    source: str = Field(description="Its name.")


def _told(context: OpExecutionContext, done: "list[Replayed]") -> None:
    rows = [[one.letter.name, one.result, one.reason or ""] for one in done[:SHOWN]]
    columns = {"letter": "string", "result": "string", "reason": "string"}
    settled = sum(one.result in ("processed", "superseded") for one in done)
    context.add_output_metadata({"letters": len(done), "settled": settled, "results": table(columns, rows)})
    if settled < len(done):
        raise Failure(f"{len(done) - settled} of {len(done)} letters are still there; the results say why.")


@op
def replay(context: OpExecutionContext, config: Selected, headwater: Headwater) -> None:
    """The generation's consumer processes the documents again, from their coordinates; nothing is appended."""
    narrowing = config.narrowing()

    def work(told: Followed, stop: threading.Event) -> "list[Replayed]":
        return headwater.replay(config.letters, narrowing, told.bar)

    _told(context, followed(context, "replay", work))


@op
def discard(context: OpExecutionContext, config: Discarded, headwater: Headwater) -> None:
    """The letters count no longer; their documents stay as they are. The reason is kept."""
    context.add_output_metadata({"discarded": headwater.discard(config.letters, config.narrowing(), config.reason)})


@op
def release(context: OpExecutionContext, config: Parked, headwater: Headwater) -> None:
    """What was set aside is processed again, and the first success takes the source up again."""

    def work(told: Followed, stop: threading.Event) -> "list[Replayed]":
        return headwater.release(config.tenant, config.source, told.bar)

    _told(context, followed(context, "release", work))


@job(description=replay.description)
def replay_dead_letters() -> None:
    """See ``replay``."""
    replay()


@job(description=discard.description)
def discard_dead_letters() -> None:
    """See ``discard``."""
    discard()


@job(description=release.description)
def release_source() -> None:
    """See ``release``."""
    release()


defs = Definitions(jobs=[replay_dead_letters, discard_dead_letters, release_source])
