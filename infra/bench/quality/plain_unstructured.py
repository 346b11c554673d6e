"""What plain ``unstructured`` finds in files: a script for any Python that has it, beside or without Headwater.

Reads lines of JSON ``{"path", "ocr"}`` from standard input and answers each with ``{"elements": [...]}`` or
``{"error"}``; an element is ``{"category", "text", "depth", "html"}``. The first line out tells the version.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Answer until standard input ends."""
    os.environ["UNSTRUCTURED_DISABLE_NOTICE"] = "1"
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        from unstructured.__version__ import __version__
        from unstructured.partition.auto import partition
    except ImportError as error:
        answers.write(json.dumps({"missing": str(error)}) + "\n")
        return
    answers.write(json.dumps({"version": __version__}) + "\n")
    answers.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        answers.write(json.dumps(_answer(partition, asked["path"], bool(asked["ocr"]))) + "\n")
        answers.flush()


def _answer(partition: Any, path: str, ocr: bool) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if path.endswith(".pdf") or ocr:
        more["strategy"] = "ocr_only" if ocr else "fast"
    if path.endswith(".eml"):
        more["process_attachments"] = True
    try:
        elements = partition(filename=path, **more)
    except Exception as error:  # whatever it is, it is the reader's answer to this file
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {
        "elements": [
            {
                "category": element.category,
                "text": element.text or "",
                "depth": element.metadata.category_depth,
                "html": element.metadata.text_as_html,
            }
            for element in elements
        ]
    }


if __name__ == "__main__":
    main()
