"use strict";
// The timeline: the ops of each device and the transfers of each channel; below, the memory of the devices over the same time.
// Each view draws one path for each colour. A bar narrower than a pixel is one pixel wide, and bars that begin in the same pixel are drawn
// as one. So the number of shapes depends on the width of the picture, not on the number of ops.

const MS = 1e6, MIB = 2 ** 20, MOST_MATCHES = 50, TRANSFER = "#30343d", CHAIN = "#d92d20", FOUND = "#e3128b";
// A name escaped for plotly, where tags, entities and templates have a meaning (page.plain in Python).
const plain = (name) => name.replace(/[&<>%$]/g, (mark) => `&#${mark.charCodeAt(0)};`);
const text = (number, digits = 3) => number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

function drawTimeline(step, options) {
  const { bars, rows, ops, transfers, memory, copies } = step;
  const plot = document.getElementById("timeline"), count = bars.row.length, total = step.step_ns / MS;
  const barOf = new Int32Array(ops.name.length), first = new Int32Array(rows.length + 1).fill(count), onChain = new Set(step.chain.node);
  for (let bar = count - 1; bar >= 0; bar--) {
    if (isOp(bar)) barOf[bars.node[bar]] = bar;
    first[bars.row[bar]] = bar;
  }
  for (let row = rows.length - 1; row >= 0; row--) first[row] = Math.min(first[row], first[row + 1]);
  const found = { name: "found", colour: FOUND, bars: [], half: 0.5, least: 3 };
  const codes = { phase: ops.phase, module: ops.shade, copy: copies }, chosen = document.getElementById("colouring");
  let colouring = chosen.value, shown = [0, total];

  function isOp(bar) { return bars.node[bar] < ops.name.length; }
  function opOf(bar) { return isOp(bar) ? bars.node[bar] : transfers.op[bars.node[bar] - ops.name.length]; }

  // ---- drawing
  function width() { return Math.max(300, plot._fullLayout ? plot._fullLayout.xaxis._length : plot.clientWidth - 160); }

  // The corners of the given bars in the view: polygons with gaps between them. `half` is half the height of an op, `least` the least width in pixels.
  function corners({ bars: wanted, half = 0.4, least = 1 }) {
    const [from, to] = shown, pixel = (to - from) / width(), x = [], y = [];
    let row = -1, left = 0, right = 0;
    const flush = () => {
      if (row < 0) return;
      const high = half * (rows[row].channel ? 0.55 : 1), end = right - left > 4 * pixel ? right - pixel / 2 : right;
      x.push(left, end, end, left, null);
      y.push(row - high, row - high, row + high, row + high, null);
    };
    for (const bar of wanted) {
      const start = bars.start_ns[bar] / MS, end = Math.max(bars.end_ns[bar] / MS, start + least * pixel);
      if (end < from || start > to) continue;
      if (row === bars.row[bar] && start < left + pixel) { right = Math.max(right, end); continue; }
      flush();
      [row, left, right] = [bars.row[bar], start, end];
    }
    flush();
    return x.length ? { x, y } : { x: [null], y: [null] }; // plotly hides a trace without points from the legend
  }

  // The number of its micro-batch on each pass that is wide enough for it.
  function numbers() {
    const [from, to] = shown, pixel = (to - from) / width(), made = { x: [], y: [], text: [], textfont: { size: 11, color: [] } };
    const { row, start_ns, end_ns, number, backward } = copies.passes;
    row.forEach((place, pass) => {
      const written = String(number[pass]), start = Math.max(from, start_ns[pass] / MS), end = Math.min(to, end_ns[pass] / MS);
      if (end - start < (6 + 8 * written.length) * pixel) return;
      made.x.push((start + end) / 2);
      made.y.push(place);
      made.text.push(written);
      made.textfont.color.push(backward[pass] ? "#fff" : "#1d2433");
    });
    return made;
  }

  function groups() {
    const code = codes[colouring], made = code.colours.map((colour, number) => ({ name: groupName(code, number), colour, bars: [] }));
    if (code === copies) made.forEach((group, number) => Object.assign(group, { second: code.owner.indexOf(code.owner[number]) < number, rank: code.owner[number] }));
    const sent = { name: "transfers", colour: TRANSFER, bars: [] };
    for (let bar = 0; bar < count; bar++) (isOp(bar) ? made[code.of[bars.node[bar]]] : sent).bars.push(bar);
    return [...made, sent].filter((group) => group.bars.length);
  }
  function groupName(code, number) {
    if (code.names) return code.names[number];
    return ops.module.names[code.of.indexOf(number) < 0 ? 0 : ops.module.of[code.of.indexOf(number)]];
  }
  let current = groups();

  function traces() {
    const filled = (group) => ({
      type: "scatter", mode: "none", fill: "toself", fillcolor: group.colour, name: plain(group.name), hoverinfo: "skip", line: { width: 0 },
      showlegend: group !== found && !group.second, legendgroup: colouring === "copy" ? group.name : "", legendrank: group.rank, ...corners(group),
    });
    const chain = {
      type: "scatter", mode: "lines", name: "critical chain", hoverinfo: "skip", visible: "legendonly", line: { color: CHAIN, width: 1.5, shape: "hv" },
      x: [...step.chain.start_ns, step.step_ns].map((time) => time / MS), y: [...step.chain.row, step.chain.row.at(-1)],
    };
    return [
      ...[...current, found].map(filled),
      ...(colouring === "copy" ? [{ type: "scatter", mode: "text", hoverinfo: "skip", showlegend: false, ...numbers() }] : []),
      chain,
      ...memory.map(memoryTrace),
    ];
  }

  function memoryTrace(device) {
    const peak = Math.max(...device.bytes), of = `at most ${text(peak / MIB, 0)} of ${text(device.capacity / MIB, 0)} MiB`;
    return {
      type: "scatter", mode: "lines", yaxis: "y2", legend: "legend2", name: `${plain(device.name)}: ${of}`,
      line: { shape: "hv", width: 1.3, color: device.colour },
      x: device.time_ns.map((time) => time / MS), y: device.bytes.map((size) => (100 * size) / Math.max(1, device.capacity)),
      customdata: device.bytes.map((size) => text(size / MIB, 1)),
      hovertemplate: `${plain(device.name)}: %{customdata} MiB, %{y:.1f} % of its memory<extra></extra>`,
    };
  }

  function legendTitle() { return { text: colouring === "copy" ? `${copies.title} ` : "" }; }

  function layout() {
    const heights = rows.length * 34 + 10, below = 180, between = 56, whole = heights + below + between;
    const head = copies && new Set(copies.owner).size > 10 ? 106 : 66; // a legend of many hues has several lines
    const most = Math.max(...memory.map((device) => (100 * Math.max(...device.bytes)) / Math.max(1, device.capacity)));
    return {
      height: whole + head + 49, margin: { l: 10, r: 10, t: head, b: 45 }, hovermode: "closest", dragmode: "zoom", plot_bgcolor: "#fff",
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal", title: legendTitle() },
      legend2: { orientation: "h", x: 0, y: (below + 2) / whole, yanchor: "bottom" },
      xaxis: { range: [0, total], anchor: "y2", title: { text: "ms" }, exponentformat: "none", showspikes: false, zeroline: false, gridcolor: "#eceef2" },
      yaxis: {
        domain: [(below + between) / whole, 1], range: [rows.length - 0.5, -0.5], tickvals: rows.map((_, row) => row), fixedrange: true,
        ticktext: rows.map((row) => plain(row.name)), ticks: "outside", tickcolor: "#fff", automargin: true, zeroline: false, showgrid: false,
      },
      yaxis2: {
        domain: [0, below / whole], range: [0, most > 25 ? Math.max(105, most * 1.05) : most * 1.1 || 1], fixedrange: true, automargin: true,
        title: { text: "memory, %" }, zeroline: false, gridcolor: "#eceef2",
      },
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, yref: "y2", y0: 100, y1: 100, line: { color: CHAIN, dash: "dot", width: 1 } }],
    };
  }

  function redraw() {
    const made = [...current, found].map(corners), written = colouring === "copy" ? numbers() : null;
    if (written) made.push(written);
    const changed = { x: made.map((each) => each.x), y: made.map((each) => each.y) };
    if (written) Object.assign(changed, { text: made.map((each) => each.text), "textfont.color": made.map((each) => each.textfont?.color) });
    return Plotly.restyle(plot, changed, made.map((_, number) => number));
  }

  function zoom(from, to) {
    return Plotly.relayout(plot, { "xaxis.range": [Math.max(0, from), Math.min(total, to)] });
  }

  // ---- what is under the pointer
  function barAt(event) {
    const { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();
    const x = event.clientX - box.left - xaxis._offset, y = event.clientY - box.top - yaxis._offset;
    if (x < 0 || x > xaxis._length || y < 0 || y > yaxis._length) return -1;
    const row = Math.round(yaxis.p2d(y)), time = xaxis.p2d(x) * MS, near = 3 * Math.abs(xaxis.p2d(1) - xaxis.p2d(0)) * MS;
    if (row < 0 || row >= rows.length) return -1;
    let low = first[row], high = first[row + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (bars.start_ns[middle] <= time) low = middle + 1; else high = middle;
    }
    const before = low - 1, distance = (bar) => Math.max(0, bars.start_ns[bar] - time, time - bars.end_ns[bar]);
    const candidates = [before, low].filter((bar) => bar >= first[row] && bar < first[row + 1] && distance(bar) <= near);
    return candidates.length ? candidates.reduce((best, bar) => (distance(bar) < distance(best) ? bar : best)) : -1;
  }

  function describe(bar) {
    const op = opOf(bar), start = bars.start_ns[bar] / MS, end = bars.end_ns[bar] / MS, transfer = bars.node[bar] - ops.name.length;
    const size = isOp(bar) ? ops.bytes[op] : transfers.bytes[transfer];
    return [
      ops.name[op],
      isOp(bar) ? `${ops.kind.names[ops.kind.of[op]]} on ${rows[bars.row[bar]].name}` : `sent ${transfers.link[transfer]}, ${rows[bars.row[bar]].name}`,
      `${ops.phase.names[ops.phase.of[op]]} of ${ops.module.names[ops.module.of[op]]}`,
      ...(copies ? [copies.words.names[copies.words.of[op]]] : []),
      `${text(start, 6)} – ${text(end, 6)} ms (${text((end - start) * 1000)} µs)`,
      `${size.toLocaleString("en")} bytes${isOp(bar) ? " of outputs" : ""}${onChain.has(bars.node[bar]) ? ", on the critical chain" : ""}`,
    ].join("\n");
  }

  const tip = document.getElementById("tip");
  plot.addEventListener("mousemove", (event) => {
    const bar = barAt(event);
    tip.style.display = bar < 0 ? "none" : "block";
    if (bar < 0) return;
    tip.textContent = describe(bar);
    tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 16, window.innerHeight - tip.offsetHeight - 8)}px`;
  });
  plot.addEventListener("mouseleave", () => { tip.style.display = "none"; });

  // ---- the search box
  const box = document.getElementById("search"), list = document.getElementById("matches");
  function matches(query) {
    const words = query.toLowerCase(), named = [], inModule = [];
    if (!words) return [];
    for (let op = 0; op < ops.name.length; op++) {
      if (ops.name[op].toLowerCase().includes(words)) named.push(op);
      else if (ops.module.names[ops.module.of[op]].toLowerCase().includes(words)) inModule.push(op);
    }
    return named.concat(inModule);
  }
  function offer() {
    const some = matches(box.value.trim());
    found.bars = some.map((op) => barOf[op]).sort((one, other) => one - other);
    list.replaceChildren(...some.slice(0, MOST_MATCHES).map(item));
    if (some.length > MOST_MATCHES || (box.value.trim() && !some.length)) {
      const more = document.createElement("li");
      more.textContent = some.length ? `${(some.length - MOST_MATCHES).toLocaleString("en")} more; all are highlighted` : "no op is named so";
      list.append(more);
    }
    return redraw();
  }
  function item(op) {
    const made = document.createElement("li"), about = document.createElement("small"), bar = barOf[op];
    about.textContent = `${ops.module.names[ops.module.of[op]]}, ${rows[bars.row[bar]].name}, ${text(bars.start_ns[bar] / MS)} ms`;
    made.append(ops.name[op], about);
    made.addEventListener("click", () => choose(op));
    return made;
  }
  function choose(op) {
    const bar = barOf[op], start = bars.start_ns[bar] / MS, end = bars.end_ns[bar] / MS, around = Math.max(4 * (end - start), total / 1e5);
    found.bars = [bar];
    list.replaceChildren();
    return zoom(start - around, end + around).then(redraw);
  }
  box.addEventListener("input", offer);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && list.firstChild) list.firstChild.click();
    if (event.key === "Escape") { box.value = ""; offer(); }
  });
  document.addEventListener("click", (event) => { if (!event.target.closest(".search")) list.replaceChildren(); });

  // ---- everything else that is clicked
  chosen.addEventListener("change", () => {
    colouring = chosen.value;
    current = groups();
    plot.layout.legend.title = legendTitle();
    Plotly.react(plot, traces(), plot.layout, options);
  });
  document.getElementById("whole").addEventListener("click", () => zoom(0, total));
  for (const row of document.querySelectorAll("tr[data-from]")) {
    row.addEventListener("click", () => {
      const from = Number(row.dataset.from) / MS, to = Number(row.dataset.to) / MS, around = (to - from) / 10;
      zoom(from - around, to + around);
      plot.scrollIntoView({ behavior: "smooth", block: "center" });
    });
  }
  return Plotly.newPlot(plot, traces(), layout(), options).then(() => {
    plot.on("plotly_relayout", () => {
      const range = plot._fullLayout.xaxis.range.map(Number);
      if (range[0] === shown[0] && range[1] === shown[1]) return;
      shown = range;
      redraw();
    });
  });
}
