"use strict";

// Server-sent events of a POST, which the browser's own EventSource cannot send, nor can it send a token in a header.
// Calls take(name, data) for each event; resolves at the end of the stream. Throws what the service says is wrong.
async function follow(path, body, signal, take) {
  const reply = await fetch(path, {
    method: "POST", body: JSON.stringify(body), signal,
    headers: { Authorization: `Bearer ${token()}`, "Content-Type": "application/json", Accept: "text/event-stream" },
  });
  if (!reply.ok) {
    const problem = await reply.json().catch(() => ({}));
    const named = (problem.errors || []).map((e) => `${e.field}: ${e.problem}`).join("; ");
    throw new Error(named || problem.detail || `The service answered ${reply.status}.`);
  }
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "", name = "", data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (left + value).split("\n");
    left = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      else if (line === "") {
        if (data.length) take(name, JSON.parse(data.join("\n")));
        name = ""; data = [];
      }
    }
  }
}
