"use strict";

// A conversation. What was said before goes along so that a question can lean on it; it is never evidence.

const STEPS = { searching: "Searching…", reading: "Reading…", writing: "Writing…", checking: "Checking every sentence…" };
const HINT = "Enter sends, Shift and Enter begins a line, Escape stops.";
const MOST_TURNS = 40; // that the service takes
const MOST_SAID = 4096; // characters of each
let turns = []; // TurnViews; one that has no answer was stopped or failed
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
  if (tab === "ask") offerStyles();
}

// That a model writes is offered where the service has one.
async function offerStyles() {
  if (!token() || byId("ask-style").dataset.known) return;
  try {
    const models = (await ask("/v1/models")).data.map((model) => model.id);
    byId("ask-style").dataset.known = "yes";
    if (models.includes("headwater-generated")) return;
    byId("ask-style").querySelector("[value=generated]").remove();
    byId("ask-style").value = byId("ask-style").value || "auto";
  } catch {
    // The question will tell what is wrong.
  }
}

function searchFor(question) {
  byId("query").value = question;
  show("search");
  byId("search-form").requestSubmit();
}

function said() {
  const cut = (text) => Array.from(text).slice(0, MOST_SAID).join("");
  return turns.filter((turn) => turn.answer).flatMap((turn) => [
    { role: "user", content: cut(turn.question) },
    { role: "assistant", content: cut(turn.answer.answered ? turn.answer.sentences.map((s) => s.text).join("\n") : turn.answer.text) },
  ]).slice(-MOST_TURNS);
}

function busy(yes) {
  byId("ask-stop").hidden = !yes;
  byId("ask-button").hidden = yes;
  byId("ask-new").hidden = turns.length === 0;
  byId("question").placeholder = turns.length ? "Ask further. What was said before helps to understand it"
    : "Ask one question. The answer names its sources, or says that there is none";
}

function clearConversation() {
  if (asking) asking.abort();
  asking = null;
  turns = [];
  byId("turns").replaceChildren();
  busy(false);
  tell(`Ask to begin. ${HINT}`);
  if (!byId("ask-panel").hidden) offerStyles();
}

function stopAsking() {
  if (asking) asking.abort();
}

function askQuestion(event) {
  event.preventDefault();
  if (!token()) { openTokenPanel(true); byId("token").focus(); tell("Paste a token first.", true); return; }
  if (asking) { tell("An answer is on its way; Escape stops it."); return; }
  const question = byId("question").value.trim();
  if (!question) { tell("Type a question first.", true); return; }
  const request = { question, history: said(), style: byId("ask-style").value, filters: {} };
  if (byId("ask-source").value) request.filters.sources = [byId("ask-source").value];
  if (byId("ask-as-of").value) request.filters.as_of = Date.parse(byId("ask-as-of").value) * 1000;
  for (const turn of turns) turn.fold();
  byId("question").value = "";
  return answerTo(request);
}

async function answerTo(request) {
  const turn = new TurnView(request.question, turns.length + 1);
  turns.push(turn);
  byId("turns").append(turn.root);
  const mine = asking = new AbortController();
  busy(true);
  tell(STEPS.searching);
  const moved = new AbortController(); // a reader who looks elsewhere is left there
  for (const kind of ["wheel", "touchmove"]) {
    addEventListener(kind, () => moved.abort(), { passive: true, signal: moved.signal });
  }
  const follows = () => { if (!moved.signal.aborted) turn.root.scrollIntoView({ block: "start" }); };
  follows();
  const broken = (text, problem) => {
    turn.broken(problem ? "Not answered." : text, () => {
      if (asking) return;
      turns = turns.filter((other) => other !== turn);
      turn.root.remove();
      answerTo({ ...request, history: said() });
      byId("question").focus();
    });
    tell(text, problem);
  };
  try {
    let whole = null;
    await follow("/v1/answer", { ...request, stream: true }, mine.signal, (name, data) => {
      if (name === "step") tell(STEPS[data.step] || "At work…");
      else if (name === "sentence") turn.take(data);
      else if (name === "done") whole = data;
      else if (name === "error") throw new Error(data.detail || "The answer broke off.");
    });
    if (mine.signal.aborted) throw new DOMException("stopped", "AbortError");
    if (!whole) throw new Error("The answer broke off; ask again.");
    turn.finish(whole);
    follows();
    showCompleteness(whole.complete_until);
    const took = whole.timings_ms.total === undefined ? "" : ` in ${whole.timings_ms.total.toFixed(0)} ms`;
    tell(whole.answered ? `Answered${took} from ${whole.citations.length === 1 ? "1 source" : `${whole.citations.length} sources`}.${whole.needs_review ? " The sources contradict each other." : ""}`
      : `No answer${took}. ${whole.text}`);
  } catch (error) {
    if (asking !== mine) return; // another conversation began
    if (error.name === "AbortError") broken("Stopped.", false);
    else broken(error instanceof TypeError ? "The service cannot be reached." : error.message, true);
  } finally {
    mine.abort(); // what still comes of it is read by nobody
    moved.abort();
    if (asking === mine) { asking = null; busy(false); }
  }
}

byId("ask-form").addEventListener("submit", askQuestion);
byId("ask-stop").addEventListener("click", () => { stopAsking(); byId("question").focus(); });
byId("ask-new").addEventListener("click", () => { clearConversation(); byId("question").focus(); });
byId("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("ask-form").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("document").open) stopAsking();
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
