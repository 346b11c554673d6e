"""Tries sources: what our credentials can see at each, and what is in the way. Writes nothing, takes nothing over."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from pipeline.errors import ConfigError, HeadwaterError
from pipeline.settings import Settings
from pipeline.settings_sources import AnySource
from pipeline.sources.remote.contract import Finding


@dataclass(frozen=True)
class Tested:
    """What was found out about one source."""

    tenant: str
    source: str
    type: str
    where: str
    findings: tuple[Finding, ...]

    @property
    def good(self) -> bool:
        """Whether nothing is in the way."""
        return all(finding.good for finding in self.findings)


def tested(
    settings: Settings, chosen: Collection[tuple[str, str]], look: Callable[[AnySource], list[Finding]]
) -> list[Tested]:
    """Try these sources (tenant and name) one after the other. One that fails does not keep the others from it."""
    return [
        Tested(source.tenant, source.name, source.type, source.where(), tuple(_findings(index, source, look)))
        for index, source in enumerate(settings.sources)
        if (source.tenant, source.name) in chosen
    ]


def _findings(index: int, source: AnySource, look: Callable[[AnySource], list[Finding]]) -> list[Finding]:
    try:
        return look(source)
    except ConfigError as error:
        return [Finding(f"{_setting(index, source, error.field)}: {error.problem}", False, error.remedy)]
    except (HeadwaterError, OSError) as error:
        where = f"sources.{index}"
        return [Finding(str(error), False, f"See to the system at {source.where() or where}, or correct {where}.")]


def _setting(index: int, source: AnySource, field: str) -> str:
    """The full name of a setting of the source, which knows its own place in the settings as little as its number."""
    first, _, rest = field.partition(".")
    if first != "sources":
        return f"sources.{index}.{field}" if hasattr(source, first) else field
    number, _, inner = rest.partition(".")
    if number.isdigit():
        return field
    return f"sources.{index}.{inner if number == source.name and inner else rest}"
