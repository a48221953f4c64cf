// The page of rxsteer. Everything that comes from a host is put in as text, never as markup.
"use strict";
(() => {
const $ = id => document.getElementById(id);
const KEEP = 600; // frames
const S = {state: null, frames: [], paused: false, late: 0, sort: "share", down: true, stage: null, seen: new Set(), due: new Set()};
const embedded = $("data");

// --- small tools

function el(tag, attrs, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) if (v !== undefined && v !== null && v !== false) e.setAttribute(k, v === true ? "" : v);
  e.append(...children.filter(c => c !== null && c !== undefined && c !== ""));
  return e;
}
function svg(tag, attrs, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const pct = x => (100 * x).toFixed(x < 0.0995 ? 1 : 0) + " %";
function num(x) {
  if (x === null || x === undefined) return "–";
  const a = Math.abs(x);
  if (a >= 1e9) return (x / 1e9).toFixed(2) + " G";
  if (a >= 1e6) return (x / 1e6).toFixed(2) + " M";
  if (a >= 1e4) return (x / 1e3).toFixed(1) + " k";
  return String(Math.round(x));
}
function span(ns) {
  if (!ns) return "–";
  if (ns >= 1e9) return (ns / 1e9).toFixed(1) + " s";
  if (ns >= 1e6) return (ns / 1e6).toFixed(ns < 1e7 ? 1 : 0) + " ms";
  if (ns >= 1e3) return (ns / 1e3).toFixed(ns < 1e4 ? 1 : 0) + " µs";
  return Math.round(ns) + " ns";
}
const clock = ms => new Date(ms).toLocaleTimeString();
const last = () => S.frames[S.frames.length - 1];
// seen is the last frame that looked at queues: where the budget allows windows only, others lie between. Live, one that is too
// old does not count.
function seen() {
  const now = last(), f = S.frames.findLast(x => x.level > 0 && Object.keys(x.q).length);
  return f && (embedded || now.t - f.t <= 15e3) ? f : now;
}
const age = f => f !== last() ? `; seen ${Math.round((last().t - f.t) / 1e3)} s before the end` : "";
// Dark blue over green to yellow, then red from 0.8 on: read as hotter in light and dark.
const stops = [[0, 28, 36, 60], [.2, 40, 90, 140], [.4, 40, 140, 130], [.6, 130, 180, 70], [.8, 240, 200, 60], [1, 225, 50, 40]];
const palette = Array.from({length: 101}, (_, i) => {
  const x = i / 100; let k = 0; while (k < stops.length - 2 && stops[k + 1][0] < x) k++;
  const a = stops[k], b = stops[k + 1], f = (x - a[0]) / (b[0] - a[0]);
  return `rgb(${[1, 2, 3].map(j => Math.round(a[j] + f * (b[j] - a[j]))).join(",")})`;
});
const packed = palette.map(c => { const [r, g, b] = c.match(/\d+/g).map(Number); return (0xff000000 | b << 16 | g << 8 | r) >>> 0; });
const heat = x => palette[Math.max(0, Math.min(100, Math.round(100 * x)))];
const hue = q => `hsl(${(q * 137.508) % 360} 62% ${45 + 12 * (Math.floor(q / 9) % 2)}%)`;
// share draws a bar and its figure into a cell, in place.
function share(td, x, hotAt) {
  if (!td.firstElementChild) td.replaceChildren(el("span", {class: "share"}, el("i")), "");
  const [s, t] = td.childNodes, cls = "share" + (x >= hotAt ? " hot" : x >= hotAt * .75 ? " warm" : ""), text = pct(x);
  if (t.data === text) return;
  if (s.className !== cls) s.className = cls;
  s.firstElementChild.style.transform = `scaleX(${Math.min(1, x).toFixed(3)})`; t.data = text;
}
const keep = {}; // a cell that is drawn otherwise
function replace(parent, ...children) { parent.replaceChildren(...children); }
function put(e, text) { if (e.textContent !== text) e.textContent = text; }
// tiles changes in place what differs: a screen reader and the layout keep the rest.
function tiles(list, want) {
  while (list.children.length > want.length) list.lastElementChild.remove();
  want.forEach(([cls, big, small], i) => {
    const li = list.children[i] || list.appendChild(el("li", {}, el("b"), el("span")));
    if (li.className !== cls) li.className = cls;
    put(li.firstElementChild, big); put(li.lastElementChild, small);
  });
}
function cells(row, values) {
  // Cells are changed in place, so that a screen reader, a selection and the scroll position stay.
  values.forEach((v, i) => {
    let td = row.children[i];
    if (!td) { td = el(i === 0 ? "th" : "td", i === 0 ? {scope: "row"} : {}); row.append(td); }
    if (v === keep) return;
    const [text, cls] = Array.isArray(v) ? v : [v, ""];
    if (td.textContent !== String(text)) td.textContent = text;
    if (td.className !== (cls || "")) td.className = cls || "";
  });
}
function rows(body, keys, fill) {
  const have = new Map([...body.children].map(r => [r.dataset.key, r]));
  keys.forEach((k, i) => {
    let r = have.get(k); have.delete(k);
    if (!r) { r = el("tr"); r.dataset.key = k; }
    if (body.children[i] !== r) body.insertBefore(r, body.children[i] || null);
    fill(r, k);
  });
  for (const r of have.values()) r.remove();
}

// Stages in the order a packet passes them (collector.StageNames).
const way = ["irq-raise", "raise-run", "run-poll", "ring-wait", "gro-stack", "gro-rps", "stack-socket", "socket-read", "total"];

// --- views: each draws one section from S; only those on screen are drawn

const views = {
  now() {
    const f = last(); if (!f) return;
    const hot = f.rx.reduce((m, x, i) => x > f.rx[m] ? i : m, 0), mean = f.rx.reduce((a, b) => a + b, 0) / (f.rx.length || 1);
    const qs = Object.entries(seen().q).sort((a, b) => b[1].share - a[1].share || b[1].pps - a[1].pps), top = qs[0];
    const lost = Object.values(f.drops || {}).reduce((a, b) => a + b, 0);
    const worst = S.state && S.state.findings[0];
    const tile = (cls, big, small) => [cls, big, small];
    tiles($("tiles"), [
      tile(f.rx[hot] > .8 ? "bad" : f.rx[hot] > .5 ? "warn" : "ok", pct(f.rx[hot] || 0), `hottest: cpu ${f.cpu[hot] ?? "–"} in receive softirq` + (f.level < 1 ? " (all softirqs)" : "")),
      tile("", mean > 0 ? (f.rx[hot] / mean).toFixed(1) + " ×" : "–", "hottest to mean"),
      tile("", top ? top[0] : "–", top ? `busiest queue: ${num(top[1].pps)} packets/s` + (top[1].share ? `, ${pct(top[1].share)} of a CPU` : "") : "no queue was polled"),
      tile("", num(f.pps), "packets/s received"),
      tile(lost > 0 ? "bad" : "ok", num(lost), "lost/s" + (lost > 0 ? ": " + Object.keys(f.drops).join(", ") : "")),
      tile(worst ? (worst.severity === "critical" ? "bad" : worst.severity === "warning" ? "warn" : "") : "ok", worst ? worst.id + " " + worst.subject : S.state && S.state.judged ? "none" : "–", worst ? "worst finding" : "findings"),
      f.cost ? tile("", pct(f.cost.hottest), `cost of measuring on cpu ${f.cost.cpu}` + (f.cost.budget ? `, budget ${pct(f.cost.budget)}` : "")) : null].filter(Boolean));
    put($("loop"), S.state ? S.state.loop.join(" · ") : "");
    const title = (worst ? worst.id + " " + worst.subject + " – " : "") + "rxsteer" + (S.state && S.state.host ? " " + S.state.host : "");
    if (document.title !== title) document.title = title;
  },

  findings() {
    const s = S.state; if (!s) return;
    const key = JSON.stringify([s.findings, s.changes, s.reasons, s.checked, s.blind, s.judged]);
    if (views.findings.key === key) return;
    views.findings.key = key;
    const list = s.findings.map(f => el("article", {class: "card " + f.severity},
      el("h3", {}, `${f.id} ${f.severity}: ${f.subject}`), el("p", {}, f.summary),
      f.evidence.length ? el("details", {}, el("summary", {}, "evidence"), el("dl", {}, ...f.evidence.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]))) : "",
      f.explains && f.explains.length ? el("p", {class: "note"}, "It explains: " + f.explains.join("; ")) : "",
      f.ruled_out && f.ruled_out.length ? el("p", {class: "note"}, "Ruled out: " + f.ruled_out.join("; ")) : "",
      f.remedy ? el("p", {}, el("strong", {}, "Next: "), f.remedy) : ""));
    if (!list.length) list.push(s.judged ? el("div", {class: "card good"}, el("p", {}, "Nothing is wrong with receiving here.")) : el("p", {class: "note"}, "Nothing was judged yet."));
    replace($("finding-list"), ...list);
    $("advice").hidden = !s.changes.length;
    replace($("advice-list"), ...s.changes.map(c => el("article", {class: "card"},
      el("p", {}, el("strong", {}, c.what), ` for ${c.serves.join(", ")} · risk ${c.risk}`), el("p", {}, c.why), c.expect ? el("p", {class: "note"}, "Expected: " + c.expect) : "",
      c.command ? el("pre", {tabindex: 0}, c.command) : "", c.undo ? el("p", {class: "note"}, "undo: ", el("code", {}, c.undo)) : "")));
    replace($("reasons"), ...s.reasons.map(r => el("li", {}, r)));
    $("checked-box").hidden = !s.checked.length && !s.blind.length;
    replace($("checked"), ...s.checked.map(c => el("li", {}, c)));
    replace($("blind"), ...s.blind.map(c => el("li", {}, "Not seen: " + c)));
  },

  cpus() {
    const f = last(); if (!f) return;
    const ids = f.cpu, h = Math.max(120, Math.min(520, 60 + ids.length * (ids.length > 40 ? 4 : 16)));
    heatmap("heat", h, ids.length, i => ids[ids.length - 1 - i], (frame, i) => frame.rx[frame.cpu.length === ids.length ? ids.length - 1 - i : -1], "cpu",
      (frame, i) => `cpu ${ids[ids.length - 1 - i]} at ${clock(frame.t)}: ${pct(frame.rx[ids.length - 1 - i] || 0)} receive softirq, ${pct(frame.busy[ids.length - 1 - i] || 0)} busy in all`);
    const order = ids.map((c, i) => [c, f.rx[i]]).sort((a, b) => b[1] - a[1]).slice(0, 4).filter(x => x[1] > .005);
    if (!views.cpus.hover) $("heat-text").textContent = order.length ? (embedded ? "At the end: " : "Now: ") + order.map(([c, x]) => `cpu ${c} ${pct(x)}`).join(", ") + "." : "No CPU spends time in receive softirq now.";
  },

  queues() {
    if (!last()) return;
    const f = seen();
    const facts = new Map((S.state ? S.state.queues : []).map(q => [q.key, q]));
    const node = new Map((S.state ? S.state.cpus : []).map(c => [c.id, c.node]));
    const want = $("filter").value.trim().toLowerCase(), idle = $("idle").checked;
    let list = Object.entries(f.q).map(([key, r]) => ({key, ...r, ...(facts.get(key) ? {irq: facts.get(key).irq, vector: facts.get(key).vector, home: facts.get(key).node, rps: facts.get(key).rps} : {irq: -1, home: -1})}));
    if (idle) for (const [key, q] of facts) if (!f.q[key]) list.push({key, pps: 0, share: 0, ns: 0, p99: 0, full: 0, cpu: -1, irq: q.irq, vector: q.vector, home: q.node, rps: q.rps});
    if (!idle) list = list.filter(r => r.pps > 0 || r.share > 0);
    for (const r of list) r.node = node.get(r.cpu) ?? -1;
    const all = list.length;
    if (want) list = list.filter(r => `${r.key} irq ${r.irq} cpu ${r.cpu} ${r.vector || ""}`.toLowerCase().includes(want));
    const by = S.sort, sign = S.down ? -1 : 1;
    list.sort((a, b) => (typeof a[by] === "string" ? a[by].localeCompare(b[by], undefined, {numeric: true}) : (a[by] - b[by]) || (a.pps - b.pps)) * sign || a.key.localeCompare(b.key, undefined, {numeric: true}));
    const shown = list.slice(0, 256), at = new Map(shown.map(r => [r.key, r])), body = $("queue-table").tBodies[0], box = $("queue-scroll");
    // Rows out of sight are filled every fifth frame, and when they are scrolled to.
    const tall = body.firstElementChild?.offsetHeight || 24, from = box.scrollTop / tall - 4, to = (box.scrollTop + box.clientHeight) / tall + 4, whole = (views.queues.n = ((views.queues.n || 0) + 1) % 5) === 0;
    let nth = 0;
    rows(body, shown.map(r => r.key), (tr, k) => {
      const i = nth++; if (!whole && tr.firstElementChild && (i < from || i > to)) return;
      const r = at.get(k), far = r.home >= 0 && r.node >= 0 && r.home !== r.node;
      cells(tr, [k + (r.rps ? ` (RPS ${r.rps})` : ""), [r.irq >= 0 ? r.irq : "–", "num"], [r.cpu >= 0 ? r.cpu : "–", "num"], [r.node >= 0 ? r.node + (far ? ` ≠ ${r.home}` : "") : "–", "num"],
        [num(r.pps), "num"], keep, [num(r.ns || null), "num"], [span(r.p99), "num"], [r.full ? pct(r.full) : "–", "num"]]);
      share(tr.children[5], r.share, .8);
    });
    $("queue-text").textContent = `${shown.length} of ${all} queues shown` + age(f) + (f.level < 1 ? "; time per queue needs the BPF programs (level 1)" : "") + ".";
  },

  map() {
    const box = $("sankey"), late = S.frames.slice(embedded ? -120 : -5), looked = late.filter(x => x.level > 0 && Object.keys(x.q).length); if (!late.length || !S.state) return;
    const fs = looked.length ? looked : [seen()];
    // A mean of five frames is drawn once in five: hundreds of shapes are what costs most here.
    const key = [S.state.queues.length, box.clientWidth].join();
    if (views.map.key === key && views.map.drawn >= fs[0].t) return;
    views.map.key = key; views.map.drawn = last().t;
    const facts = new Map(S.state.queues.map(q => [q.key, q])), node = new Map(S.state.cpus.map(c => [c.id, c.node]));
    const f = last(), busy = new Map(f.cpu.map((c, i) => [c, f.busy[i]])), nodes = [], index = new Map(), links = new Map();
    const at = (name, col, extra) => { const k = col + name; if (!index.has(k)) { index.set(k, nodes.length); nodes.push({name, col, ...extra}); } return index.get(k); };
    const link = (a, b, v, extra) => { const k = a + ">" + b, l = links.get(k); if (l) l.value += v; else links.set(k, {source: a, target: b, value: v, ...extra}); };
    const sum = new Map();
    for (const x of fs) for (const [k, r] of Object.entries(x.q)) if (r.pps > 0 && r.cpu >= 0) { const key = k + "\n" + r.cpu; sum.set(key, (sum.get(key) || 0) + r.pps / fs.length); }
    for (const [key, v] of [...sum].sort((a, b) => a[0].localeCompare(b[0], undefined, {numeric: true}))) {
      const [k, c] = key.split("\n"), cpu = Number(c), q = facts.get(k), n = node.get(cpu) ?? -1, far = q && q.node >= 0 && n >= 0 && q.node !== n;
      const hot = busy.get(cpu) || 0, paint = far ? "far" : hot > .9 ? "hot" : hot > .7 ? "warm" : "";
      const a = at(k, 0), b = q && q.irq >= 0 ? at(`irq ${q.irq}` + (q.vector && q.vector !== k ? " " + q.vector : ""), 1) : -1, d = at("cpu " + cpu, 2, {hot});
      if (b >= 0) { link(a, b, v, {paint}); link(b, d, v, {paint}); } else link(a, d, v, {paint});
      link(d, at(n >= 0 ? "node " + n : "one node", 3), v, {paint: far ? "far" : ""});
    }
    if (!links.size) { replace(box, el("p", {class: "note"}, "No queue receives packets now.")); return; }
    const columns = [...new Set(nodes.map(x => x.col))].sort(); // a column without nodes (no interrupt is known) is none
    const w = Math.max(320, box.clientWidth), rowsMost = Math.max(...columns.map(c => nodes.filter(x => x.col === c).length)), h = Math.max(140, Math.min(1200, rowsMost * 20 + 20));
    const graph = d3.sankey().nodeWidth(10).nodePadding(Math.max(1, Math.min(8, 180 / rowsMost))).nodeAlign(x => columns.indexOf(x.col)).nodeSort(null).extent([[4, 6], [w - 130, h - 6]])({nodes, links: [...links.values()]});
    const paint = {far: "#9350c8", hot: css("--bad"), warm: css("--warn"), "": css("--bar")}, out = svg("svg", {viewBox: `0 0 ${w} ${h}`, width: w, height: h, role: "presentation"}), path = d3.sankeyLinkHorizontal();
    for (const l of graph.links) {
      const p = svg("path", {d: path(l), fill: "none", stroke: paint[l.paint || ""], "stroke-opacity": .45, "stroke-width": Math.max(1, l.width)});
      p.append(svg("title", {}, `${l.source.name} → ${l.target.name}: ${num(l.value)} packets/s`)); out.append(p);
    }
    for (const n of graph.nodes) {
      const r = svg("rect", {x: n.x0, y: n.y0, width: n.x1 - n.x0, height: Math.max(1, n.y1 - n.y0), fill: n.col === 2 ? (n.hot > .9 ? paint.hot : n.hot > .7 ? paint.warm : css("--ok")) : css("--soft")});
      r.append(svg("title", {}, n.name + (n.col === 2 ? `: ${pct(n.hot)} busy` : "") + `, ${num(n.value)} packets/s`)); out.append(r);
      if (n.y1 - n.y0 > 6 || rowsMost < 30) out.append(svg("text", {x: n.x1 + 4, y: (n.y0 + n.y1) / 2 + 4}, n.name.length > 26 ? n.name.slice(0, 25) + "…" : n.name));
    }
    replace(box, out);
    box.setAttribute("aria-label", "flow diagram: " + [...sum].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([k, v]) => { const [q, c] = k.split("\n"); return `${q} on cpu ${c} ${num(v)} packets/s`; }).join("; "));
  },

  tables() {
    const s = S.state; if (!s || !s.tables.length) return;
    const loads = (last() || {}).loads || {}, key = JSON.stringify([s.tables, loads]);
    if (views.tables.key === key) return;
    views.tables.key = key;
    replace($("table-list"), ...s.tables.map(t => {
      const load = loads[t.dev], total = load ? load.reduce((a, b) => a + b, 0) : 0, most = load ? Math.max(...load, 1e-9) : 0;
      const grid = (name, table, other) => {
        const cols = Math.min(64, table.length), cell = 14, rowsN = Math.ceil(table.length / cols), c = el("canvas", {width: cols * cell, height: rowsN * cell, role: "img", "aria-label": `${t.dev}, ${name}: table of ${table.length} entries, in figures below`}), g = c.getContext("2d");
        table.forEach((q, i) => {
          const x = (i % cols) * cell, y = Math.floor(i / cols) * cell;
          g.globalAlpha = load && load.length === table.length ? .25 + .75 * load[i] / most : .9;
          g.fillStyle = hue(q); g.fillRect(x, y, cell - 1, cell - 1); g.globalAlpha = 1;
          if (other && other.length === table.length && other[i] !== q) { g.strokeStyle = css("--fg"); g.strokeRect(x + .5, y + .5, cell - 2, cell - 2); }
        });
        return c;
      };
      const queues = [...new Set([...t.now, ...(t.other || [])])].sort((a, b) => a - b), moved = t.other ? t.now.filter((q, i) => t.other[i] !== q).length : 0;
      const part = (table, q) => load && total && load.length === table.length ? pct(table.reduce((a, x, i) => a + (x === q ? load[i] : 0), 0) / total) : String(table.filter(x => x === q).length);
      return el("article", {class: "card"}, el("h3", {}, `${t.dev}: ${t.now.length} entries` + (t.other ? `, ${moved} differ` : "")),
        el("p", {class: "note"}, load ? "Colour is the queue, strength the load of the entry; " : "Colour is the queue; ", t.other ? "framed entries differ." : "nothing to compare with."),
        el("div", {class: "scroll"}, el("p", {}, "now"), grid("now", t.now, t.other), t.other ? el("p", {}, t.what) : "", t.other ? grid(t.what, t.other, t.now) : ""),
        el("div", {class: "scroll"}, el("table", {}, el("thead", {}, el("tr", {}, el("th", {scope: "col"}, load ? "share of packets by queue" : "entries by queue"), ...queues.map(q => el("th", {scope: "col", class: "num"}, String(q))))),
          el("tbody", {}, el("tr", {}, el("th", {scope: "row"}, "now"), ...queues.map(q => el("td", {class: "num"}, part(t.now, q)))),
            t.other ? el("tr", {}, el("th", {scope: "row"}, t.what.startsWith("advised") ? "advised" : "before"), ...queues.map(q => el("td", {class: "num"}, part(t.other, q)))) : ""))));
    }));
  },

  latency() {
    const names = [...new Set(S.frames.flatMap(f => Object.keys(f.stages || {})))].sort((a, b) => way.indexOf(a) - way.indexOf(b)), f = [...S.frames].reverse().find(x => x.stages);
    $("stage-text").textContent = names.length ? "Bounds are those of power-of-two buckets; packets are sampled." : "No packet was timed: that is level 2, which the agent climbs to when something is worth its price.";
    if (!f) return;
    const pick = $("stage");
    if ([...pick.options].map(o => o.value).join() !== names.join()) { const was = S.stage || pick.value; replace(pick, ...names.map(n => el("option", {value: n}, n))); pick.value = names.includes(was) ? was : names.includes("total") ? "total" : names[0]; }
    S.stage = pick.value;
    heatmap("stage-heat", 300, 32, i => span(Math.pow(2, i)), (frame, i) => { const s = (frame.stages || {})[S.stage]; if (!s) return -1; return !s.h[i] ? 0 : .15 + .63 * Math.sqrt(s.h[i] / Math.max(...s.h)); /* red is for trouble, many packets are none */ }, "≤",
      (frame, i) => { const s = (frame.stages || {})[S.stage]; return s ? `${S.stage} at ${clock(frame.t)}: ${s.h[i] || 0} of ${s.n} took ${i ? span(Math.pow(2, i - 1)) : "0"} to ${span(Math.pow(2, i))}` : ""; });
    rows($("stage-table").tBodies[0], names.filter(n => f.stages[n]), (tr, n) => { const s = f.stages[n]; cells(tr, [n, [num(s.n), "num"], [span(s.p50), "num"], [span(s.p90), "num"], [span(s.p99), "num"]]); });
  },

  flows() {
    const f = [...S.frames].reverse().find(x => x.flows && x.flows.length);
    $("flow-text").textContent = f ? `Sampled at ${clock(f.t)}; ± is the 95 % interval of sampling.` : "No flow was sampled: that is level 2.";
    if (!f) return;
    const at = new Map(f.flows.map(x => [x.name + x.dev + x.q, x]));
    rows($("flow-table").tBodies[0], [...at.keys()], (tr, k) => {
      const x = at.get(k);
      cells(tr, [[x.name, "mono"], `${x.dev} rx-${x.q >= 0 ? x.q : "?"}`, [x.bucket >= 0 ? x.bucket : "–", "num"], [x.cpu, "num"], [`${num(x.pps)} ± ${num(x.err)}`, "num"], [num(x.size), "num"], keep, [x.reader || "–", "wide"]]);
      share(tr.children[6], x.share, .5);
    });
  },

  history() {
    trend();
    const s = S.state; if (!s || (S.since && !s.history.length)) return;
    const key = JSON.stringify(s.history); if (views.history.key === key) return; views.history.key = key;
    replace($("deeds"), ...[...s.history].reverse().slice(0, 50).map(d => el("li", {}, el("strong", {}, `${new Date(d.begun).toLocaleString()} · transaction ${d.id} · ${d.state}`), d.why ? ": " + d.why : "",
      el("details", {}, el("summary", {}, `${d.changes.length} change${d.changes.length === 1 ? "" : "s"}`), el("ul", {}, ...d.changes.map(c => el("li", {class: "mono"}, c)))),
      d.effect && d.effect.length ? el("details", {}, el("summary", {}, "measured before and after"), el("table", {}, el("thead", {}, el("tr", {}, ...["measure", "before", "after", "judged"].map((h, i) => el("th", {scope: "col", class: i % 3 ? "num" : ""}, h)))), el("tbody", {}, ...d.effect.map(([n, a, b, w]) => el("tr", {}, el("th", {scope: "row"}, n), el("td", {class: "num"}, a), el("td", {class: "num"}, b), el("td", {}, w)))))) : "",
      d.flame ? el("p", {}, el("a", {href: "flame.svg?transaction=" + encodeURIComponent(d.id), target: "_blank", rel: "noopener"}, "flame graph: what took more time after it, and what less")) : "")));
    if (!s.history.length) replace($("deeds"), el("li", {}, "No change was made in this boot."));
  },

  settings() {
    const s = S.state; if (!s) return;
    const key = JSON.stringify(s.settings); if (views.settings.key === key) return; views.settings.key = key;
    const devs = [...new Set(s.settings.flatMap(x => Object.keys(x.value)))].sort();
    replace($("setting-table").tHead, el("tr", {}, el("th", {scope: "col"}, "setting"), ...devs.map(d => el("th", {scope: "col"}, d))));
    rows($("setting-table").tBodies[0], s.settings.map(x => x.kind), (tr, k) => { const x = s.settings.find(y => y.kind === k); cells(tr, [k, ...devs.map(d => [x.value[d] ?? "", "wide"])]); });
  },
};

// --- charts (uPlot)

// trend draws what history is judged by, with the changes made.
function trend() {
  const fs = S.frames; if (!fs.length) return;
  const data = [fs.map(f => f.t / 1e3), fs.map(f => f.pps), fs.map(f => 100 * Math.max(0, ...f.rx)), fs.map(f => Object.values(f.drops || {}).reduce((a, b) => a + b, 0))];
  chart("trend", 220, data, () => ({
    scales: {x: moments, y: {range: (_, __, most) => [0, Math.max(10, most * 1.1)]}, "%": {range: [0, 100]}},
    axes: [axis(), {...axis(), label: "packets/s", values: (_, v) => v.map(num), size: 64}, {...axis(), scale: "%", side: 1, label: "hottest CPU %", grid: {show: false}}],
    padding: [18, null, null, null], // room for what the marks are called
    series: [{}, {label: "packets/s", stroke: css("--accent"), width: 1.5, points: {show: u => u.data[0].length < 2}}, {label: "hottest CPU %", scale: "%", stroke: css("--warn"), width: 1.5, points: {show: u => u.data[0].length < 2}}, {label: "lost/s", stroke: css("--bad"), width: 1.5, points: {show: u => u.data[0].length < 2}}],
    hooks: {draw: [u => {
      for (const d of [...(S.state ? S.state.history : []), ...(S.since ? [{begun: S.since, state: "after", id: ""}] : [])]) {
        const x = d.begun / 1e3; if (x < u.scales.x.min || x > u.scales.x.max) continue;
        const px = u.valToPos(x, "x", true), g = u.ctx;
        g.save(); g.strokeStyle = d.state === "kept" ? css("--ok") : css("--bad"); g.setLineDash([4, 4]); g.lineWidth = 2; g.beginPath(); g.moveTo(px, u.bbox.top); g.lineTo(px, u.bbox.top + u.bbox.height); g.stroke();
        g.fillStyle = css("--fg"); g.textBaseline = "bottom"; g.fillText(`${d.id} ${d.state}`, px + 4 * devicePixelRatio, u.bbox.top - 1);
        // The judged effect: the hottest CPU before and after, as a step beside the line.
        const hot = (d.effect || []).find(e => e[0].startsWith("hottest"));
        if (hot) {
          const y = v => u.valToPos(100 * v, "%", true), w = 40 * devicePixelRatio; g.setLineDash([]); g.lineWidth = 3; g.strokeStyle = css("--warn");
          g.beginPath(); g.moveTo(px - w, y(hot[1])); g.lineTo(px, y(hot[1])); g.lineTo(px, y(hot[2])); g.lineTo(px + w, y(hot[2])); g.stroke();
        }
        g.restore();
      }
    }]},
  }));
  const [min, max] = moments.range(null, data[0][0], data[0].at(-1));
  $("trend").setAttribute("aria-label", `packets per second, hottest CPU and lost per second from ${clock(1e3 * min)} to ${clock(1e3 * max)}, with the changes made`);
}

const charts = new Map();
// A second at least: what has one point only would get an axis of years.
const moments = {time: true, range: (_, from, to) => [Math.min(from, to - 1), to]};
const axis = () => ({stroke: css("--soft"), grid: {stroke: css("--line"), width: 1}, ticks: {stroke: css("--line"), width: 1}});
function chart(id, height, data, options) {
  const box = $(id), width = Math.max(320, box.clientWidth), have = charts.get(id);
  if (have && have.height === height) {
    if (have.width !== width) { have.plot.setSize({width, height}); have.width = width; }
    have.plot.setData(data); return have.plot;
  }
  if (have) have.plot.destroy();
  const plot = new uPlot({width, height, cursor: {y: false}, legend: {live: true}, ...options()}, data, box);
  charts.set(id, {plot, width, height}); return plot;
}
// heatmap draws a cell per frame and row from below; value < 0 is nothing.
function heatmap(id, height, n, label, value, unit, tell) {
  const text = $(id === "heat" ? "heat-text" : "stage-text");
  const fs = S.frames, data = [fs.map(f => f.t / 1e3), fs.map(() => null)];
  const have = charts.get(id); if (have) Object.assign(have.now, {n, label, value, tell});
  const now = have && have.height === height ? have.now : {n, label, value, tell};
  chart(id, height, data, () => ({
    legend: {show: false},
    scales: {x: moments, y: {range: () => [0, now.n]}},
    axes: [axis(), {...axis(), size: 70, grid: {show: false}, splits: () => { const k = Math.max(1, Math.ceil(now.n / (height / 18))), out = []; for (let i = 0; i < now.n; i += k) out.push(i + .5); return out; }, values: (_, v) => v.map(x => `${unit} ${now.label(Math.floor(x))}`)}],
    series: [{}, {paths: () => null, points: {show: false}}],
    cursor: {points: {show: false}},
    hooks: {
      draw: [u => {
        const g = u.ctx, {left, top, width, height} = u.bbox;
        g.save(); g.beginPath(); g.rect(left, top, width, height); g.clip(); g.fillStyle = css("--card"); g.fillRect(left, top, width, height);
        // One pixel a frame and row (0 where nothing was seen), drawn once and stretched: a rectangle each would cost a tenth of a core.
        const fs = S.frames, off = now.off || (now.off = document.createElement("canvas"));
        if (fs.length) {
          off.width = fs.length; off.height = now.n;
          const o = off.getContext("2d"), img = o.createImageData(fs.length, now.n), px = new Uint32Array(img.data.buffer);
          fs.forEach((f, k) => { for (let i = 0; i < now.n; i++) { const v = now.value(f, i); px[(now.n - 1 - i) * fs.length + k] = v >= 0 ? packed[Math.min(100, Math.round(100 * v))] : 0; } });
          o.putImageData(img, 0, 0);
          g.imageSmoothingEnabled = false;
          const at = k => u.valToPos(fs[k].t / 1e3, "x", true), begin = k => u.valToPos(fs[k].t / 1e3 - fs[k].s, "x", true);
          for (let a = 0; a < fs.length;) { // runs of frames that follow each other
            let b = a + 1; while (b < fs.length && Math.abs(fs[b].t - fs[b - 1].t - 1e3 * fs[b].s) < 250 * fs[b].s && Math.abs(fs[b].s - fs[a].s) < .1 * fs[a].s) b++;
            const x0 = begin(a), x1 = at(b - 1);
            if (x1 > left) g.drawImage(off, a, 0, b - a, now.n, x0, top, x1 - x0, height);
            a = b;
          }
        }
        g.restore();
      }],
      setCursor: [u => {
        const i = u.cursor.idx, y = u.cursor.top; if (id === "heat") views.cpus.hover = i !== null && y >= 0;
        if (i === null || i === undefined || y < 0 || !S.frames[i]) return;
        const k = Math.floor(u.posToVal(y, "y")); if (k >= 0 && k < now.n) text.textContent = now.tell(S.frames[i], k);
      }],
    },
  }));
  charts.get(id).now = now;
}

// --- drawing when there is something new, and only what is looked at; a report may be printed, so all of it

let drawing = 0;
function draw(...names) {
  if (S.paused) { S.late++; return; }
  for (const n of names.length ? names : Object.keys(views)) S.due.add(n);
  if (!drawing) drawing = requestAnimationFrame(() => {
    drawing = 0;
    for (const n of [...S.due]) if (n === "now" || embedded || S.seen.has(n)) { S.due.delete(n); views[n](); }
  });
}
const eye = new IntersectionObserver(es => { for (const e of es) e.isIntersecting ? S.seen.add(e.target.id) : S.seen.delete(e.target.id); draw(...es.filter(e => e.isIntersecting).map(e => e.target.id)); }, {rootMargin: "100px"});
for (const n of Object.keys(views)) eye.observe($(n));
let resized; addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => draw(), 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const [id, c] of charts) { c.plot.destroy(); charts.delete(id); } for (const v of Object.values(views)) delete v.key; draw(); });

$("filter").addEventListener("input", () => draw("queues"));
$("queue-scroll").addEventListener("scroll", () => draw("queues"), {passive: true});
$("idle").addEventListener("change", () => draw("queues"));
$("stage").addEventListener("change", () => { S.stage = $("stage").value; draw("latency"); });
$("pause").addEventListener("click", () => { S.paused = !S.paused; $("pause").setAttribute("aria-pressed", S.paused); $("pause").textContent = S.paused ? "Resume" : "Pause"; if (!S.paused) { S.late = 0; draw(); } });
for (const b of document.querySelectorAll("[data-sort]")) b.addEventListener("click", () => {
  if (S.sort === b.dataset.sort) S.down = !S.down; else { S.sort = b.dataset.sort; S.down = !["key", "irq", "cpu", "node"].includes(S.sort); }
  for (const x of document.querySelectorAll("th[aria-sort]")) x.removeAttribute("aria-sort");
  b.closest("th").setAttribute("aria-sort", S.down ? "descending" : "ascending"); draw("queues");
});
$("take").addEventListener("click", async () => {
  $("take").disabled = true; $("taking").textContent = "sampling for 5 s …";
  try {
    const r = await fetch("flame.svg?seconds=5", {cache: "no-store"}), text = await r.text();
    if (!r.ok) throw new Error(text);
    const url = "data:image/svg+xml," + encodeURIComponent(text), save = el("a", {href: url, download: "rx-flame.svg"}, "Save it: opened by itself it zooms and searches");
    replace($("flame"), el("img", {src: url, alt: "flame graph of the receive path by queue, CPU and function"}), el("p", {}, save));
    $("taking").textContent = "";
  } catch (e) { $("taking").textContent = String(e.message || e); }
  $("take").disabled = false;
});

// --- data

// What is said is read out by a screen reader, the clock beside it is not.
function say(text, lost, at) { put($("said"), text); put($("clock"), at ? " · " + clock(at) : ""); document.body.classList.toggle("lost", !!lost); }
const live = f => say("live" + (f.level < 1 ? " · level 0" : ""), false, f.t);
function newState(s) {
  // A link to a section was followed when the page was still empty: what was drawn since moved it away.
  if (!S.state && location.hash) setTimeout(() => document.querySelector(":target")?.scrollIntoView({behavior: "instant"}), 200);
  S.state = s; $("host").textContent = [s.host, s.kernel].filter(Boolean).join(" · "); draw();
}
function newFrame(f) { S.frames.push(f); if (S.frames.length > KEEP) S.frames.splice(0, S.frames.length - KEEP); if (!S.paused) live(f); draw(); }

if (embedded) {
  document.body.classList.add("report");
  const d = JSON.parse(embedded.textContent);
  if (d.compare) {
    $("compare").hidden = false;
    replace($("compare-rows"), ...d.compare.map(m => el("tr", {}, el("th", {scope: "row"}, m.name), el("td", {class: "num"}, m.before), el("td", {class: "num"}, m.after), el("td", {class: "num"}, m.change || ""))));
    S.since = d.since;
  }
  S.frames = d.frames; say(d.title || "recording"); newState(d.state);
} else {
  const events = new EventSource("events");
  const on = (name, f) => events.addEventListener(name, e => f(JSON.parse(e.data)));
  on("hello", h => {
    $("profile").hidden = !h.flame; $("profile-link").hidden = !h.flame;
    const mine = document.documentElement.dataset.version;
    if (h.version !== mine && sessionStorage.getItem("reloaded") !== h.version) { sessionStorage.setItem("reloaded", h.version); location.reload(); return; }
    $("version").textContent = h.version; say("connected, waiting for a sample");
  });
  on("state", newState);
  on("past", fs => { S.frames = fs; if (fs.length) live(last()); draw(); });
  on("frame", newFrame);
  events.onerror = () => say(events.readyState === EventSource.CLOSED ? "the agent refused this page: reload" : "connection lost, trying again; what is shown is old", true);
  // A stream that ends for good (503) does not come back by itself.
  setInterval(() => { if (events.readyState === EventSource.CLOSED) location.reload(); }, 30000);
}
})();
