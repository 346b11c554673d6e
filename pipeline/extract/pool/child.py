"""The process that reads documents: ``python -m pipeline.extract.pool.child TASK``, messages over stdin and stdout."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from typing import Any

from pipeline.errors import DocumentError
from pipeline.extract.extractor import BlockExtractor
from pipeline.extract.pool import frames, sandbox
from pipeline.extract.pool.task import Task
from pipeline.extract.reading import refused

REASON_LENGTH = 2000
# A page of each kind, long enough for its language to be detected: what it loads is there before the first document,
# and before the limits, which count what a document takes and not what reading it at all takes.
_WORDS = (
    "The heron stands in the shallow water and waits for a fish; it has all the time in the world, and so do we. " * 2
)
_PAGES: tuple[tuple[str, str], ...] = (
    ("text/markdown", f"# One\n\n{_WORDS}\n"),
    ("text/html", f"<html><body><p>{_WORDS}</p></body></html>"),
)


def main(argument: str) -> None:
    """Reads documents until the end of input, or until a document leaves something behind that only an end removes."""
    task = Task.unpacked(argument)
    source, sink = _take_pipes()
    missing = sandbox.fence(task.parent)
    extractor = BlockExtractor(task.limits)
    for media, text in _PAGES[: 1 if task.heavy else None]:
        with contextlib.suppress(Exception):  # the first real document says what is wrong
            extractor.extract(text.encode("ascii"), media)
    sandbox.limit(heavy=task.heavy, memory=task.memory, file_bytes=task.file_bytes)
    frames.send(sink, {"ready": True, "missing": missing})
    while (frame := frames.receive(source, frames.MAX_BODY)) is not None:
        sandbox.allow_cpu(task.cpu_s)
        header, payload = _answer(extractor, frame, task)
        if _left_subprocesses():
            header["leaving"] = True
        _empty_folder()
        frames.send(sink, header, payload)
        if header.get("leaving"):
            break


def _take_pipes() -> tuple[int, int]:
    """The two pipes under other numbers that no subprocess inherits; what a library prints goes to stderr."""
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return source, sink


def _answer(extractor: BlockExtractor, frame: frames.Frame, task: Task) -> tuple[dict[str, Any], bytes]:
    """Header and payload of the reply; every exception becomes a reason."""
    try:
        return _extracted(extractor, frame, task)
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            return _error(
                refused(
                    f"body: reading it writes a file of more than {task.file_bytes >> 20} MB; split it or raise "
                    "extraction.unpacked_mb",
                    "output",
                )
            )
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            return _failed(error)
        return _error(
            refused(
                f"body: reading it takes more than {task.memory >> 20} MB of memory; split it or raise "
                "extraction.memory_mb",
                "memory-limit",
            ),
            leaving=True,  # what is left of the heap may be in pieces
        )


def _extracted(extractor: BlockExtractor, frame: frames.Frame, task: Task) -> tuple[dict[str, Any], bytes]:
    content_type, path = str(frame.header["content_type"]), frame.header["path"]
    try:
        document = extractor.extract(frame.payload, content_type, path=path)
        payload = document.model_dump_json().encode("utf-8")
    except DocumentError as error:
        return _error(error)
    except RecursionError:
        return _error(
            refused("body: its parts are nested too deeply to be read; flatten them at the source", "nesting"),
            leaving=True,
        )
    except (MemoryError, OSError):
        raise
    except Exception as error:
        return _failed(error)
    if len(payload) > task.reply_bytes:
        return _error(
            refused(
                f"body: {len(payload)} bytes of extracted text, over {task.reply_bytes}; split it or raise "
                "extraction.output_mb",
                "output",
            )
        )
    return {"ok": True}, payload


def _failed(error: Exception) -> tuple[dict[str, Any], bytes]:
    return _error(
        refused(
            f"body: its reader failed ({type(error).__name__}: {str(error)[:300]}); report it with the document, or "
            "send the text in another format",
            "reader-failed",
        )
    )


def _error(error: DocumentError, *, leaving: bool = False) -> tuple[dict[str, Any], bytes]:
    return {"reason": error.reason[:REASON_LENGTH], "kind": error.kind[:100], "leaving": leaving}, b""


def _left_subprocesses() -> bool:
    """Whether subprocesses of the document are left; ended ones are waited for."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _empty_folder() -> None:
    """Nothing of a document stays for the next one."""
    with os.scandir(".") as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # a parent that is gone needs no traceback
        main(sys.argv[1])
    os._exit(0)
