"use strict";

const STEPS = { searching: "Searching…", reading: "Reading…", writing: "Writing…", checking: "Checking every sentence…" };
const WHY = {
  nothing_found: "Nothing was found", weak_evidence: "Too little was found", stale: "Not up to date enough",
  unsupported: "The sources do not say it", contradictory: "The sources contradict each other",
};
const VERDICTS = [["helpful", "Helpful"], ["not_helpful", "Not helpful"], ["wrong", "Wrong"], ["outdated", "Outdated"]];
let asking = null;

function tell(text, problem = false) {
  const status = byId("ask-status");
  status.textContent = text;
  status.classList.toggle("problem", problem);
}

function show(tab, focus = false) {
  for (const name of ["search", "ask"]) {
    const chosen = name === tab;
    byId(`tab-${name}`).setAttribute("aria-selected", String(chosen));
    byId(`tab-${name}`).tabIndex = chosen ? 0 : -1;
    byId(`${name}-panel`).hidden = !chosen;
  }
  if (focus) byId(`tab-${tab}`).focus();
}

// Words of a sentence as people read them: the marks of Markdown are left out, as in hits.
function words(text) {
  return plainly(Array.from(text), "text/markdown").join("");
}

// Of a list or a table: it stands on a line of its own.
function ownLine(text) {
  return /^\s*([-*•]|\d{1,3}[.)])\s/.test(text) || text.trim().includes("\n");
}

function footnote(number) {
  return element("button", {
    type: "button", class: "footnote", "aria-label": `Source ${number}`, onclick: () => openSource(number),
  }, `[${number}]`);
}

function sentence(s) {
  return element("span", { class: ownLine(s.text) ? "sentence line" : "sentence" },
    s.qualified ? element("span", { class: "unsure" }, "not stated plainly: ") : null,
    words(s.text), ...s.citations.map(footnote), " ");
}

function openSource(number) {
  const card = byId(`source-${number}`);
  if (!card) return;
  card.open = true;
  card.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  card.querySelector("summary").focus({ preventScroll: true });
}

function source(c, open) {
  const link = c.url ? safeLink(c.url) : null;
  return element("details", { class: "source", id: `source-${c.number}`, ...(open ? { open: "" } : {}) },
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

function showSources(citations) {
  byId("answer-sources").replaceChildren(...(citations.length
    ? [element("h2", {}, "Sources"), ...citations.map((c, i) => source(c, i === 0))] : []));
}

function badges(a) {
  const kinds = { extractive: "words of the sources", generated: "written by a model, every sentence checked" };
  byId("answer-badges").replaceChildren(...[
    kinds[a.kind] ? element("li", { class: "strong" }, kinds[a.kind]) : null,
    a.needs_review ? element("li", { class: "doubted" }, "needs review") : null,
    a.fallback ? element("li", { class: "doubted" }, "the model did not write") : null,
    a.cached !== "none" ? element("li", {}, "given before, checked again") : null,
    a.withheld ? element("li", {}, `${a.withheld} withheld`) : null,
  ].filter(Boolean));
}

function refusal(a) {
  const box = element("div", { class: "refusal" },
    element("h3", {}, (a.refusal && WHY[a.refusal.reason]) || "No answer"),
    element("p", {}, a.text), a.refusal ? element("p", {}, a.refusal.detail) : null,
    a.suggestion ? element("p", {}, a.suggestion.text) : null);
  box.append(element("button", { type: "button", class: "quiet", onclick: () => {
    byId("query").value = byId("question").value;
    show("search");
    byId("search-form").requestSubmit();
  } }, "Look at the search results"));
  return box;
}

function dispute(contradiction) {
  return element("div", { class: "dispute" }, element("h3", {}, "The sources contradict each other"),
    element("ul", {}, ...contradiction.sides.map((s) => element("li", {}, words(s.text), footnote(s.citation)))));
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

function actions(a) {
  const bar = byId("answer-actions");
  const button = element("button", { type: "button", class: "quiet" }, "Copy with citations");
  button.addEventListener("click", () => copy(a, button));
  bar.replaceChildren(...[a.answered ? button : null, feedback(a)].filter(Boolean));
  bar.hidden = false;
}

// The whole answer counts: what was shown before and is not in it any more goes.
function showAnswer(a, streamed) {
  badges(a);
  byId("answer-text").replaceChildren(...(a.answered ? a.sentences.map(sentence) : []));
  const gone = streamed.filter((s) => !a.sentences.some((kept) => kept.text === s.text)).length;
  byId("answer-notes").replaceChildren(...[
    gone ? element("p", { class: "doubt" }, "Some of what stood here does not rest on what you may read any more, and was taken away.") : null,
    a.answered ? null : refusal(a), ...a.contradictions.map(dispute),
  ].filter(Boolean));
  showSources(a.answered || a.contradictions.length ? a.citations : []);
  actions(a);
  showCompleteness(a.complete_until);
  const took = a.timings_ms.total === undefined ? "" : ` in ${a.timings_ms.total.toFixed(0)} ms`;
  tell(a.answered ? `Answered${took} from ${a.citations.length === 1 ? "1 source" : `${a.citations.length} sources`}.`
    : `No answer${took}.`);
}

function clearAnswer() {
  if (asking) asking.abort();
  byId("answer").hidden = true;
  for (const part of ["badges", "text", "notes", "actions", "sources"]) byId(`answer-${part}`).replaceChildren();
  byId("answer-actions").hidden = true;
  tell("Ask to begin. Enter sends, Shift and Enter begins a line, Escape stops.");
}

function busy(yes) {
  byId("ask-button").textContent = yes ? "Stop" : "Ask";
  byId("answer").setAttribute("aria-busy", String(yes));
}

async function askQuestion(event) {
  event.preventDefault();
  if (!token()) { openTokenPanel(true); byId("token").focus(); tell("Paste a token first.", true); return; }
  if (asking && byId("ask-button").textContent === "Stop" && event.submitter) { asking.abort(); return; }
  const request = { question: byId("question").value, style: byId("ask-style").value, filters: {} };
  if (byId("ask-source").value) request.filters.sources = [byId("ask-source").value];
  if (byId("ask-as-of").value) request.filters.as_of = Date.parse(byId("ask-as-of").value) * 1000;
  clearAnswer();
  const mine = asking = new AbortController();
  const streamed = [], citations = [];
  let whole = null;
  busy(true);
  tell(STEPS.searching);
  try {
    await follow("/v1/answer", { ...request, stream: true }, mine.signal, (name, data) => {
      if (name === "step") tell(STEPS[data.step] || "At work…");
      else if (name === "sentence") {
        byId("answer").hidden = false;
        streamed.push(data.sentence);
        citations.push(...data.citations);
        byId("answer-text").append(sentence(data.sentence));
        showSources(citations);
      } else if (name === "done") whole = data;
      else if (name === "error") throw new Error(data.detail || "The answer broke off.");
    });
    if (mine.signal.aborted) return;
    if (!whole) throw new Error("The answer broke off; ask again.");
    byId("answer").hidden = false;
    showAnswer(whole, streamed);
  } catch (error) {
    if (asking !== mine) return;
    if (error.name === "AbortError") { clearAnswer(); tell("Stopped."); return; }
    clearAnswer();
    tell(error.message, true);
  } finally {
    if (asking === mine) { asking = null; busy(false); }
  }
}

byId("ask-form").addEventListener("submit", askQuestion);
byId("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("ask-form").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && asking && !byId("document").open) asking.abort();
});
for (const name of ["search", "ask"]) {
  byId(`tab-${name}`).addEventListener("click", () => {
    show(name);
    history.replaceState(null, "", name === "ask" ? "#ask" : location.pathname);
    byId(name === "ask" ? "question" : "query").focus();
  });
  byId(`tab-${name}`).addEventListener("keydown", (event) => {
    if (["ArrowLeft", "ArrowRight"].includes(event.key)) show(name === "ask" ? "search" : "ask", true);
  });
}
if (location.hash === "#ask") show("ask");
