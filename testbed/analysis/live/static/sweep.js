// The page of a sweep: one measure along one of its axes, and its table.
"use strict";
const name = decodeURIComponent(location.pathname.split("/").pop());
const address = `/api/sweeps/${encodeURIComponent(name)}`;
let place = null;
let question = 0;

function fill(id, pairs, value) {
  byId(id).replaceChildren(...pairs.map(([key, words]) => element("option", { value: key, selected: key === value }, words)));
}

function mean(row, key) {
  const found = row.values[key];
  return found ? found.mean : null;
}

function showTable(results, measures) {
  const shownMeasures = measures.filter(([key]) => results.rows.some((row) => isNumber(mean(row, key))));
  const units = shownMeasures.map(([key, , kind]) => columnUnit(results.rows.map((row) => mean(row, key)), kind));
  const names = shownMeasures.map(([, heading], index) => (units[index][1] ? `${heading} (${units[index][1]})` : heading));
  const head = [...results.axes.map((axis) => element("th", { scope: "col" }, axis)), element("th", { scope: "col" }, "verdicts"),
    ...names.map((name) => element("th", { scope: "col", class: "number" }, name))];
  const rows = results.rows.map((row) => element("tr", {},
    ...results.axes.map((axis) => element("td", { "data-name": axis }, row.axes[axis] ?? "–")),
    element("td", {}, ...verdicts(row)),
    ...shownMeasures.map(([key], index) => element("td", { class: "number", "data-name": names[index] }, shown(mean(row, key), units[index][0])))));
  byId("rows").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  longhaulPage.rows = rows.length;
}

function verdicts(row) {
  const counts = Object.entries(row.outcomes || {}).map(([word, count]) => `${count} ${word}`).join(", ");
  if (!row.run_ids.length) return [counts];
  const params = new URLSearchParams(row.run_ids.map((run) => ["run", run]));
  return [element("a", { href: `/?${params}` }, counts)];
}

async function show() {
  const mine = ++question;
  try {
    const params = new URLSearchParams(location.search);
    const first = params.get("axis") ? null : await ask(address);
    const axis = params.get("axis") || first.results.axes[0];
    const measure = params.get("measure") || bestMeasure(first || (await ask(address)));
    if (!axis) { showTable(first.results, first.measures); byId("common").textContent = "All its runs are one configuration."; return; }
    const query = new URLSearchParams({ axis, measure });
    if (darkQuery.matches) query.set("dark", "1");
    const found = await ask(`${address}?${query}`);
    if (mine !== question) return;
    fill("axis", found.results.axes.map((one) => [one, one]), axis);
    fill("measure", found.measures.map(([key, heading]) => [key, heading]), measure);
    byId("common").textContent = Object.entries(found.results.common || {}).map(([key, value]) => `${key} ${value}`).join(", ");
    showTable(found.results, found.measures);
    place = place || new DrawingPlace(byId("figure"));
    await place.draw(found.figure);
  } catch (error) {
    document.querySelector(".bar").hidden = !byId("axis").options.length;
    tellFault(error);
  }
}

function bestMeasure(found) {
  const count = (key) => found.results.rows.filter((row) => isNumber(mean(row, key))).length;
  const keys = ["time_to_target_s", ...found.measures.map(([key]) => key)];
  return keys.find((key) => count(key) > found.results.rows.length / 2) || keys.find(count) || "time_s";
}

for (const id of ["axis", "measure"]) {
  byId(id).addEventListener("change", () => {
    setParams(new URLSearchParams({ axis: byId("axis").value, measure: byId("measure").value }));
    show();
  });
}
byId("name").textContent = `Sweep ${name}`;
document.title = `Longhaul: sweep ${name}`;
darkQuery.addEventListener("change", show);
show();
