"use strict";

// How one answer looks: its sentences, sources, refusal, contradictions, and what can be done with it.

const WHY = {
  nothing_found: "Nothing was found", weak_evidence: "Too little was found", stale: "Not up to date enough",
  unsupported: "The sources do not say it", contradictory: "The sources contradict each other",
};
const VERDICTS = [["helpful", "Helpful"], ["not_helpful", "Not helpful"], ["wrong", "Wrong"], ["outdated", "Outdated"]];
const CODE = /^[^\n]*\S[^\n]*\n[\s\S]*\S/; // what has several lines: prose, items and rows have one each
const ITEM = /^\s*(?:[-*•+]|(\d{1,3})[.)])\s+([\s\S]*)$/;

// A sentence as people read it: code as code, and without the other marks of Markdown, as in hits.
function written(text) {
  return text.split(/`([^`\n]+)`/).map((part, i) => (i % 2 ? element("code", {}, part) : words(part))).filter((part) => part !== "");
}

function words(text) {
  return plainly(Array.from(text), "text/markdown").join("");
}

// Puts sentences into a place one after the other: prose into paragraphs, items and steps into lists, code into blocks.
class Sheet {
  constructor(place, footnote) {
    this.place = place;
    this.footnote = footnote;
    this.block = null;
  }

  add(s) {
    const code = CODE.test(s.text), item = code ? null : ITEM.exec(s.text);
    const unsure = s.qualified ? element("span", { class: "unsure" }, "not stated plainly: ") : null;
    const notes = [...s.citations.map(this.footnote), " "];
    if (code) {
      const block = element("pre", { tabindex: "0", "aria-label": "Code" }, element("code", {}, s.text));
      this.open("div", "code").append(element("div", { class: "sentence" }, unsure, block, ...notes));
    } else if (item) {
      const line = element("li", { class: "sentence", ...(item[1] ? { value: item[1] } : {}) }, unsure, ...written(item[2]), ...notes);
      this.open(item[1] ? "ol" : "ul").append(line);
    } else {
      this.open("p").append(element("span", { class: "sentence" }, unsure, ...written(s.text), ...notes));
    }
  }

  // The block that is open, where it is of this kind; else a new one. Code stands alone.
  open(name, kind = "") {
    if (!this.block || kind || this.block.className || this.block.localName !== name) {
      this.block = element(name, kind ? { class: kind } : {});
      this.place.append(this.block);
    }
    return this.block;
  }
}

function source(c, open) {
  const link = c.url ? safeLink(c.url) : null;
  return element("details", { class: "source", "data-number": c.number, ...(open ? { open: "" } : {}) },
    element("summary", {}, element("span", { class: "number" }, `[${c.number}]`), ` ${c.title || c.document_id}`),
    element("p", { class: "path" }, [c.document_id, ...c.heading_path].join(" › ")),
    c.quote ? element("blockquote", { class: "text" }, element("mark", {}, words(c.quote))) : null,
    element("ul", { class: "facts" },
      element("li", { class: "strong" }, c.source),
      element("li", { title: c.updated_at ? moment(c.updated_at) : "" }, `${age(c.age_s)} old`),
      element("li", {}, `version of ${moment(c.version)}`),
      c.in_effect === false ? element("li", { class: "doubted" }, "not in effect") : null,
      link ? element("li", {}, element("a", { href: link, rel: "noreferrer noopener", target: "_blank" }, "at its source")) : null),
    element("button", { type: "button", class: "quiet", onclick: () => openDocument(c.document_uid, c.quote, tell) }, "Read it here"));
}

function copyText(a) {
  const lines = a.citations.map((c) => {
    const facts = [c.source, c.updated_at ? `updated ${new Date(c.updated_at / 1000).toISOString().slice(0, 10)}` : null];
    const heading = c.heading_path.length ? `, ${c.heading_path.join(" › ")}` : "";
    return `[^${c.number}]: ${c.title || c.document_id}${heading} (${facts.filter(Boolean).join(", ")})${c.url ? ` ${c.url}` : ""}`;
  });
  return [a.text, lines.join("\n")].filter(Boolean).join("\n\n");
}

async function copy(a, button) {
  try {
    await navigator.clipboard.writeText(copyText(a));
    button.textContent = "Copied";
  } catch {
    tell("The browser does not let this page copy.", true);
  }
}

function feedback(a) {
  const row = element("div", { class: "row", role: "group", "aria-label": "Was this answer good?" });
  for (const [verdict, label] of VERDICTS) {
    row.append(element("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: async (event) => {
      const pressed = event.currentTarget;
      try {
        await ask("/v1/feedback", {
          method: "POST", body: JSON.stringify({ query_id: a.query_id, verdict }),
          headers: { "Content-Type": "application/json" },
        });
        for (const other of row.children) other.setAttribute("aria-pressed", String(other === pressed));
        tell("Thank you. It is kept with this answer.");
      } catch (error) {
        tell(error.message, true);
      }
    } }, label));
  }
  return row;
}

// One question and what became of it.
class TurnView {
  constructor(question, number) {
    const part = (kind, name = "div", attributes = {}) => (this[kind] = element(name, { class: `answer-${kind}`, ...attributes }));
    this.question = question;
    this.panel = element("div", { class: "panel answer", "aria-busy": "true" },
      part("badges", "ul"), part("notes"), part("text", "div", { "aria-live": "polite" }), part("actions"), part("sources"));
    this.badges.classList.add("facts");
    this.panel.hidden = true;
    this.ended = element("p", { class: "status" });
    this.ended.hidden = true;
    this.root = element("li", { class: "turn" },
      element("h2", { class: "asked", id: `asked-${number}`, tabindex: "-1" }, element("span", { class: "visually-hidden" }, "You asked: "), question),
      this.panel, this.ended);
    this.panel.setAttribute("role", "group");
    this.panel.setAttribute("aria-labelledby", `asked-${number}`);
    this.footnote = (n) => element("button", {
      type: "button", class: "footnote", "aria-label": `Source ${n}`, onclick: () => this.openSource(n),
    }, `[${n}]`);
    this.begin();
  }

  begin() {
    this.sheet = new Sheet(this.text, this.footnote);
    this.text.replaceChildren();
    this.streamed = [];
    this.citations = [];
  }

  openSource(number) {
    const card = this.sources.querySelector(`[data-number="${number}"]`);
    if (!card) return;
    card.open = true;
    card.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    card.querySelector("summary").focus({ preventScroll: true });
  }

  // A sentence that passed its checks, before the whole answer is there.
  take(event) {
    this.panel.hidden = false;
    this.streamed.push(event.sentence);
    this.citations.push(...event.citations);
    this.sheet.add(event.sentence);
    this.showSources(this.citations);
  }

  // The whole answer counts: what was shown before and is not in it any more goes.
  finish(a) {
    this.answer = a;
    const held = new Set(a.contradictions.flatMap((c) => c.sides.map((side) => side.text.trim())));
    const left = a.answered ? a.sentences.filter((s) => !held.has(s.text.trim())) : [];
    this.text.setAttribute("aria-live", "off"); // it was read out as it came
    if (JSON.stringify(left) !== JSON.stringify(this.streamed)) {
      this.text.replaceChildren();
      const sheet = new Sheet(this.text, this.footnote);
      left.forEach((s) => sheet.add(s));
    }
    const gone = this.streamed.some((s) => !a.sentences.some((kept) => kept.text === s.text));
    this.notes.replaceChildren(...[
      gone ? element("p", { class: "doubt" }, "Some of what stood here does not rest on what you may read any more, and was taken away.") : null,
      a.answered ? null : this.refusal(a), ...a.contradictions.map((c) => this.dispute(c, a.citations)),
      a.incomplete ? element("p", { class: "doubt" }, "The answer stops here: it was cut short.") : null,
    ].filter(Boolean));
    this.badge(a);
    this.showSources(a.answered || a.contradictions.length ? a.citations : [], true);
    this.act(a);
    this.panel.hidden = false;
    this.panel.setAttribute("aria-busy", "false");
  }

  // Nothing that was not confirmed stays.
  broken(said, again) {
    this.begin();
    this.sources.replaceChildren();
    this.panel.hidden = true;
    this.ended.hidden = false;
    this.ended.replaceChildren(`${said} `, element("button", { type: "button", class: "quiet", onclick: again }, "Ask again"));
  }

  badge(a) {
    const kinds = { extractive: "words of the sources", generated: "written by a model, every sentence checked" };
    this.badges.replaceChildren(...[
      kinds[a.kind] ? element("li", { class: "strong" }, kinds[a.kind]) : null,
      a.needs_review ? element("li", { class: "doubted" }, "needs review") : null,
      a.fallback ? element("li", { class: "doubted" }, "the model did not write") : null,
      a.cached !== "none" ? element("li", {}, "given before, checked again") : null,
      a.withheld ? element("li", {}, `${a.withheld} withheld`) : null,
    ].filter(Boolean));
  }

  refusal(a) {
    return element("div", { class: "refusal" },
      element("h3", {}, (a.refusal && WHY[a.refusal.reason]) || "No answer"),
      element("p", {}, a.text), a.refusal ? element("p", {}, a.refusal.detail) : null,
      a.suggestion ? element("p", {}, a.suggestion.text) : null,
      element("button", { type: "button", class: "quiet", onclick: () => searchFor(this.question) }, "Look at the search results"));
  }

  // Each side with where it stands and how old that is: it is for people to tell which one holds.
  dispute(contradiction, citations) {
    return element("div", { class: "dispute" }, element("h3", {}, "The sources contradict each other"),
      element("ul", {}, ...contradiction.sides.map((side) => {
        const cited = citations.find((c) => c.number === side.citation);
        const facts = cited ? `${cited.title || cited.document_id}, ${age(cited.age_s)} old${cited.in_effect === false ? ", not in effect" : ""}` : "";
        return element("li", {}, ...written(side.text.replace(ITEM, "$2")), this.footnote(side.citation), facts ? element("span", { class: "where" }, facts) : null);
      })));
  }

  showSources(citations, first = false) {
    const opened = new Set([...this.sources.querySelectorAll("details[open]")].map((card) => Number(card.dataset.number)));
    this.sources.replaceChildren(...(citations.length ? [element("h3", {}, "Sources"), ...citations.map((c, i) =>
      source(c, opened.has(c.number) || (first && i === 0)))] : []));
  }

  // The latest turn alone has its sources open.
  fold() {
    for (const card of this.sources.querySelectorAll("details[open]")) card.open = false;
  }

  act(a) {
    const button = element("button", { type: "button", class: "quiet" }, "Copy with citations");
    button.addEventListener("click", () => copy(a, button));
    this.actions.replaceChildren(...[a.answered ? button : null, feedback(a)].filter(Boolean));
  }
}
