"""The report as one page that needs nothing else: verdict in words, then the evidence in pictures and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from pipeline.operate.verification import charts
from pipeline.operate.verification.style import STYLE
from pipeline.operate.verification.verdict import dropped, set_name
from schemas.verification import (
    FAULTS,
    AccessParity,
    Coverage,
    MeanChange,
    QuerySet,
    RetrievalParity,
    SourceCoverage,
    VerificationReport,
)

WORST = 20
DIFFERENCES = 50


def page(report: VerificationReport) -> str:
    """The whole page; every name in it is escaped."""
    body = [
        _verdict(report),
        _coverage(report.coverage),
        _access(report.access, report) if report.access is not None else "",
        _retrieval(report.retrieval, report) if report.retrieval is not None else "",
        _demands(report),
    ]
    title = f"Verification of {report.generation}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


# -- verdict -----------------------------------------------------------------------------------------------------------


def _verdict(report: VerificationReport) -> str:
    passed, generation = report.verdict.passed, escape(report.generation)
    against = escape(report.against) if report.against is not None else None
    if passed:
        compared = f", and serves everybody as well as <b>{against}</b>" if against else ""
        words = f"Generation <b>{generation}</b> holds what the log says{compared}. It may be activated."
    else:
        words = f"Generation <b>{generation}</b> must not be activated yet. Reasons, the gravest first:"
    took = (report.finished_at - report.started_at) / 1_000_000
    facts = [
        ("report", report.report_id),
        ("compared with", report.against or "nothing: it is the first"),
        ("finished", _moment(report.finished_at)),
        ("took", f"{took:.1f} s"),
    ]
    return (
        f'<header class="{"pass" if passed else "fail"}"><p class="badge">{"Passed" if passed else "Failed"}</p>'
        f"<h1>Verification of {generation}</h1><p>{words}</p>{_list(report.verdict.failures)}</header>"
        f'<dl class="facts">{"".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)}</dl>'
        + (f"<details open><summary>Remarks</summary>{_list(report.verdict.remarks)}</details>"
           if report.verdict.remarks else "")
    )  # fmt: skip


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# -- coverage ----------------------------------------------------------------------------------------------------------


def _coverage(coverage: Coverage) -> str:
    documents = sum(line.documents for line in coverage.sources)
    matched = sum(line.matched for line in coverage.sources)
    deleted = sum(line.deleted for line in coverage.sources)
    intro = (
        f"{matched:,} of {documents:,} documents stand at the log's version, {deleted:,} deletions were compared. "
        f"All chunks and sections were counted; {coverage.vectors_checked:,} vectors were read."
    )
    rows = [
        [
            escape(line.tenant), escape(line.source), _source_bar(line), f"{line.documents:,}", f"{line.matched:,}",
            f"{line.deleted:,}", f"{line.chunks:,}", _faults(line),
        ]
        for line in coverage.sources
    ]  # fmt: skip
    table = _table(
        ["tenant", "source", "", "on the log", "matched", "deleted", "chunks", "wrong"], rows, right=range(3, 7)
    )
    found = [
        [
            escape(f.fault), escape(f.document.key if f.document is not None else f.document_uid),
            str(f.expected or "–"), str(f.found or "–"), str(f.count), escape(f.detail),
        ]
        for f in coverage.findings
    ]  # fmt: skip
    findings = _table(["fault", "document", "on the log", "found", "count", "detail"], found, right=(2, 3, 4))
    return (
        f'<section><h2>Coverage</h2><p>{intro}</p><p class="legend"><i class="ok"></i>at the log\'s version'
        f'<i class="wait"></i>not read yet<i class="bad"></i>wrong</p>{table}'
        + (f"<h3>What is wrong, by document</h3>{findings}" if found else "")
        + "</section>"
    )


def _source_bar(line: SourceCoverage) -> str:
    wrong = max(0, line.documents - line.matched - line.pending)
    parts = [("ok", line.matched, "matched"), ("wait", line.pending, "pending"), ("bad", wrong, "wrong")]
    return charts.bar(parts, line.documents)


def _faults(line: SourceCoverage) -> str:
    named = [f'<span title="{escape(FAULTS[fault])}">{n:,} {escape(fault)}</span>' for fault, n in line.faults.items()]
    return ", ".join(named) or "nothing"


# -- access ------------------------------------------------------------------------------------------------------------


def _access(access: AccessParity, report: VerificationReport) -> str:
    people = len(access.principals)
    compared = report.against is not None
    intro = (
        f"{people} people were sampled (seed {access.seed}). Each was judged against all {access.documents:,} documents"
        f"{' in both generations' if compared else ''}: {access.decisions:,} decisions. {access.searches:,} searches "
        "were made as these people, and every hit was judged again."
    )
    most = max((max(s.here, s.there) for s in access.principals), default=1)
    rows = [
        [
            escape(s.tenant), escape(s.principal), escape(s.chosen.replace("_", " ")), f"{s.principals:,}",
            charts.bar([("ok" if s.here == s.there else "bad", s.here, "documents")], most), f"{s.here:,}",
            f"{s.there:,}" if compared else "–",
        ]
        for s in access.principals
    ]  # fmt: skip
    other = escape(report.against or "–")
    table = _table(
        ["tenant", "person", "chosen for", "principals", "", "sees here", f"sees in {other}"], rows, right=(3, 5, 6)
    )
    verdict = (
        '<p class="good">No difference.</p>'
        if not access.difference_count
        else f'<p class="bad-text">{access.difference_count:,} differences; the first are below.</p>'
    )
    lines = [
        [
            escape(d.kind.replace("_", " ")), escape(d.tenant), escape(d.principal),
            escape(d.document.key if d.document is not None else d.document_uid), escape(d.detail),
        ]
        for d in access.differences[:DIFFERENCES]
    ]  # fmt: skip
    listed = _table(["difference", "tenant", "person", "document", "detail"], lines) if lines else ""
    return (
        f"<section><h2>Permissions</h2><p>{intro}</p>{verdict}{listed}"
        f"<details{'' if people > 30 else ' open'}><summary>Sampled people</summary>{table}</details></section>"
    )


# -- retrieval ---------------------------------------------------------------------------------------------------------


def _retrieval(retrieval: RetrievalParity, report: VerificationReport) -> str:
    parts = ["<section><h2>Retrieval</h2>"]
    if not retrieval.sets:
        parts.append("<p>Nothing could be asked.</p>")
    for queries in retrieval.sets:
        parts.append(_query_set(queries, report))
    parts.append(_latency(retrieval, report))
    return "".join(parts) + "</section>"


def _query_set(queries: QuerySet, report: VerificationReport) -> str:
    compared = report.against is not None
    cards = [
        _card("nDCG@10", queries.ndcg),
        _card("recall@10", queries.recall),
    ]
    if queries.overlap is not None:
        cards.append(_plain_card("overlap@10", f"{queries.overlap:.2f}", "reported, not judged"))
    head = f"<h3>{queries.queries:,} {set_name(queries)}</h3><div class='cards'>{''.join(cards)}</div>"
    if not compared:
        return head
    overlaps = [o.overlap for o in queries.outcomes if o.overlap is not None]
    points = [
        (o.ndcg_there, o.ndcg_here, o.query)
        for o in queries.outcomes
        if o.ndcg_here is not None and o.ndcg_there is not None
    ]
    here, there = report.generation, report.against or ""
    figures = _figure(
        charts.pairs(points, f"nDCG@10 in {there}", f"nDCG@10 in {here}", "nDCG@10 by query in both generations"),
        "Ranking by query: above the line is better, below is worse.",
    ) + _figure(
        charts.histogram(overlaps, "documents in common among the first 10", "overlap by query"),
        "Overlap: another encoder may find other documents that are as good.",
    )
    return f"{head}<div class='figures'>{figures}</div>{_worst(queries, here, there)}"


def _worst(queries: QuerySet, here: str, there: str) -> str:
    lost = [o for o in queries.outcomes if (o.ndcg_here or 0.0) < (o.ndcg_there or 0.0)]
    lost.sort(key=lambda o: ((o.ndcg_here or 0.0) - (o.ndcg_there or 0.0), o.query))
    rows = [
        [
            escape(o.query), escape(o.seen_as), f"{o.ndcg_there or 0.0:.2f}", f"{o.ndcg_here or 0.0:.2f}",
            f"{(o.ndcg_here or 0.0) - (o.ndcg_there or 0.0):+.2f}", f"{o.overlap or 0.0:.2f}",
        ]
        for o in lost[:WORST]
    ]  # fmt: skip
    if not rows:
        return '<p class="good">No query ranks worse than before.</p>'
    table = _table(
        ["query", "asked as", f"nDCG in {escape(there)}", f"nDCG in {escape(here)}", "change", "overlap"],
        rows,
        right=range(2, 6),
    )
    return f"<details open><summary>Worst differences ({len(lost)} queries rank worse)</summary>{table}</details>"


def _latency(retrieval: RetrievalParity, report: VerificationReport) -> str:
    here, there = retrieval.latency_here, retrieval.latency_there
    if here is None:
        return ""
    outcomes = [o for queries in retrieval.sets for o in queries.outcomes]
    series: list[tuple[str, str, list[float]]] = [(report.generation, "here", [o.ms_here for o in outcomes])]
    cards = [_plain_card(f"p95 in {report.generation}", f"{here.p95:.0f} ms", f"p50 {here.p50:.0f} ms")]
    legend = f'<i class="here"></i>{escape(report.generation)}'
    if there is not None and report.against is not None:
        series.append((report.against, "there", [o.ms_there for o in outcomes if o.ms_there is not None]))
        cards.append(_plain_card(f"p95 in {report.against}", f"{there.p95:.0f} ms", f"p50 {there.p50:.0f} ms"))
        legend += f'<i class="there"></i>{escape(report.against)}'
    drawn = charts.cumulative(series, "milliseconds in the query service", "latency of both generations")
    return (
        f"<h3>Latency</h3><div class='cards'>{''.join(cards)}</div>"
        f"<div class='figures'>{_figure(drawn, f'<span class=legend>{legend}</span>')}</div>"
    )


def _card(name: str, change: MeanChange | None) -> str:
    if change is None:
        return ""
    if change.change is None:
        return _plain_card(name, f"{change.here:.3f}", "")
    bad = dropped(change)
    note = f"{change.there:.3f} before; change {change.change:+.3f} ({change.low:+.3f} to {change.high:+.3f})"
    return _plain_card(name, f"{change.here:.3f}", note, css="bad" if bad else "")


def _plain_card(name: str, value: str, note: str, css: str = "") -> str:
    inside = f"<b>{escape(value)}</b><span>{escape(name)}</span><small>{escape(note)}</small>"
    return f'<div class="card {css}">{inside}</div>'


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{caption}</figcaption></figure>"


def _demands(report: VerificationReport) -> str:
    demanded = report.thresholds
    rows = [
        ["coverage", escape(demanded.coverage)],
        ["permissions", escape(demanded.access)],
        [
            "ranking",
            f"nDCG@10 and recall@10 may not fall by more than {demanded.smallest_drop:g} with the whole "
            f"{demanded.level:.0%} interval of the paired difference below 0.",
        ],
        [
            "latency",
            f"p95 at most {demanded.latency_factor:g} times that of the other generation, or "
            f"{demanded.latency_floor_ms:.0f} ms.",
        ],
    ]
    return f"<section><h2>What was demanded</h2>{_table(['', ''], rows)}</section>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Cells are HTML already."""
    numbers = set(right)

    def cells(tag: str, line: Sequence[str]) -> str:
        return "".join(f"<{tag}{' class=n' if i in numbers else ''}>{cell}</{tag}>" for i, cell in enumerate(line))

    head = f"<thead><tr>{cells('th', heads)}</tr></thead>" if any(heads) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<div class='scroll'><table>{head}<tbody>{body}</tbody></table></div>"
