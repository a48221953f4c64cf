"use strict";
(function () {
  const left = 10, full = 1180, letter = 7.2;
  const boxes = Array.from(document.querySelectorAll(".f"), (g) => {
    const rect = g.querySelector("rect"), text = g.querySelector("text");
    return { g, rect, text, name: text.dataset.n, title: g.querySelector("title").textContent,
      x: +rect.getAttribute("x"), w: +rect.getAttribute("width"), y: +rect.getAttribute("y") };
  });
  const byId = (id) => document.getElementById(id);

  function fit(name, w) {
    const n = Math.floor((w - 6) / letter), letters = Array.from(name);
    if (letters.length <= n) return name;
    return n < 3 ? "" : letters.slice(0, n - 1).join("") + "…";
  }
  // zoom has a box fill the width: callers stay, dimmed, and what is beside it goes.
  function zoom(to) {
    const scale = full / to.w;
    for (const b of boxes) {
      const caller = b.y > to.y && b.x <= to.x + 0.3 && b.x + b.w >= to.x + to.w - 0.3;
      const inside = b.y <= to.y && b.x >= to.x - 0.3 && b.x + b.w <= to.x + to.w + 0.5;
      b.g.classList.toggle("out", !caller && !inside);
      b.g.classList.toggle("under", caller);
      const x = caller ? left : left + (b.x - to.x) * scale, w = caller ? full : b.w * scale;
      b.rect.setAttribute("x", x);
      b.rect.setAttribute("width", Math.max(w, 0.1));
      b.text.setAttribute("x", x + 3);
      b.text.textContent = fit(b.name, w);
    }
  }
  function search(want) {
    let re = null;
    if (want) {
      try { re = new RegExp(want, "i"); } catch { re = new RegExp(want.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i"); }
    }
    const hits = [];
    for (const b of boxes) {
      const hit = re !== null && re.test(b.name);
      b.g.classList.toggle("hit", hit);
      if (hit) hits.push(b);
    }
    // Of boxes on top of each other only the lowest counts.
    hits.sort((a, b) => b.y - a.y);
    let sum = 0;
    const counted = [];
    for (const b of hits) {
      if (counted.some((c) => b.x >= c.x - 0.3 && b.x + b.w <= c.x + c.w + 0.3)) continue;
      counted.push(b);
      sum += b.w;
    }
    byId("matched").textContent = re === null ? "" : "matched: " + (100 * sum / full).toFixed(1) + " %";
  }
  function ask() {
    const want = window.prompt("Show functions that match:", "");
    if (want !== null) search(want);
  }
  for (const b of boxes) {
    b.g.addEventListener("click", () => zoom(b));
    b.g.addEventListener("keydown", (e) => { if (e.key === "Enter") zoom(b); });
    const tell = () => { byId("detail").textContent = b.title; };
    b.g.addEventListener("mouseover", tell);
    b.g.addEventListener("focus", tell);
  }
  const whole = () => { if (boxes.length > 0) zoom(boxes[0]); };
  byId("reset").addEventListener("click", whole);
  byId("search").addEventListener("click", ask);
  window.addEventListener("keydown", (e) => {
    if (e.key === "/") { e.preventDefault(); ask(); }
    if (e.key === "Escape") { search(""); whole(); }
  });
})();
