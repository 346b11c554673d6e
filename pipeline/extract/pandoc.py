"""Wiki markup, reStructuredText, AsciiDoc, Org, and office text through pandoc, whose binary runs as its own process.

Pandoc reads no files but its input (``--sandbox``), has a heap and CPU limit, and writes its document tree as JSON.
"""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from pipeline.errors import DocumentError
from pipeline.extract import pandoc_docx, pandoc_markup, pandoc_odt, pandoc_office, pandoc_wikitext
from pipeline.extract.media import ASCIIDOC, DOCX, EPUB, ODT, ORG, RST, RTF, TEXTILE, WIKITEXT
from pipeline.extract.pandoc_marks import Marks, shortened, without_signs
from pipeline.extract.pandoc_markup import Prepared
from pipeline.extract.pandoc_office import Source
from pipeline.extract.pandoc_textile import textile
from pipeline.extract.pandoc_tree import TooDeepError, TreeReader, load
from pipeline.extract.reading import Body, Reading, refused
from pipeline.extract.text import read_text

HEAP_MB = 768
TEXT_SECONDS = 15  # of CPU; a page of markup takes hundredths
OFFICE_SECONDS = 120
MAX_TREE = 256 << 20  # bytes of JSON
_FORMATS = {
    WIKITEXT: "mediawiki", TEXTILE: "textile", RST: "rst", ASCIIDOC: "asciidoc", ORG: "org",
    DOCX: "docx", ODT: "odt", RTF: "rtf", EPUB: "epub",
}  # fmt: skip


class MarkupError(Exception):
    """Pandoc could not parse its input; the message says where."""


def read(body: Body) -> Reading:
    """A Reader of WIKITEXT, TEXTILE, RST, ASCIIDOC and ORG (``body.text``), and of DOCX, ODT, RTF and EPUB.

    Markup that pandoc cannot parse is kept as plain text with a warning. Raises DocumentError: 'malformed',
    'encrypted' and 'bomb' for office files, 'time-limit' and 'memory-limit' for any.
    """
    marks = Marks()
    office = body.media in _OFFICE
    source = _OFFICE[body.media](body, marks) if office else _markup(body, marks)
    form, seconds = _FORMATS[body.media], OFFICE_SECONDS if office else TEXT_SECONDS
    try:
        meta, blocks = load(run(source.data, form, seconds=seconds))
    except MarkupError as error:
        if office:
            raise refused(f"body: {error}; open the file in its program and save it anew", "malformed") from error
        warning = f"markup: it could not be parsed ({error}); kept as plain text"
        return Reading(read_text(body.text or ""), warnings=[*source.warnings, warning])
    except TooDeepError:
        plain = marks.show(run(source.data, form, to="plain", seconds=seconds).decode("utf-8", "replace"))
        warning = "markup: nested too deep for its structure to be read; kept the text alone"
        return Reading(read_text(plain), source.title, source.language, warnings=[*source.warnings, warning])
    heading = _meta(meta, "title", marks) if body.media in (ASCIIDOC, ORG) else ""
    circled = "①" in (body.text or "")
    tree = TreeReader(
        marks,
        callouts=body.media == ASCIIDOC and not circled,
        join_runs=body.media == RTF,
        inline_math=body.media == ODT,
        shift=1 if heading or source.titled else 0,
    )
    return Reading(
        tree.read(blocks, heading),
        source.title or _meta(meta, "title", marks) or None,
        source.language or _meta(meta, "lang", marks) or _meta(meta, "language", marks) or None,
        warnings=list(source.warnings),
    )


def _markup(body: Body, marks: Marks) -> Source:
    text = shortened(without_signs(body.text or ""), marks)
    if body.media == WIKITEXT:
        page = pandoc_wikitext.prepared(text, marks)
        return Source(page.text.encode("utf-8", "replace"), page.title)
    ready = _PREPARE[body.media](text, marks)
    return Source(ready.text.encode("utf-8", "replace"), warnings=ready.warnings)


def _meta(meta: dict[str, Any], name: str, marks: Marks) -> str:
    """A field of the metadata as one line of text."""
    field = meta.get(name)
    if field is None:
        return ""
    content = field.get("c")
    nodes = content if field["t"] in ("MetaInlines", "MetaBlocks") else [content] if isinstance(content, str) else []
    return TreeReader(marks).text_of(nodes).replace("\n", " ")


def run(data: bytes, form: str, *, to: str = "json", seconds: int = TEXT_SECONDS) -> bytes:
    """Pandoc's output. Raises MarkupError where it cannot parse the data, DocumentError beyond time or memory."""
    command = [
        _binary(), "--sandbox", "--preserve-tabs", "--track-changes=accept", "--wrap=none", "-f", form, "-t", to,
        "+RTS", f"-M{HEAP_MB}m", "-RTS",
    ]  # fmt: skip
    environment = {"LANG": "C.UTF-8", "HOME": "/nonexistent"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env=environment
    ) as process:
        with suppress(ProcessLookupError):  # it ends by itself if this process is killed
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds + 1))
        try:
            output, errors = process.communicate(data, timeout=4 * seconds)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise _slow(seconds) from error
    if process.returncode == 0 and len(output) <= MAX_TREE:
        return output
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise _slow(seconds)
    message = errors.decode("utf-8", "replace").strip()
    exhausted = "eap exhausted" in message or "tack overflow" in message or "out of memory" in message
    if process.returncode < 0 or exhausted or len(output) > MAX_TREE:
        raise refused(f"body: reading it takes more than {HEAP_MB} MB; split the document", "memory-limit")
    raise MarkupError(" ".join(message.split())[:160] or f"exit code {process.returncode}")


def _slow(seconds: int) -> DocumentError:
    return refused(f"body: reading it takes more than {seconds} s; split or simplify the document", "time-limit")


@cache
def _binary() -> str:
    import pypandoc

    return str(pypandoc.get_pandoc_path())


_PREPARE: dict[str, Callable[[str, Marks], Prepared]] = {
    RST: pandoc_markup.restructured_text,
    ASCIIDOC: pandoc_markup.asciidoc,
    ORG: pandoc_markup.org,
    TEXTILE: textile,
}
_OFFICE: dict[str, Callable[[Body, Marks], Source]] = {
    DOCX: pandoc_docx.source,
    ODT: pandoc_odt.source,
    RTF: pandoc_office.rtf,
    EPUB: pandoc_office.epub,
}
