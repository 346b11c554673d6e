"""What a key can see of a Redmine, and what it should see and cannot."""

from __future__ import annotations

import re

from pipeline.settings_sources import RedmineSettings
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.redmine.api import Api, Refused
from pipeline.sources.remote.contract import Finding

_TEXTILE = re.compile(r"^(?:h[1-6]|bq)\. |^\|_\.|<pre>|\"[^\"\n]{1,200}\":https?://", re.MULTILINE)
_MARKDOWN = re.compile(r"^#{1,6} \S|^```|^\|[ :|-]{3,}\|\s*$|\[[^\]\n]{1,200}\]\(https?://", re.MULTILINE)


def findings(api: Api, settings: RedmineSettings) -> list[Finding]:
    """Raises SourceUnavailable where it does not answer at all."""
    try:
        me = api.get("/users/current.json").get("user") or {}
    except Refused as refused:
        return [
            Finding(
                f"the key is refused ({refused.status})",
                False,
                "Enable 'REST web service' under Administration, Settings, API, and take the key from 'My account'.",
            )
        ]
    found = [Finding(f"the key belongs to {me.get('login')}", True), _administrator(me, settings)]
    found.append(_projects(api, settings))
    found.append(_text(api, settings))
    return found


def _administrator(me: dict[str, object], settings: RedmineSettings) -> Finding:
    if me.get("admin") is True:
        return Finding("it is an administrator's: groups, accounts and all roles can be seen", True)
    return Finding(
        "it is not an administrator's: groups and accounts cannot be seen, so nobody could read anything",
        False,
        f"Give the account the administrator's mark, or set api_key of source {settings.name} to another one's.",
    )


def _projects(api: Api, settings: RedmineSettings) -> Finding:
    try:
        names = {str(row.get("identifier")) for row in api.projects()}
    except (Refused, SourceUnavailable) as error:
        return Finding(f"projects cannot be listed: {error}", False, "Give the key's account a right to see them.")
    missing = sorted(set(settings.projects or ()) - names)
    if missing:
        return Finding(
            f"there is no project {', '.join(missing[:5])}",
            False,
            "Correct 'projects' (identifiers, as in addresses), or reopen the project if it is archived.",
        )
    return Finding(
        f"{len(names)} projects can be seen", bool(names), None if names else "Make a project, or another key."
    )


def _text(api: Api, settings: RedmineSettings) -> Finding:
    """The API does not tell the text formatting: newest descriptions are looked at."""
    try:
        rows = api.issues({}, "updated_on:desc")["issues"]
    except SourceUnavailable as error:
        return Finding(f"issues cannot be listed: {error}", False, "Give the key's account the right to view issues.")
    texts = [str(row.get("description") or "").replace("\r", "") for row in rows]
    textile = sum(bool(_TEXTILE.search(text)) for text in texts)
    markdown = sum(bool(_MARKDOWN.search(text)) for text in texts)
    told = f"of {len(texts)} issues {textile} look like Textile and {markdown} like Markdown; text is {settings.text}"
    likelier = "markdown" if markdown > textile else "textile" if textile > markdown else settings.text
    remedy = f'Set text = "{likelier}" if that is the text formatting under Administration, Settings, General.'
    return Finding(told, likelier == settings.text, None if likelier == settings.text else remedy)
