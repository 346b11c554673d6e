"""A hypothetical passage by a generator: what lies near it, from the dense leg alone, fused with the original list.

The passage is compared with and forgotten: no hit, no evidence, no cached text.
"""

from __future__ import annotations

from query_service.expansion import prompts
from query_service.expansion.merge import merged
from query_service.expansion.run import Run
from query_service.expansion.words import content, talks
from query_service.outcome import Outcome

WEIGHT = 0.7
REPLY_TOKENS = 200
LONGEST = 800  # characters of the passage that are compared with


async def hyde(run: Run) -> Outcome:
    """Raises what the original search raises; without a usable reply the original list is served."""
    near = run.ground.near
    if near is None:
        original = await run.original()
        run.note("hyde", "mode 'sparse' has no list that a passage could be compared in")
        return original
    original, reply, reason = await run.with_reply(run.generate(prompts.hypothetical(run.query), REPLY_TOKENS))
    text, tokens = reply if reply is not None else ("", 0)
    passage = " ".join(text.split())[:LONGEST]
    if not content(passage) or talks(passage):
        run.note("hyde", reason or "the reply held no passage", generated=True, tokens=tokens)
        return original
    found = await run.searched("hyde", passage, near, generated=True, weight=WEIGHT, tokens=tokens)
    return original if found.outcome is None else merged(original, [(found.outcome, WEIGHT)])
