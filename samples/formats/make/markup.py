"""Markdown, wikitext, Textile, reStructuredText, AsciiDoc and Org, written by hand-made rules."""

from __future__ import annotations

from model import C, Doc, H, Img, L, M, Note, P, Pairs, T


class Markup:
    """Common walk; a subclass says how each node looks. ``lacks`` are kinds that the format cannot say."""

    lacks: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.notes: list[str] = []

    def page(self, doc: Doc) -> str:
        return "\n\n".join([*(self.node(n) for n in doc.nodes), *self.ending()]) + "\n"

    def ending(self) -> list[str]:
        return []

    def node(self, node: object) -> str:
        if isinstance(node, H):
            return self.heading(node)
        if isinstance(node, P):
            text = self.inline(node.runs)
            return self.quote(text) if node.kind == "quote" else text
        if isinstance(node, L):
            return "\n".join(self.items(node, []))
        if isinstance(node, T):
            return self.table(node)
        if isinstance(node, C):
            return self.code(node)
        if isinstance(node, Img):
            return self.image(node)
        if isinstance(node, Pairs):
            return self.pairs(node)
        if isinstance(node, Note):
            return self.note(node)
        assert isinstance(node, M)
        return self.math(node)

    def inline(self, runs: tuple) -> str:
        return "".join(r if isinstance(r, str) else self.run(r) for r in runs)

    def footnote(self, text: str) -> int:
        self.notes.append(text)
        return len(self.notes)


class Markdown(Markup):
    lacks = frozenset({"merged"})

    def __init__(self, *, fence: str = "```", front: bool = False) -> None:
        super().__init__()
        self._fence, self._front = fence, front

    def page(self, doc: Doc) -> str:
        text = super().page(doc)
        if self._front:
            text = f"---\ntitle: {doc.title}\nlang: {doc.language}\ntags: [harbour-shelf]\n---\n\n" + text
        return text

    def heading(self, node: H) -> str:
        return f"{'#' * node.level} {node.text}"

    def quote(self, text: str) -> str:
        return f"> {text}"

    def run(self, r) -> str:
        if r.kind == "fn":
            return f"[^{self.footnote(r.text)}]"
        if r.kind == "a":
            return f"[{r.text}]({r.target})"
        mark = {"b": "**", "i": "*", "c": "`"}[r.kind]
        return f"{mark}{r.text}{mark}"

    def ending(self) -> list[str]:
        return [f"[^{n}]: {text}" for n, text in enumerate(self.notes, 1)]

    def items(self, node: L, above: list[str]) -> list[str]:
        out = []
        for n, item in enumerate(node.items, 1):
            out.append("    " * len(above) + (f"{n}. " if node.ordered else "- ") + self.inline(item.runs))
            if item.inner:
                out += self.items(item.inner, [*above, "x"])
        return out

    def table(self, node: T) -> str:
        rows = ["| " + " | ".join((cell or "").replace("|", "\\|") for cell in row) + " |" for row in node.grid()]
        rule = "|" + " --- |" * len(node.grid()[0])
        table = "\n".join([*rows[:1], rule, *rows[1:]])
        return f"{node.caption}:\n\n{table}" if node.caption else table

    def code(self, node: C) -> str:
        return f"{self._fence}{node.language}\n{node.text}\n{self._fence}"

    def image(self, node: Img) -> str:
        return f"![{node.alt}]({node.source})\n\n*{node.caption}*"

    def pairs(self, node: Pairs) -> str:
        return "\n\n".join(f"{term}\n: {meaning}" for term, meaning in node.pairs)

    def note(self, node: Note) -> str:
        return f"> [!{node.label.upper()}]\n> {node.text}"

    def math(self, node: M) -> str:
        return f"$$\n{node.text}\n$$"


class Wikitext(Markup):
    def heading(self, node: H) -> str:
        marks = "=" * node.level
        return f"{marks} {node.text} {marks}"

    def quote(self, text: str) -> str:
        return f"<blockquote>{text}</blockquote>"

    def run(self, r) -> str:
        if r.kind == "fn":
            return f"<ref>{r.text}</ref>"
        if r.kind == "a":
            return f"[{r.target} {r.text}]"
        return {"b": f"'''{r.text}'''", "i": f"''{r.text}''", "c": f"<code>{r.text}</code>"}[r.kind]

    def items(self, node: L, above: list[str]) -> list[str]:
        marks, out = [*above, "#" if node.ordered else "*"], []
        for item in node.items:
            out.append("".join(marks) + " " + self.inline(item.runs))
            if item.inner:
                out += self.items(item.inner, marks)
        return out

    def table(self, node: T) -> str:
        out = ['{| class="wikitable"', f"|+ {node.caption}"] if node.caption else ['{| class="wikitable"']
        for n, row in enumerate(node.rows):
            out.append("|-")
            for cell in row:
                spans = " ".join(f'{k}="{v}"' for k, v in (("rowspan", cell.down), ("colspan", cell.across)) if v > 1)
                mark = "!" if n < node.header else "|"
                out.append(f"{mark} {spans} | {cell.text}" if spans else f"{mark} {cell.text}")
        return "\n".join([*out, "|}"])

    def code(self, node: C) -> str:
        return f'<syntaxhighlight lang="{node.language}">\n{node.text}\n</syntaxhighlight>'

    def image(self, node: Img) -> str:
        return f"[[File:{node.source.split('/')[-1]}|thumb|alt={node.alt}|{node.caption}]]"

    def pairs(self, node: Pairs) -> str:
        return "\n".join(f"; {term}\n: {meaning}" for term, meaning in node.pairs)

    def note(self, node: Note) -> str:
        return f"{{{{{node.label.title()}|{node.text}}}}}"

    def math(self, node: M) -> str:
        return f"<math display=\"block\">{node.text}</math>"

    def ending(self) -> list[str]:
        return ["<references />\n[[Category:Harbour shelf]]\n__NOTOC__"]


class Textile(Markup):
    lacks = frozenset({"math"})

    def heading(self, node: H) -> str:
        return f"h{node.level}. {node.text}"

    def quote(self, text: str) -> str:
        return f"bq. {text}"

    def run(self, r) -> str:
        if r.kind == "fn":
            return f"[{self.footnote(r.text)}]"
        if r.kind == "a":
            return f'"{r.text}":{r.target}'
        mark = {"b": "*", "i": "_", "c": "@"}[r.kind]
        return f"{mark}{r.text}{mark}"

    def ending(self) -> list[str]:
        return [f"fn{n}. {text}" for n, text in enumerate(self.notes, 1)]

    def items(self, node: L, above: list[str]) -> list[str]:
        marks, out = [*above, "#" if node.ordered else "*"], []
        for item in node.items:
            out.append("".join(marks) + " " + self.inline(item.runs))
            if item.inner:
                out += self.items(item.inner, marks)
        return out

    def table(self, node: T) -> str:
        out = []
        for n, row in enumerate(node.rows):
            line = "|"
            for cell in row:
                spans = (f"/{cell.down}" if cell.down > 1 else "") + (f"\\{cell.across}" if cell.across > 1 else "")
                head = "_" if n < node.header else ""
                line += f"{head}{spans}. {cell.text}|" if head or spans else f" {cell.text} |"
            out.append(line)
        return (f"{node.caption}:\n\n" if node.caption else "") + "\n".join(out)

    def code(self, node: C) -> str:
        from html import escape

        return f'<pre><code class="{node.language}">{escape(node.text, quote=False)}</code></pre>'

    def image(self, node: Img) -> str:
        return f"!{node.source}({node.alt})!\n\n{node.caption}"

    def pairs(self, node: Pairs) -> str:
        return "\n".join(f"- {term} := {meaning}" for term, meaning in node.pairs)

    def note(self, node: Note) -> str:
        return f"p({node.label}). {node.text}"


class Rst(Markup):
    marks = "=-~^"

    def heading(self, node: H) -> str:
        return f"{node.text}\n{self.marks[node.level - 1] * (2 * len(node.text))}"

    def quote(self, text: str) -> str:
        return f"..\n\n    {text}"  # the empty comment ends a list or a directive above

    def run(self, r) -> str:
        if r.kind == "fn":
            return f" [#n{self.footnote(r.text)}]_"
        if r.kind == "a":
            return f"`{r.text} <{r.target}>`__"
        mark = {"b": "**", "i": "*", "c": "``"}[r.kind]
        return f"{mark}{r.text}{mark}"

    def ending(self) -> list[str]:
        return [f".. [#n{n}] {text}" for n, text in enumerate(self.notes, 1)] + [".. a comment of the harbour clerk"]

    def items(self, node: L, above: list[str]) -> list[str]:
        out = []
        for n, item in enumerate(node.items, 1):
            out.append("  " * len(above) + (f"{n}. " if node.ordered else "- ") + self.inline(item.runs))
            if item.inner:
                out += ["", *self.items(item.inner, [*above, "x"]), ""]
        return out

    def table(self, node: T) -> str:
        grid = node.grid()
        columns = len(grid[0])
        owner: dict[tuple[int, int], tuple[int, int]] = {}
        text: dict[tuple[int, int], str] = {}
        for r, row in enumerate(node.rows):
            at = 0
            for cell in row:
                while (r, at) in owner:
                    at += 1
                text[r, at] = cell.text
                for dr in range(cell.down):
                    for dc in range(cell.across):
                        owner[r + dr, at + dc] = (r, at)
                at += cell.across
        single = {k: t for k, t in text.items() if owner.get((k[0], k[1] + 1)) != k}
        width = [max([3, *(len(t) for k, t in single.items() if k[1] == col)]) + 4 for col in range(columns)]

        def own(r: int, col: int) -> tuple[int, int]:
            return owner.get((r, col), (r, col))

        def bar(r: int) -> str:
            fill = "=" if r == node.header else "-"
            inside = [0 < r < len(grid) and own(r - 1, col) == own(r, col) for col in range(columns)]
            out = "|" if inside[0] else "+"
            for col in range(columns):
                out += (" " if inside[col] else fill) * width[col]
                out += "|" if inside[col] and (col + 1 == columns or inside[col + 1]) else "+"
            return out

        lines = [bar(0)]
        for r in range(len(grid)):
            line, col = "|", 0
            while col < columns:
                key, room, first = own(r, col), width[col], col
                while col + 1 < columns and own(r, col + 1) == key:
                    col += 1
                    room += width[col] + 1
                line += f" {text.get(key, '') if key == (r, first) else ''}".ljust(room) + "|"
                col += 1
            lines += [line, bar(r + 1)]
        table = "\n".join(lines)
        if not node.caption:
            return table
        return f".. table:: {node.caption}\n\n" + "\n".join("   " + line for line in table.split("\n"))

    def code(self, node: C) -> str:
        body = "\n".join("   " + line if line else "" for line in node.text.split("\n"))
        return f".. code-block:: {node.language}\n\n{body}"

    def image(self, node: Img) -> str:
        return f".. figure:: {node.source}\n   :alt: {node.alt}\n\n   {node.caption}"

    def pairs(self, node: Pairs) -> str:
        return "\n".join(f"{term}\n    {meaning}" for term, meaning in node.pairs)

    def note(self, node: Note) -> str:
        return f".. {node.label}:: {node.text}"

    def math(self, node: M) -> str:
        return f".. math::\n\n   {node.text}"


class Asciidoc(Markup):
    def heading(self, node: H) -> str:
        return f"{'=' * node.level} {node.text}"

    def quote(self, text: str) -> str:
        return f"[quote]\n____\n{text}\n____"

    def run(self, r) -> str:
        if r.kind == "fn":
            return f"footnote:[{r.text}]"
        if r.kind == "a":
            return f"{r.target}[{r.text}]" if "://" in r.target else f"link:{r.target}[{r.text}]"
        mark = {"b": "*", "i": "_", "c": "`"}[r.kind]
        return f"{mark}{r.text}{mark}"

    def items(self, node: L, above: list[str]) -> list[str]:
        marks, out = [*above, "." if node.ordered else "*"], []
        for item in node.items:
            out.append("".join(marks) + " " + self.inline(item.runs))
            if item.inner:
                out += self.items(item.inner, marks)
        return out

    def table(self, node: T) -> str:
        columns = len(node.grid()[0])
        out = [f".{node.caption}"] if node.caption else []
        head = ',options="header"' if node.header == 1 else ""  # the format has one header row at most
        out += [f'[cols="{columns}*"{head}]', "|==="]
        for n, row in enumerate(node.rows):
            line = []
            for cell in row:
                span = f"{cell.across}" if cell.across > 1 else ""
                span += f".{cell.down}" if cell.down > 1 else ""
                line.append(f"{span + '+' if span else ''}|{cell.text}")
            out.append(" ".join(line))
            if n == 0 and head:
                out.append("")
        return "\n".join([*out, "|==="])

    def code(self, node: C) -> str:
        return f"[source,{node.language}]\n----\n{node.text}\n----"

    def image(self, node: Img) -> str:
        return f'.{node.caption}\nimage::{node.source}["{node.alt}"]'

    def pairs(self, node: Pairs) -> str:
        return "\n".join(f"{term}:: {meaning}" for term, meaning in node.pairs)

    def note(self, node: Note) -> str:
        return f"{node.label.upper()}: {node.text}"

    def math(self, node: M) -> str:
        return f"[latexmath]\n++++\n{node.text}\n++++"

    def ending(self) -> list[str]:
        return ["// a comment of the harbour clerk"]


class Org(Markup):
    lacks = frozenset({"merged", "note"})

    def heading(self, node: H) -> str:
        return f"{'*' * node.level} {node.text}"

    def quote(self, text: str) -> str:
        return f"#+BEGIN_QUOTE\n{text}\n#+END_QUOTE"

    def run(self, r) -> str:
        if r.kind == "fn":
            return f"[fn:{self.footnote(r.text)}]"
        if r.kind == "a":
            return f"[[{r.target}][{r.text}]]"
        mark = {"b": "*", "i": "/", "c": "="}[r.kind]
        return f"{mark}{r.text}{mark}"

    def ending(self) -> list[str]:
        return ["# a comment of the harbour clerk", *(f"[fn:{n}] {text}" for n, text in enumerate(self.notes, 1))]

    def items(self, node: L, above: list[str]) -> list[str]:
        out = []
        for n, item in enumerate(node.items, 1):
            out.append("   " * len(above) + (f"{n}. " if node.ordered else "- ") + self.inline(item.runs))
            if item.inner:
                out += self.items(item.inner, [*above, "x"])
        return out

    def table(self, node: T) -> str:
        rows = ["| " + " | ".join(cell or "" for cell in row) + " |" for row in node.grid()]
        rule = "|" + "+".join(["---"] * len(node.grid()[0])) + "|"
        caption = [f"#+CAPTION: {node.caption}"] if node.caption else []
        return "\n".join([*caption, rows[0], rule, *rows[1:]])

    def code(self, node: C) -> str:
        return f"#+BEGIN_SRC {node.language}\n{node.text}\n#+END_SRC"

    def image(self, node: Img) -> str:
        return f"#+CAPTION: {node.caption}\n#+ATTR_HTML: :alt {node.alt}\n[[file:{node.source}]]"

    def pairs(self, node: Pairs) -> str:
        return "\n".join(f"- {term} :: {meaning}" for term, meaning in node.pairs)

    def math(self, node: M) -> str:
        return f"\\[\n{node.text}\n\\]"
