"""Makes samples/formats/files and samples/formats/truth: python samples/formats/make (libraries: see ../README.md)."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import letters
import office
import paper
import web
from markup import Asciidoc, Markdown, Org, Rst, Textile, Wikitext
from model import Doc, H, P, T, truth
from pages import DOCS

ROOT = Path(__file__).parents[1]
FILES, TRUTH = ROOT / "files", ROOT / "truth"
OOXML = "application/vnd.openxmlformats-officedocument."


def put(name: str, data: bytes | str, form: str, content_type: str, found: dict[str, Any], **more: Any) -> None:
    (FILES / name).write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
    line = {"file": name, "format": form, "content_type": content_type, **found, **more}
    text = json.dumps(line, ensure_ascii=False, indent=1)
    (TRUTH / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def pathless(found: dict[str, Any]) -> dict[str, Any]:
    """For formats that have no headings: they are read as text, and no path is asked for."""
    for piece in found["pieces"]:
        piece["path"] = None
        if piece["kind"] == "heading":
            piece["kind"] = "text"
    return found


def markup() -> None:
    for name in ("gauge", "pump", "vogel"):
        for dress in ("semantic", "divs", "hidden"):
            if (name, dress) in {("vogel", "hidden"), ("pump", "hidden")}:
                continue
            html, gone = web.page(DOCS[name], dress)
            found = truth(DOCS[name])
            put(f"{name}-{dress}.html", html, "HTML", "text/html; charset=utf-8", {**found, "forbidden": gone})
    html, gone = web.page(DOCS["tongues"], "semantic")
    put("tongues.html", html, "HTML", "text/html", {**truth(DOCS["tongues"]), "forbidden": gone})
    put("ledger.html", web.page(DOCS["ledger"], "divs")[0], "HTML", "text/html; charset=utf-8",
        {**truth(DOCS["ledger"]), "forbidden": web.page(DOCS["ledger"], "divs")[1]})
    put("unlucky.html", letters.UNLUCKY_HTML, "HTML", "text/html", truth(letters.UNLUCKY))
    for name in ("gauge", "pump", "vogel", "tongues"):
        doc = DOCS[name].without(set(Markdown.lacks))
        made = Markdown(fence="~~~" if name == "pump" else "```", front=name == "vogel").page(doc)
        put(f"{name}.md", made, "Markdown", "text/markdown; charset=utf-8",
            {**truth(doc), "forbidden": ["harbour-shelf"] if name == "vogel" else []})
    put("fences.md", letters.FENCES_MD, "Markdown", "text/markdown", truth(letters.FENCES))
    for name in ("gauge", "pump", "vogel"):
        doc = DOCS[name].without({"math"})
        put(f"{name}.confluence", web.Confluence().page(doc), "Confluence", "application/vnd.atlassian.confluence", truth(doc))
    kinds = [("wiki", "wikitext", "text/x-wiki", Wikitext), ("textile", "Textile", "text/x-textile", Textile),
             ("rst", "reStructuredText", "text/x-rst", Rst), ("adoc", "AsciiDoc", "text/asciidoc", Asciidoc),
             ("org", "Org", "text/org", Org)]
    for suffix, form, media, writer in kinds:
        for name in ("gauge", "pump", "vogel"):
            doc = DOCS[name].without(set(writer.lacks))
            gone = ["a comment of the harbour clerk"] if suffix in ("rst", "adoc", "org") else ["NOTOC"] * (suffix == "wiki")
            put(f"{name}.{suffix}", writer().page(doc), form, f"{media}; charset=utf-8", {**truth(doc), "forbidden": gone})
    put("templated.wiki", letters.TEMPLATED_WIKI, "wikitext", "text/x-wiki",
        {**truth(letters.TEMPLATED), "forbidden": ["NOTOC"]})


def offices() -> None:
    for name in ("gauge", "pump", "vogel", "ledger"):
        doc = DOCS[name].without(office.LACKS["docx"])
        put(f"{name}.docx", office.docx(doc), "DOCX", OOXML + "wordprocessingml.document",
            {**truth(doc), "forbidden": office.DOCX_FORBIDDEN})
    for kind, media, names in (("odt", "application/vnd.oasis.opendocument.text", ("gauge", "pump", "vogel")),
                               ("rtf", "application/rtf", ("gauge", "vogel")),
                               ("epub", "application/epub+zip", ("gauge", "vogel", "tongues"))):
        for name in names:
            doc = DOCS[name].without(office.LACKS[kind])
            gone = {"rtf": ["Running head of the portal"], "epub": ["Jump to leaf"], "odt": []}[kind]
            put(f"{name}.{kind}", getattr(office, kind)(doc), kind.upper(), media, {**truth(doc), "forbidden": gone})
    for name in ("brief", "vogel", "memo"):
        doc = DOCS[name].without(office.LACKS["pptx"])
        doc = Doc(doc.name, doc.language, tuple(T([list(x.text for x in r) for r in n.rows]) if isinstance(n, T) else n
                                                for n in doc.nodes))
        found = truth(Doc(doc.name, doc.language, tuple(H(1, n.text) if isinstance(n, H) else n for n in doc.nodes)))
        put(f"{name}.pptx", office.pptx(doc), "PPTX", OOXML + "presentationml.presentation", found)
    tables = {n: [x for x in DOCS[n].nodes if isinstance(x, T)] for n in ("ledger", "pump", "vogel")}
    for name, sheets in (("ledger", ["Deliveries", "Signatures"]), ("pump", ["Service"]), ("vogel", ["Summen"])):
        pieces = truth(Doc(name, "en", tuple(x for pair in zip(sheets, tables[name])
                                            for x in (H(1, pair[0]), T([list(r) for r in pair[1].rows], header=pair[1].header)))))
        put(f"{name}.xlsx", office.xlsx(list(zip(sheets, tables[name]))), "XLSX", OOXML + "spreadsheetml.sheet",
            {**pieces, "forbidden": ["hidden reckoning of the clerk"]})


def loose() -> None:
    berths = pathless(truth(Doc("berths", "en", (letters.BERTHS,))))
    put("berths.csv", letters.separated(letters.BERTHS), "CSV", "text/csv; charset=utf-8", berths)
    put("berths-semicolon.csv", letters.separated(letters.BERTHS, ";", "cp1252"), "CSV", "text/csv; charset=windows-1252", berths)
    ledger = pathless(truth(Doc("ledger", "en", tuple(n for n in DOCS["ledger"].nodes if isinstance(n, T))[:1])))
    ledger["pieces"][0]["text"] = ""
    rows = next(n for n in DOCS["ledger"].nodes if isinstance(n, T))
    put("ledger.csv", letters.separated(rows, ";"), "CSV", "text/csv", ledger)
    put("ledger.tsv", letters.separated(rows, "\t"), "TSV", "text/tab-separated-values", ledger)
    for name, (charset, lines) in letters.TEXTS.items():
        found = pathless(truth(Doc(name, "", tuple(P(line) for line in lines))))
        put(name, "\n\n".join(lines).encode(charset), "text", "text/plain", found)
    memo = [n for n in DOCS["memo"].nodes if isinstance(n, P)]
    memo_text = "\r\n\r\n".join(n.runs[0] for n in memo)
    put("memo.txt", memo_text, "text", "text/plain; charset=utf-8", pathless(truth(Doc("memo", "en", tuple(memo)))))

    def mailed(*nodes: Any, subject: str = letters.SUBJECT) -> dict[str, Any]:
        return truth(Doc("mail", "en", (H(1, subject), *nodes)))

    secret = {"forbidden": ["hidden.ear", "Message-ID", "a1@ostrand"],
              "optional": ["From: Watch <watch@ostrand.example>", "To: crew@ostrand.example", "Date: 2026-01-12 06:30+00:00",
                           "Attachment: berths.csv", "Attachment: sluice.docx", "Attachment: memo.pdf"]}
    twice = {**secret, "optional": [*secret["optional"], *secret["optional"], "Attachment:", "Prêt à geler", "Prêt à geler"]}
    eml = "message/rfc822"
    put("plain.eml", letters.mail("plain"), "mail", eml, {**mailed(*letters.PLAIN), **secret})
    put("latin1.eml", letters.mail("latin1"), "mail", eml, {**mailed(*letters.FRENCH, subject="Prêt à geler"), **secret})
    put("both.eml", letters.mail("both"), "mail", eml, {**mailed(*letters.PLAIN, letters.BOLLARDS), **secret})
    brief = DOCS["brief"].without(office.LACKS["docx"])
    files = [("berths.csv", "text/csv", (FILES / "berths.csv").read_bytes()),
             ("sluice.docx", OOXML + "wordprocessingml.document", office.docx(brief)),
             ("memo.pdf", "application/pdf", paper.pdf(DOCS["memo"]))]
    inside = truth(Doc("x", "en", (*letters.PLAIN, letters.BERTHS, *brief.nodes,
                                  *(n for n in DOCS["memo"].nodes))))
    for piece in inside["pieces"]:
        piece["path"] = None
    put("attachments.eml", letters.mail("plain", files), "mail", eml,
        {**inside, "optional": [*secret["optional"], letters.SUBJECT], "forbidden": [*secret["forbidden"], "vanished remark of the clerk"]})
    forwarded = letters.mail("plain", [("x", eml, letters.mail("latin1"))])
    put("forwarded.eml", forwarded, "mail", eml, {**mailed(*letters.PLAIN, *letters.FRENCH), **twice})
    found = json.loads((TRUTH / "forwarded.eml.json").read_text(encoding="utf-8"))
    for piece in found["pieces"]:
        piece["path"] = piece["path"] if piece["text"] in {n.runs[0] for n in letters.PLAIN} else None
    (TRUTH / "forwarded.eml.json").write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def papers() -> None:
    for name in ("gauge", "vogel", "ledger", "brief"):
        doc = DOCS[name].without({"fn", "math", "image", "note", "merged", "definitions", "a"})
        found = truth(doc)
        for piece in found["pieces"]:
            piece["text"] = piece["text"].expandtabs(4)  # a page has no tabs
        put(f"{name}.pdf", paper.pdf(doc), "PDF", "application/pdf", found)
    put("columns.pdf", paper.pdf(DOCS["brief"], columns=2), "PDF", "application/pdf", truth(DOCS["brief"]))
    parts = [DOCS[name] for name in ("gauge", "brief", "vogel", "ledger", "memo")]
    doc = Doc("long", "mul", tuple(n for part in parts for n in part.nodes)).without({"fn", "quote", "a", "code", "image", "note"})
    put("long.pdf", paper.pdf(doc, furniture=True, size=12.5), "PDF", "application/pdf", {**truth(doc), "forbidden": paper.PDF_FORBIDDEN})
    doc = DOCS["pump"].without({"math", "merged"})
    put("printed.pdf", paper.printed(web.page(doc, "plain")[0]), "PDF", "application/pdf", {**truth(doc), "links": []})

    brief, memo = DOCS["brief"], DOCS["memo"]
    pages = {n: paper.picture(DOCS[n]) for n in ("brief", "memo")}
    rough = paper.picture(memo, noise=1500, slant=0.7)
    seen = {n: pathless(truth(DOCS[n])) for n in ("brief", "memo")}
    both = {**seen["brief"], "pieces": seen["brief"]["pieces"] + seen["memo"]["pieces"]}
    put("brief-scan.pdf", paper.scanned([pages["brief"]]), "scan", "application/pdf", seen["brief"], ocr=True)
    put("two-page-scan.pdf", paper.scanned([pages["brief"], pages["memo"]]), "scan", "application/pdf", both, ocr=True)
    put("mixed.pdf", paper.mixed(paper.pdf(brief), paper.scanned([pages["memo"]])), "scan", "application/pdf", both, ocr=True)
    for name, suffix, kind in (("brief", "png", "PNG"), ("memo", "jpg", "JPEG"), ("brief", "webp", "WEBP"),
                               ("memo", "gif", "GIF"), ("memo", "bmp", "BMP")):
        put(f"{name}.{suffix}", paper.image(pages[name], kind), "image", f"image/{kind.lower()}", seen[name], ocr=True)
    put("rough.png", paper.image(rough, "PNG"), "image", "image/png", seen["memo"], ocr=True)
    put("two-pages.tiff", paper.tiff_pages(list(pages.values())), "image", "image/tiff", both, ocr=True)


def main() -> None:
    for folder in (FILES, TRUTH):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for step in (markup, offices, loose, papers):
        step()
    size = sum(f.stat().st_size for f in FILES.iterdir())
    print(f"{len(list(FILES.iterdir()))} files, {size / 1e6:.2f} MB")


main()
