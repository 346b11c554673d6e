"""The page's style sheet: readable on paper, on a phone and in the dark."""

STYLE = """
:root { --ink:#1c2430; --soft:#5b6675; --line:#dde3ea; --back:#f6f8fa; --card:#fff; --ok:#2e7d5b; --bad:#c0392b;
  --wait:#d9a441; --here:#2563a8; --there:#c2703d; }
@media (prefers-color-scheme: dark) { :root { --ink:#e6eaf0; --soft:#9aa6b5; --line:#323b47; --back:#14181e;
  --card:#1c222b; --ok:#57b58a; --bad:#ef7a6d; --wait:#e0b565; --here:#6ea8e6; --there:#e39a6a; } }
* { box-sizing:border-box; }
body { margin:0; background:var(--back); color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif; }
main { max-width:1160px; margin:0 auto; padding:24px 20px 60px; }
header { background:var(--card); border:1px solid var(--line); border-left:8px solid var(--ok); border-radius:8px;
  padding:18px 24px; }
header.fail { border-left-color:var(--bad); }
header h1 { margin:2px 0 6px; font-size:24px; } header p { margin:6px 0; }
.badge { display:inline-block; margin:0; padding:2px 12px; border-radius:99px; color:#fff; font-weight:600;
  background:var(--ok); }
.fail .badge { background:var(--bad); } @media (prefers-color-scheme: dark) { .badge { color:#14181e; } }
.facts { display:flex; flex-wrap:wrap; gap:6px 32px; margin:14px 4px; } .facts div { margin:0; }
dt { color:var(--soft); font-size:12px; } dd { margin:0; }
section { background:var(--card); border:1px solid var(--line); border-radius:8px; padding:8px 24px 20px;
  margin-top:18px; }
h2 { font-size:19px; margin:12px 0 4px; } h3 { font-size:15px; margin:18px 0 8px; }
ul { margin:6px 0; padding-left:20px; } li { overflow-wrap:anywhere; }
details { margin:12px 0; } summary { cursor:pointer; color:var(--soft); }
.scroll { overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-size:13px; }
th, td { text-align:left; padding:5px 14px 5px 0; border-bottom:1px solid var(--line); vertical-align:top;
  overflow-wrap:anywhere; }
th { color:var(--soft); font-weight:500; } .n { text-align:right; font-variant-numeric:tabular-nums; }
td:has(> .bar) { width:30%; min-width:120px; }
.bar { width:100%; height:12px; display:block; margin-top:4px; background:var(--line); border-radius:3px; }
.legend { color:var(--soft); font-size:13px; }
.legend i { display:inline-block; width:11px; height:11px; border-radius:2px; margin:0 6px 0 14px; }
.legend i:first-child { margin-left:0; }
i.ok { background:var(--ok); } i.wait { background:var(--wait); } i.bad { background:var(--bad); }
i.here { background:var(--here); } i.there { background:var(--there); }
rect.ok { fill:var(--ok); } rect.wait { fill:var(--wait); }
rect.bad { fill:var(--bad); } rect.here { fill:var(--here); }
circle { fill-opacity:.75; } .better { fill:var(--ok); } .worse { fill:var(--bad); } .equal { fill:var(--here); }
.line { fill:none; stroke-width:2; } .line.here { stroke:var(--here); } .line.there { stroke:var(--there); }
.grid { stroke:var(--line); } .base { stroke:var(--soft); } .diagonal { stroke:var(--soft); stroke-dasharray:4 4; }
.tick { fill:var(--soft); font-size:11px; } .axis { fill:var(--ink); font-size:12px; }
.cards { display:flex; flex-wrap:wrap; gap:12px; }
.card { border:1px solid var(--line); border-radius:8px; padding:10px 16px; min-width:170px; }
.card b { font-size:22px; display:block; font-variant-numeric:tabular-nums; } .card span { display:block; }
.card small { color:var(--soft); } .card.bad b { color:var(--bad); }
.figures { display:grid; grid-template-columns:repeat(auto-fit,minmax(360px,1fr)); gap:18px; margin-top:14px; }
figure { margin:0; max-width:560px; } figure svg { width:100%; height:auto; }
figcaption { color:var(--soft); font-size:13px; }
.good { color:var(--ok); } .bad-text { color:var(--bad); }
@media print { body { background:#fff; } section, header { break-inside:avoid; } }
"""
