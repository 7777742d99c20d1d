// The page of one run: what it is, its verdict over time, figures, links, events; followed while it is not ended.
"use strict";
const runId = decodeURIComponent(location.pathname.split("/").pop());
const address = `/api/runs/${encodeURIComponent(runId)}`;
let details = null;
let drawings = [];

function fact(name, value) {
  return element("div", {}, element("span", { class: "note" }, name), element("b", {}, value));
}

function showFacts() {
  const row = details.row;
  const metric = row.metric_name || "metric";
  const facts = [
    ["topology", row.topo], ["workload", row.workload], ["strategy", row.strategy], ["compressor", row.hooks || row.compressor],
    ["workers", row.workers], ["seed", row.seed], ["kind", row.kind], [`last ${metric}`, shown(row.metric_last)],
    [`best ${metric}`, shown(row.metric_best)], ["time to target", shownWithUnit(row.time_to_target_s, "time")],
    ["emulated time", shownWithUnit(row.time_s, "time")], ["wall clock", shownWithUnit(row.wall_s, "time")],
    ["median step", shownWithUnit(row.step_p50_s, "time")], ["median exchange", shownWithUnit(row.exchange_p50_s, "time")],
    ["WAN bytes", shownWithUnit(row.wan_bytes, "size")], ["dilation", shown(row.dilation)],
  ];
  byId("facts").replaceChildren(...facts.filter(([, value]) => value !== null && value !== "–").map(([name, value]) => fact(name, String(value))));
  byId("settings").replaceChildren(...details.settings.map(([key, value]) => element("tr", {}, element("th", { scope: "row" }, key), element("td", {}, value))));
}

function showState(follower) {
  const row = details.row;
  const made = details.is_ended ? [verdictMark(row), ` ${row.status}. `] : [element("span", { class: "verdict running" }, row.status === "running" ? "running" : "not finished"), " "];
  if (!details.is_ended && follower) {
    const steps = details.steps ? ` of ${details.steps}` : "";
    made.push(`step ${follower.step}${steps}, ${follower.lastS.toFixed(1)} s emulated${follower.stage ? `, ${follower.stage}` : ""}. `);
  }
  byId("state").replaceChildren(...made, element("span", { class: "note" }, details.path));
  const lines = [...details.reasons, ...details.notes, ...details.unknowns.map((one) => `not checked: ${one}`), ...details.faults];
  byId("reasons").replaceChildren(...lines.map((line) => element("li", {}, line)));
}

async function showVerdicts() {
  const found = await ask(`${address}/verdicts`);
  longhaulPage.verdicts = found.changes.length;
  if (found.faults) {
    for (const id of ["strip", "scale"]) byId(id).hidden = true;
    byId("changes").replaceChildren(...found.faults.map((fault) => element("p", { class: "note" }, fault)));
    return;
  }
  const changes = found.changes;
  const last = changes[changes.length - 1];
  // A run that failed is invalid, whatever its events say of links and cores.
  if (details.is_ended && last && details.row.verdict !== last[1]) changes.push([found.end_s, details.row.verdict, ["verdict of the whole record", ...details.reasons]]);
  const begin = Math.min(0, changes.length ? changes[0][0] : 0);
  const span = Math.max(found.end_s - begin, 1e-9);
  const parts = changes.map(([start, word], index) => {
    const end = index + 1 < changes.length ? changes[index + 1][0] : found.end_s;
    const part = element("span", { class: word, title: `${word} from ${start.toFixed(1)} s to ${end.toFixed(1)} s` });
    part.style.flexGrow = String(Math.max((end - start) / span, 0.004));
    if ((end - start) / span > 0.15) part.textContent = word;
    return part;
  });
  byId("strip").replaceChildren(...parts);
  byId("strip").setAttribute("aria-label", changes.map(([start, word]) => `${word} from ${start.toFixed(1)} s`).join(", "));
  byId("scale").replaceChildren(element("span", {}, `${begin.toFixed(0)} s`), element("span", {}, `${found.end_s.toFixed(1)} s`));
  byId("changes").replaceChildren(...changes.slice(-12).map(([start, word, reasons]) =>
    element("li", {}, `${start.toFixed(1)} s: `, element("span", { class: `verdict ${word}` }, word), ` ${reasons.slice(0, 3).join("; ")}${reasons.length > 3 ? `; and ${reasons.length - 3} more` : ""}`)));
  longhaulPage.verdicts = changes.length;
}

const LINK_COLUMNS = [
  ["rate", "target_rate_bit_s", "rate"], ["measured", "measured_rate_bit_s", "rate"], ["RTT", "target_rtt_s", "time"],
  ["measured", "measured_rtt_s", "time"], ["loss", "target_loss_ratio", "ratio"], ["sent", "sent_bytes", "size"], ["used", "use_ratio", "ratio"],
];

function showLinks(use) {
  const links = details.links;
  if (!links.length) { byId("links").replaceChildren(element("caption", { class: "note" }, "No link was measured.")); return; }
  const pairs = { measured_rate_bit_s: "target_rate_bit_s", measured_rtt_s: "target_rtt_s" };
  // Units suit the links that matter: an access link may have a hundred times the rate.
  const wan = links.filter((link) => link.wan);
  const units = LINK_COLUMNS.map(([, key, kind]) => columnUnit((wan.length ? wan : links).map((link) => link[pairs[key] || key]), kind));
  const names = LINK_COLUMNS.map(([name], index) => `${name} (${units[index][1]})`);
  const head = names.map((name) => element("th", { class: "number", scope: "col" }, name));
  const body = links.map((link) => element("tr", { "data-link": link.name },
    element("th", { scope: "row" }, `${link.from} → ${link.to}`, link.wan ? null : element("span", { class: "note" }, " access")),
    ...LINK_COLUMNS.map(([, key], index) => element("td", { class: "number", "data-name": names[index] }, shown(link[key], units[index][0])))));
  byId("links").replaceChildren(element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "link"), ...head)), element("tbody", {}, ...body));
  colorTopology(use);
}

function drawTopology() {
  if (!details.svg) return;
  const parsed = new DOMParser().parseFromString(details.svg, "image/svg+xml").documentElement;
  const svg = document.importNode(parsed, true);
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  byId("topology").replaceChildren(svg);
  for (const line of svg.querySelectorAll("[data-link]")) {
    line.setAttribute("tabindex", "0");
    line.setAttribute("role", "button");
    line.setAttribute("aria-label", `link ${line.dataset.link}`);
    const pick = () => {
      document.querySelectorAll("[data-link]").forEach((one) => one.classList.toggle("picked", one.dataset.link === line.dataset.link));
      byId("links").querySelector("tr.picked")?.scrollIntoView({ block: "nearest" });
    };
    line.addEventListener("click", pick);
    line.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); } });
  }
}

function colorTopology(live) {
  const use = new Map();
  for (const link of details.links) if (isNumber(link.use_ratio)) use.set(link.name, Math.max(link.use_ratio, use.get(link.name) || 0));
  for (const [name, share] of live || []) use.set(name, share);
  for (const line of byId("topology").querySelectorAll("[data-link]")) {
    const share = Math.min(use.get(line.dataset.link) ?? 0, 1);
    line.style.strokeWidth = String(3 + 7 * share);
    line.style.stroke = `color-mix(in srgb, var(--busy) ${Math.round(100 * share)}%, var(--idle))`;
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = use.has(line.dataset.link) ? `${line.dataset.link}: ${Math.round(100 * share)} % of its rate used` : line.dataset.link;
    line.replaceChildren(title);
  }
}

function spoken(value) {
  if (isNumber(value) && !Number.isInteger(value)) return Number(value.toPrecision(6));
  return typeof value === "object" ? JSON.stringify(value) : value;
}

async function showEvents() {
  const kind = byId("kinds").value;
  const found = await ask(`${address}/events?kind=${encodeURIComponent(kind)}`);
  const options = [element("option", { value: "" }, "all that are not drawn")];
  options.push(...Object.entries(found.kinds).map(([name, count]) => element("option", { value: name, selected: name === kind }, `${name} (${count})`)));
  byId("kinds").replaceChildren(...options);
  byId("event-count").textContent = found.events.length === found.max_events ? `the first ${found.max_events}` : `${found.events.length} events`;
  const body = found.events.map((event) => {
    const { t_s: at, event: name, ...rest } = event;
    const words = Object.entries(rest).filter(([, value]) => value !== null && value !== "").map(([key, value]) => `${key}=${spoken(value)}`);
    const text = words.join(" ");
    return element("tr", {}, element("td", { class: "number" }, isNumber(at) ? `${at.toFixed(3)} s` : "–"), element("td", {}, name), element("td", { class: "text" }, text.length > 400 ? `${text.slice(0, 400)}…` : text));
  });
  byId("events").replaceChildren(element("tbody", {}, ...body));
}

async function showFigures() {
  const found = await ask(`${address}/figures${darkQuery.matches ? "?dark" : ""}`);
  while (drawings.length < found.length) {
    const [title, place] = [element("h3"), element("div", { class: "drawing" })];
    byId("figures").append(title, place);
    drawings.push({ title, place: new DrawingPlace(place) });
  }
  for (const [number, drawing] of found.entries()) {
    drawings[number].title.textContent = drawing.title;
    await drawings[number].place.draw(drawing);
  }
  longhaulPage.figures = found.length;
}

async function showAll() {
  details = await ask(address);
  showFacts();
  showState();
  drawTopology();
  showLinks();
  await Promise.all([showVerdicts(), showEvents()]);
}

function follow() {
  byId("live").hidden = false;
  const follower = new Follower(runId, byId("followed"));
  let lastVerdictS = -1;
  repeat(async () => {
    try {
      const isEnded = await follower.poll();
      byId("fault").hidden = true;
      longhaulPage.followed = follower.events;
      showState(follower);
      if (follower.lastS - lastVerdictS >= 1 || isEnded) { lastVerdictS = follower.lastS; await showVerdicts(); colorTopology(follower.use); }
      if (!isEnded) return true;
      byId("live").hidden = true;
      await showAll();
      await showFigures();
      longhaulPage.isEnded = true;
    } catch (error) {
      tellFault(error);
      return true;
    }
    return false;
  }, 500);
}

byId("name").textContent = runId;
document.title = `Longhaul: ${runId}`;
byId("kinds").addEventListener("change", () => showEvents().catch(tellFault));
darkQuery.addEventListener("change", () => { if (details && details.is_ended) showFigures().catch(tellFault); });
showAll().then(() => (details.is_ended ? requestAnimationFrame(() => setTimeout(() => showFigures().catch(tellFault))) : follow())).catch((error) => {
  if (!details) document.querySelectorAll("section").forEach((one) => { one.hidden = true; });
  tellFault(error);
});
