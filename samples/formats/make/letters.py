"""Mail, separated values, plain text in several charsets, and pages that were written by hand to be difficult."""

from __future__ import annotations

import csv
import io
from email.message import EmailMessage

from model import C, Cell, Doc, H, L, P, T, a, c

SUBJECT = "Ice on the lee pier"


def mail(kind: str, attachments: list[tuple[str, str, bytes]] = ()) -> bytes:
    """kind is plain, latin1 or both (plain and HTML); attachments are (name, media type, bytes)."""
    made = EmailMessage()
    made["Subject"] = SUBJECT if kind != "latin1" else "Prêt à geler"
    made["From"], made["To"] = "Watch <watch@ostrand.example>", "crew@ostrand.example"
    made["Date"], made["Message-ID"] = "Mon, 12 Jan 2026 06:30:00 +0000", "<a1@ostrand.example>"
    made["Bcc"] = "hidden.ear@ostrand.example"
    if kind == "latin1":
        made.set_content("La jetée est gelée depuis minuit.\n\nN'y allez pas seul, sauf en service.\n", charset="iso-8859-1")
    else:
        made.set_content("The lee pier froze over at four.\n\nNobody walks there alone, unless roped.\n")
    if kind == "both":
        made.add_alternative(
            "<html><body><p>The lee pier froze over at four.</p><p>Nobody walks there alone, unless roped.</p>"
            "<table><tr><th>Bollard</th><th>Ice</th></tr><tr><td>B-11</td><td>4 cm</td></tr></table></body></html>",
            subtype="html")
    for name, media, data in attachments:
        main, sub = media.split("/", 1)
        if media == "message/rfc822":
            from email import message_from_bytes, policy

            made.add_attachment(message_from_bytes(data, policy=policy.default))
        else:
            made.add_attachment(data, maintype=main, subtype=sub, filename=name)
    if attachments:
        made.set_boundary("=-harbour-outer")
    return made.as_bytes()


PLAIN = (P("The lee pier froze over at four."), P("Nobody walks there alone, unless roped."))
FRENCH = (P("La jetée est gelée depuis minuit."), P("N'y allez pas seul, sauf en service."))
BOLLARDS = T([["Bollard", "Ice"], ["B-11", "4 cm"]])


def separated(node: T, delimiter: str = ",", encoding: str = "utf-8", first: str = "") -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\r\n")
    for row in node.grid():
        writer.writerow([cell or "" for cell in row])
    return (first + out.getvalue()).encode(encoding)


BERTHS = T([["Berth", "Depth", "Remark"],
            ["N1", "6.5", "quay wall, new fenders"],
            ["N2", "7.0", 'called "the long one"'],
            ["S4; east", "4.25", "rocks\nat low water"],
            ["S5", "", "closed"]])

TEXTS = {  # name: (charset, paragraphs)
    "notice-utf8.txt": ("utf-8-sig", ("Ölsperre am Kai: Schiffe über 40 m warten draußen.", "Ausgenommen ist die Fähre.")),
    "notice-cp1252.txt": ("cp1252", ("[2026-03-02] Überlauf am nördlichen Wehr gemeldet.", "Der Schieber ist für zwei Stunden geöffnet.")),
    "notice-sjis.txt": ("shift_jis", ("霧のため渡し船は正午まで欠航します。再開は赤い旗で知らせます。", "荷物は倉庫の北側に置いてください。鍵は当直が持っています。")),
    "notice-utf16.txt": ("utf-16", ("Сирена звучит дважды перед отливом.", "Лодки убирают до второго сигнала.")),
    "notice-koi8.txt": ("koi8-r", ("Маяк не горит с понедельника, потому что ждут новую лампу из мастерской.",
                                  "Капитаны идут по створу старой церкви и держатся левого берега.")),
}

UNLUCKY = Doc("unlucky", "en", (
    H(1, "Mooring in a swell"),
    P("When the swell runs over one metre, ships lie on four lines instead of two."),
    P("The stern line is made fast first, because the current sets from the mill."),
    H(2, "Nested sums"),
    T([["Line", "Load"], ["bow", "12 kN"], ["stern", "31 kN"]]),
    P("Formula of the chandler: H2O weighs more than x^2 litres suggest."),
), ("Follow the portal on Chirper",))
UNLUCKY_HTML = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Mooring in a swell</title></head>
<body class="has-sidebar footer-fixed"><div class="content-footer-wrapper"><div class="banner-ad-free"><h1>Mooring in a swell
<p>When the swell runs over <b>one</b> metre, ships lie on f<i>ou</i>r lines instead of two.
<p>The stern line is made fast first, be&shy;cause the current sets from the mill.</p>
<h2>Nested sums</h2><table class="layout"><tr><td><table><tr><th>Line<th>Load<tr><td>bow<td>12&nbsp;kN<tr><td>stern<td>31 kN</table>
</td></tr></table><p>Formula of the chandler: H<sub>2</sub>O weighs more than x<sup>2</sup> litres suggest.</p></div></div>
<div class="social-links"><a href="https://chirper.example">Follow the portal on Chirper</a></div></body></html>
"""
UNLUCKY_HTML = UNLUCKY_HTML.replace("in a swell\n<p>", "in a swell</h1>\n<p>")

FENCES = Doc("fences", "en", (
    H(1, "Signals by lamp"),
    P("The lamp speaks in long and short. A keeper writes them as a script:"),
    C("sh", "# not a heading\n\nlamp long   3\n\tlamp short 1\n    lamp long 2\n"),
    H(2, "Longer scripts"),
    P("Fences may hold fences:"),
    C("markdown", "```sh\nlamp off\n```"),
    H(2, "Costs"),
    P("A lamp costs $5 and a wick costs $6."),
    T([["Part", "Where | when"], ["wick", "drawer a|b"], ["glass", "shelf"]]),
    L("Trim the wick.", "Wipe the glass."),
), ("comment of the keeper",))
FENCES_MD = """Signals by lamp
===============

The lamp speaks in long and short.
A keeper writes them as a script:

~~~ {.sh}
# not a heading

lamp long   3
\tlamp short 1
    lamp long 2

~~~

<!-- comment of the keeper -->

Longer scripts
--------------

Fences may hold fences:

````markdown
```sh
lamp off
```
````

## Costs ##

A lamp costs $5 and a wick costs $6.

Part | Where \\| when
-----|------
wick | `drawer a\\|b`
glass | shelf

* Trim the wick.
* Wipe the glass.
"""
FENCES_MD = FENCES_MD.replace("~~~ {.sh}", "~~~sh")

TEMPLATED = Doc("templated", "en", (
    P("The ferry Lomvi crosses the sound in eleven minutes and carries nine carts."),
    H(2, "Timetable"),
    T([["Day", "First", "Last"], ["weekdays", "05:40", "22:10"], ["Sundays", "08:00", "19:30"]]),
    P("See the pier rules before boarding with a bicycle."),
    C("text", "{{not a template}} [[not a link]]"),
), ("REDIRECT TARGET GUARD", "Category:Ferries"))
TEMPLATED_WIKI = """__NOTOC__
{{Infobox ship
| name = Lomvi
}}
The ferry '''Lomvi''' crosses the [[Sound (water)|sound]] in eleven minutes and carries nine carts.

== Timetable ==
{| class="wikitable" style="width:80%"
! Day !! First !! Last
|-
| weekdays || 05:40 || 22:10
|-
| Sundays || 08:00 || 19:30
|}

See the [[pier rules]] before boarding with a bicycle.

<pre>{{not a template}} [[not a link]]</pre>

[[Category:Ferries]]
"""
__all__ = ["Cell", "a", "c"]
