// The page of all runs: filtered, ticked, overlaid. Its address says what is chosen.
"use strict";
const COLUMNS = [
  { key: "started", name: "started" },
  { key: "verdict", name: "verdict" },
  { key: "topo", name: "topo" },
  { key: "workload", name: "workload" },
  { key: "strategy", name: "strategy" },
  { key: "compressor", name: "compressor" },
  { key: "workers", name: "workers", number: true },
  { key: "seed", name: "seed", number: true },
  { key: "metric_last", name: "last metric", number: true },
  { key: "metric_best", name: "best metric", number: true },
  { key: "time_to_target_s", name: "to target", number: true, kind: "time" },
  { key: "time_s", name: "time", number: true, kind: "time" },
  { key: "wan_bytes", name: "WAN", number: true, kind: "size" },
];
const MANY = 400;
const chosen = { ticks: new Set(), sort: "-started", kind: "accuracy_over_time", band: "range", off: new Set() };
let version = -1;
let unreadable = 0;
let runs = new Map();
let wanted = 0;
let place = null;
let kinds = {};

function readAddress() {
  const given = new URLSearchParams(location.search);
  chosen.ticks = new Set(given.getAll("run"));
  chosen.off = new Set(given.getAll("off"));
  for (const key of ["sort", "kind", "band"]) if (given.get(key)) chosen[key] = given.get(key);
  byId("filter").value = given.get("q") || "";
  byId("invalid").checked = given.has("invalid");
}

function writeAddress() {
  const params = new URLSearchParams();
  if (byId("filter").value) params.set("q", byId("filter").value);
  if (byId("invalid").checked) params.set("invalid", "1");
  if (chosen.sort !== "-started") params.set("sort", chosen.sort);
  if (chosen.kind !== "accuracy_over_time") params.set("kind", chosen.kind);
  if (chosen.band !== "range") params.set("band", chosen.band);
  chosen.ticks.forEach((run) => params.append("run", run));
  chosen.off.forEach((label) => params.append("off", label));
  setParams(params);
}

const isDoubtful = (row) => row.status !== "running" && !["valid", "suspect"].includes(row.verdict);

function matches(row, words) {
  return words.every((word) => {
    const [key, value] = word.split("=");
    if (value !== undefined && key in row) return value.split(",").includes(String(row[key]).toLowerCase());
    return row.text.includes(word);
  });
}

function shownRows() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const takesAll = byId("invalid").checked;
  return [...runs.values()].filter((row) => (takesAll || !isDoubtful(row)) && matches(row, words));
}

function makeRow(row, units) {
  const tick = element("input", { type: "checkbox", "aria-label": `tick ${row.run_id}`, value: row.run_id });
  tick.checked = chosen.ticks.has(row.run_id);
  const made = element("div", { role: "row", class: "row" }, element("span", { role: "cell", class: "tick" }, tick));
  for (const column of COLUMNS) {
    const value = row[column.key];
    const cell = element("span", { role: "cell", class: column.number ? "number" : null, "data-name": column.name });
    if (column.key === "started") {
      cell.append(element("a", { href: `/run/${encodeURIComponent(row.run_id)}`, title: row.run_id }, startedText(row)));
    } else if (column.key === "verdict") {
      cell.append(row.status === "running" ? element("span", { class: "verdict running" }, "running") : verdictMark(row));
      if (row.kind && row.kind !== "emulated") cell.append(` ${row.kind}`);
    } else if (column.number) {
      const [factor, unit] = units.get(column.key);
      cell.textContent = shown(value, factor);
      if (unit && isNumber(value)) cell.dataset.unit = unit;
    } else cell.textContent = value === null ? "–" : value;
    if (column.key === "metric_last" && row.metric_name) cell.title = row.metric_name;
    made.append(cell);
  }
  return made;
}

function makeHead(units) {
  const cells = COLUMNS.map((column) => {
    const unit = units.has(column.key) && units.get(column.key)[1];
    const way = chosen.sort.replace("-", "") !== column.key ? null : chosen.sort[0] === "-" ? "descending" : "ascending";
    const arrow = { descending: " ↓", ascending: " ↑" }[way] || "";
    const button = element("button", { type: "button" }, column.name + (unit ? ` (${unit})` : "") + arrow);
    button.addEventListener("click", () => {
      chosen.sort = chosen.sort === column.key ? `-${column.key}` : column.key;
      build();
      writeAddress();
    });
    return element("span", { role: "columnheader", class: column.number ? "number" : null, "aria-sort": way }, button);
  });
  byId("head").replaceChildren(element("span", { role: "columnheader", class: "tick", "aria-label": "ticked" }), ...cells);
}

function compare(a, b) {
  const key = chosen.sort.replace("-", "");
  const [x, y] = [a[key], b[key]];
  if (x === null || y === null) return (x === null) - (y === null);
  const order = x < y ? -1 : x > y ? 1 : 0;
  return chosen.sort[0] === "-" ? -order : order;
}

function build() {
  const rows = [...runs.values()].sort(compare);
  const units = new Map(COLUMNS.filter((one) => one.number).map((one) => [one.key, columnUnit(rows.map((row) => row[one.key]), one.kind)]));
  makeHead(units);
  const focused = document.activeElement && document.activeElement.value;
  for (const row of rows) row.element = makeRow(row, units);
  byId("rows").replaceChildren(...rows.map((row) => row.element));
  filter();
  if (focused && runs.has(focused)) runs.get(focused).element.querySelector("input").focus();
}

function filter() {
  const seen = new Set(shownRows());
  for (const row of runs.values()) row.element.hidden = !seen.has(row);
  const hidden = [...runs.values()].filter((row) => isDoubtful(row)).length;
  byId("count").textContent = `${seen.size} of ${runs.size} runs` + (hidden && !byId("invalid").checked ? `, ${hidden} invalid or unfinished are left out` : "")
    + (unreadable ? `, ${unreadable} cannot be read: longhaul list says why` : "");
  byId("empty").hidden = seen.size > 0;
  byId("empty").textContent = runs.size ? "No run matches the filter." : "No runs yet. The first one appears here by itself: make experiment TOPO=wan1g";
  byId("table").hidden = !seen.size;
  byId("overlay").hidden = !runs.size;
  longhaulPage.rows = seen.size;
}

// Ticks that come while an answer is awaited make one further question, not one each.
async function overlay() {
  wanted += 1;
  if (wanted > 1) return;
  try {
    for (let answered = 0; answered !== wanted;) {
      answered = wanted;
      await overlayOnce();
    }
  } finally {
    wanted = 0;
  }
}

async function overlayOnce() {
  const mine = wanted;
  const ticked = [...chosen.ticks].filter((run) => runs.has(run));
  byId("overlay").classList.toggle("empty", !ticked.length);
  const doubtful = ticked.some((run) => isDoubtful(runs.get(run)) || runs.get(run).status === "running");
  const asked = { runs: ticked.slice(0, MANY), kind: chosen.kind, band: chosen.band, dark: darkQuery.matches };
  byId("told").textContent = ticked.length > MANY ? `The first ${MANY} of ${ticked.length} ticked runs are drawn.` : "";
  if (!ticked.length) {
    byId("told").textContent = "Tick runs to draw them over one another.";
    if (place) await place.draw({ panels: [], notes: [] });
    return;
  }
  try {
    const body = JSON.stringify({ ...asked, invalid: doubtful });
    const found = await ask("/api/figure", { method: "POST", body, headers: { "Content-Type": "application/json" } });
    if (mine !== wanted) return; // a later tick has overtaken this answer
    place = place || new DrawingPlace(byId("figure"), { off: chosen.off, onHide: writeAddress });
    if (!found.panels.length && !found.notes.length) found.notes.push(`These runs hold nothing for this figure: ${kinds[chosen.kind]}.`);
    await place.draw(found);
    longhaulPage.ticked = ticked.length;
  } catch (error) {
    tellFault(error);
  }
}

function choose(run, isTicked) {
  if (isTicked) chosen.ticks.add(run);
  else chosen.ticks.delete(run);
}

function changed() {
  writeAddress();
  overlay();
}

function fillSelect(id, words, value) {
  byId(id).replaceChildren(...Object.entries(words).map(([name, told]) => element("option", { value: name, title: told, selected: name === value }, name.replaceAll("_", " "))));
}

function take(found) {
  version = found.version;
  unreadable = found.unreadable;
  runs = new Map();
  for (const values of found.rows) {
    const row = Object.fromEntries(found.fields.map((name, index) => [name, values[index]]));
    row.text = found.fields.map((name) => row[name]).filter((value) => value !== null).join(" ").toLowerCase();
    runs.set(row.run_id, row);
  }
  kinds = found.kinds;
  fillSelect("kind", found.kinds, chosen.kind);
  fillSelect("band", found.bands, chosen.band);
  const links = found.sweeps.map((name) => element("a", { href: `/sweep/${encodeURIComponent(name)}` }, name));
  byId("sweeps").replaceChildren(...(links.length ? ["Sweeps: ", ...links] : []));
  build();
}

async function refresh() {
  try {
    const found = await ask(`/api/runs?version=${version}`);
    if (found) {
      const isFirst = version < 0;
      take(found);
      if (isFirst) longhaulPage.tableMs = performance.now();
      // The figures wait until the table is painted.
      requestAnimationFrame(() => setTimeout(overlay));
      // Read while nobody waits for it, so that the first tick draws at once.
      if (isFirst) requestIdleCallback(() => plotly().catch(tellFault), { timeout: 2000 });
    }
    if (byId("told").textContent.startsWith("The server")) byId("told").textContent = "";
  } catch (error) {
    tellFault(error);
  }
}

readAddress();
byId("filter").addEventListener("input", () => { filter(); writeAddress(); });
byId("invalid").addEventListener("change", () => { filter(); writeAddress(); });
byId("rows").addEventListener("change", (event) => { choose(event.target.value, event.target.checked); changed(); });
for (const id of ["kind", "band"]) byId(id).addEventListener("change", (event) => { chosen[id] = event.target.value; changed(); });
byId("tick-all").addEventListener("click", () => {
  for (const row of shownRows()) { choose(row.run_id, true); row.element.querySelector("input").checked = true; }
  changed();
});
byId("clear").addEventListener("click", () => {
  chosen.ticks.clear();
  chosen.off.clear();
  for (const row of runs.values()) row.element.querySelector("input").checked = false;
  changed();
});
byId("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    byId("told").textContent = "Copied.";
  } catch {
    byId("told").textContent = "This browser gives no page the clipboard: copy the address above.";
  }
});
darkQuery.addEventListener("change", overlay);
refresh();
repeat(refresh, 1500);
