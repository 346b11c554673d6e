"use strict";

const byId = (id) => document.getElementById(id);
const KEY = "headwater-token";
let running = null;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

function token() {
  return sessionStorage.getItem(KEY) || "";
}

// Only for the line at the top: the server alone decides what a token is worth.
function claims(text) {
  try {
    const part = text.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(part), (c) => c.charCodeAt(0))));
  } catch {
    return null;
  }
}

function showWho() {
  const held = claims(token());
  byId("who").textContent = held ? `${held.sub} at ${held.tenant}` : "no token yet";
  openTokenPanel(!token());
}

function openTokenPanel(open) {
  byId("token-panel").hidden = !open;
  byId("token-button").setAttribute("aria-expanded", String(open));
}

function age(seconds) {
  const steps = [[86400 * 365, "y"], [86400 * 30, "mo"], [86400, "d"], [3600, "h"], [60, "min"]];
  for (const [size, unit] of steps) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return seconds < 10 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds)} s`;
}

function moment(micros) {
  return new Date(micros / 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

async function ask(path, options = {}) {
  const headers = { Authorization: `Bearer ${token()}`, ...(options.headers || {}) };
  const reply = await fetch(path, { ...options, headers });
  const body = await reply.json();
  if (!reply.ok) {
    const named = (body.errors || []).map((e) => `${e.field}: ${e.problem}`).join("; ");
    throw new Error(named || body.detail || `The service answered ${reply.status}.`);
  }
  return body;
}

function say(text, problem = false) {
  const status = byId("status");
  status.textContent = text;
  status.classList.toggle("problem", problem);
}

// Marks of Markdown that tell a reader nothing: where they stand, as [start, end) of an array of characters. The text
// keeps its length, so that the offsets of the reply stay true; what stands in code is left as it is.
function marks(letters) {
  const text = letters.map((c) => (c.length > 1 ? "\ufffd" : c)).join(""); // one unit each
  const found = [], code = [];
  for (const m of text.matchAll(/^(```+|~~~+)([^\n]*\n)([\s\S]*?)(^\1[^\n]*|(?![\s\S]))/gm)) {
    const body = m.index + m[1].length + m[2].length;
    found.push([m.index, body], [body + m[3].length, m.index + m[0].length]);
    code.push([m.index, m.index + m[0].length]);
  }
  const inCode = (at) => code.some(([start, end]) => at >= start && at < end);
  // The first and the third group of each are marks.
  const drop = (pattern, seen) => {
    for (const m of text.matchAll(pattern)) {
      if (inCode(m.index)) continue;
      const end = m.index + m[0].length;
      found.push([m.index, m.index + m[1].length]);
      if (m[3]) found.push([end - m[3].length, end]);
      if (seen) seen.push([m.index, end]);
    }
  };
  drop(/(`)([^`\n]+)(`)/g, code);
  drop(/^(#{1,6} +)/gm);
  drop(/(\*\*)(?=[^\s*])([^*\n]+)(\*\*)/g);
  drop(/(!?\[)([^\]\n]+)(\]\([^)\s]*\))/g);
  return found;
}

function plainly(letters, type) {
  const kept = [...letters];
  if (type === "text/markdown") for (const [start, end] of marks(letters)) kept.fill("", start, end);
  return kept;
}

// The words that scored, by the offsets of the reply: they count code points, as an array of characters does.
function marked(snippet, type) {
  const letters = plainly(Array.from(snippet.text), type);
  const pieces = [];
  let at = 0;
  for (const [start, end] of snippet.highlights) {
    pieces.push(letters.slice(at, start).join(""), element("mark", {}, letters.slice(start, end).join("")));
    at = end;
  }
  pieces.push(letters.slice(at).join(""));
  return [snippet.cut_before ? "… " : null, ...pieces, snippet.cut_after ? " …" : null];
}

function safeLink(url) {
  try {
    const parsed = new URL(url);
    return ["http:", "https:"].includes(parsed.protocol) ? parsed.href : null;
  } catch {
    return null;
  }
}

function hit(h) {
  const link = h.url ? safeLink(h.url) : null;
  const ranks = [
    h.scores.dense_rank ? `meaning #${h.scores.dense_rank}` : null,
    h.scores.sparse_rank ? `words #${h.scores.sparse_rank}` : null,
  ].filter(Boolean).join(", ");
  const facts = element("ul", { class: "facts" },
    element("li", { class: "strong" }, h.source),
    h.scores.exact ? element("li", { class: "strong" }, "exact match") : null,
    element("li", { title: h.updated_at ? moment(h.updated_at) : "" }, `${age(h.age_s)} old`),
    element("li", {}, `part ${h.chunk_index + 1} of ${h.chunk_total}`),
    h.page ? element("li", {}, `page ${h.page}`) : null,
    h.summary ? element("li", { class: "strong" }, "summary") : null,
    h.in_effect === false ? element("li", { class: "doubted" }, "not in effect") : null,
    link ? element("li", {}, element("a", { href: link, rel: "noreferrer noopener", target: "_blank" }, "at its source")) : null,
  );
  const more = element("details", { class: "also" }, element("summary", {}, "how it was found"),
    element("p", {}, [ranks, `index tier ${h.tier}`].filter(Boolean).join("; ")));
  return element("li", { class: "hit" },
    element("h3", {}, element("button", { type: "button", onclick: () => openDocument(h.document_uid) }, h.title || h.document_id)),
    element("p", { class: "path" }, [h.path, ...h.heading_path].filter(Boolean).join(" › ")),
    element("p", { class: "text" }, ...(h.snippet ? marked(h.snippet, h.content_type) : [plainly(Array.from(h.text), h.content_type).join("")])),
    h.also.length ? also(h.also) : null,
    ...h.warnings.map((w) => element("p", { class: "doubt" }, w)),
    facts, more);
}

function also(others) {
  return element("details", { class: "also" },
    element("summary", {}, `the same in ${others.length} more`),
    element("ul", {}, ...others.map((o) => element("li", {},
      element("button", { type: "button", onclick: () => openDocument(o.document_uid) }, o.title || o.document_id),
      o.path ? ` ${o.path}` : ""))));
}

function showCompleteness(complete) {
  const rows = Object.entries(complete).sort();
  byId("freshness").hidden = rows.length === 0;
  byId("complete").replaceChildren(...rows.map(([source, until]) => element("tr", {},
    element("td", {}, source),
    element("td", {}, until === null ? "not known yet" : moment(until)),
    element("td", {}, until === null ? "" : age(Math.max(0, Date.now() / 1000 - until / 1e6))))));
  for (const select of [byId("source"), byId("ask-source")]) for (const [source] of rows) {
    if (![...select.options].some((o) => o.value === source)) select.append(element("option", { value: source }, source));
  }
}

function rankedBy(report) {
  if (!report || report.asked === "off") return "";
  if (report.done === "off") return report.late ? " The reranker was late: first ranking." : " First ranking, without a reranker.";
  return ` ${report.candidates} passages reranked in ${report.ms.toFixed(0)} ms.`;
}

function again(change) {
  change();
  byId("search-form").requestSubmit();
}

function suggest(found) {
  const box = byId("suggestion");
  box.hidden = !found;
  box.replaceChildren();
  if (!found) return;
  box.append(element("p", {}, found.text));
  if (found.query) {
    box.append(element("button", { type: "button", onclick: () => again(() => { byId("query").value = found.query; }) },
      `Search for ${found.query}`));
  } else if (found.drop_filters.length) {
    box.append(element("button", { type: "button", onclick: () => again(() => {
      if (found.drop_filters.includes("sources")) byId("source").value = "";
      if (found.drop_filters.includes("as_of")) byId("as-of").value = "";
    }) }, "Search without"));
  } else if (found.kind === "mode") {
    box.append(element("button", { type: "button", onclick: () => again(() => { byId("mode").value = "hybrid"; }) },
      "Search by meaning and words"));
  }
}

function offerMore(request, cursor) {
  const button = byId("more");
  button.hidden = !cursor;
  button.onclick = cursor ? () => load({ ...request, cursor }) : null;
}

function search(event) {
  event.preventDefault();
  if (!token()) { openTokenPanel(true); byId("token").focus(); say("Paste a token first.", true); return; }
  const query = byId("query").value;
  const filters = {};
  if (byId("source").value) filters.sources = [byId("source").value];
  if (byId("as-of").value) filters.as_of = Date.parse(byId("as-of").value) * 1000;
  return load({ query, k: Number(byId("k").value), mode: byId("mode").value, filters });
}

// A first page, or with a cursor the next one, which goes below.
async function load(request) {
  if (running) running.abort();
  const mine = running = new AbortController();
  const further = Boolean(request.cursor);
  offerMore(null, null);
  say("Searching…");
  try {
    const reply = await ask("/v1/search", {
      method: "POST", body: JSON.stringify(request), signal: mine.signal,
      headers: { "Content-Type": "application/json" },
    });
    if (mine.signal.aborted) return;
    const made = reply.hits.map(hit);
    if (further) byId("results").append(...made);
    else byId("results").replaceChildren(...made);
    const found = reply.hits.length === 1 ? "1 hit" : `${reply.hits.length} hits`;
    const more = reply.starved ? " More may exist: narrow the search." : "";
    if (reply.hits.length) {
      const weak = reply.weak ? "Nothing fits well. " : "";
      say(`${weak}${found}${further ? " more" : ""} in ${reply.timings_ms.total.toFixed(0)} ms.${rankedBy(reply.rerank)}${more}`);
    } else {
      say(further ? "That is all." : `Nothing that this token may read matches.${more}`);
    }
    if (further && made.length) made[0].querySelector("button").focus();
    suggest(reply.suggestion);
    offerMore(request, reply.next_cursor);
    showCompleteness(reply.complete_until);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!further) { byId("results").replaceChildren(); suggest(null); }
    say(error.message, true);
  }
}

// The text of a section with the quoted words marked, where they stand in it. A quote of several places has an ellipsis
// between them.
function quoted(section, type, quote) {
  const letters = plainly(Array.from(section), type);
  const spans = [];
  for (const piece of quote ? quote.split(" … ") : []) {
    const at = piece.trim() ? section.indexOf(piece.trim()) : -1;
    if (at < 0) continue;
    const start = Array.from(section.slice(0, at)).length;
    spans.push([start, start + Array.from(piece.trim()).length]);
  }
  spans.sort((a, b) => a[0] - b[0]);
  const pieces = [];
  let end = 0;
  for (const [from, to] of spans) {
    if (from < end) continue;
    pieces.push(letters.slice(end, from).join(""), element("mark", {}, letters.slice(from, to).join("")));
    end = to;
  }
  return [...pieces, letters.slice(end).join("")];
}

async function openDocument(uid, quote = "", report = say) {
  try {
    const d = await ask(`/v1/documents/${encodeURIComponent(uid)}`);
    byId("document-title").textContent = d.title || d.document_id;
    byId("document-body").replaceChildren(
      element("ul", { class: "facts" }, element("li", { class: "strong" }, d.source), element("li", {}, d.content_type),
        element("li", {}, `${age(d.age_s)} old`),
        d.in_effect === false ? element("li", { class: "doubted" }, "not in effect") : null),
      ...d.sections.flatMap((s) => [
        s.heading_path.length ? element("h3", {}, s.heading_path.join(" › ")) : null,
        element("p", { class: "text" }, ...quoted(s.text, d.content_type, quote)),
      ].filter(Boolean)),
      d.next_offset === null ? "" : element("p", { class: "note" }, `${d.sections.length} of ${d.sections_total} sections.`));
    byId("document").showModal();
    const mark = byId("document-body").querySelector("mark");
    if (mark) mark.scrollIntoView({ block: "center" });
  } catch (error) {
    report(error.message, true);
  }
}

// Nothing of one reader stays for the next, nor does an answer that is still on its way.
function clear() {
  if (running) running.abort();
  byId("results").replaceChildren();
  suggest(null);
  offerMore(null, null);
  if (typeof clearConversation === "function") clearConversation();
}

byId("search-form").addEventListener("submit", search);
byId("document-close").addEventListener("click", () => byId("document").close());
byId("token-button").addEventListener("click", () => openTokenPanel(byId("token-panel").hidden));
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("token").value.trim());
  byId("token").value = "";
  clear();
  say("Search to begin.");
  showWho();
  byId("query").focus();
});
byId("token-forget").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  clear();
  byId("freshness").hidden = true;
  say("Search to begin.");
  showWho();
});
showWho();
