// What all pages share: elements, numbers with units, questions to the server.
"use strict";
// Tests read here how far the page is.
window.longhaulPage = { drawn: 0, rows: 0 };

const byId = (id) => document.getElementById(id);

// Text goes in by textContent alone, so that no name from a record is ever markup.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

class Faults extends Error {}

async function ask(path, options) {
  const answer = await fetch(path, options);
  if (answer.status === 204) return null;
  if (answer.ok) return answer.json();
  const isTold = (answer.headers.get("Content-Type") || "").includes("json");
  throw new Faults(isTold ? (await answer.json()).faults.join("\n") : `${path}: the server answered ${answer.status}`);
}

function tellFault(error) {
  const place = byId("fault") || byId("told");
  place.hidden = false;
  place.textContent = error instanceof Faults ? error.message : `The server does not answer (${error.message}).`;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const UNITS = {
  time: [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]],
  size: [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]],
  rate: [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]],
  ratio: [[0.01, "%"]],
};

// The one unit of a column, [factor, name], as core/units.py chooses it.
function columnUnit(values, kind) {
  const units = UNITS[kind];
  if (!units) return [1, ""];
  const sizes = values.filter((value) => isNumber(value) && value).map(Math.abs).sort((a, b) => a - b);
  const middle = sizes.length ? sizes[Math.floor((sizes.length - 1) / 2)] : 1;
  return units.find(([factor]) => middle >= factor) || units[units.length - 1];
}

function shown(value, factor = 1) {
  if (!isNumber(value)) return "–";
  const found = value / factor;
  const text = found.toPrecision(4);
  return String(Math.abs(found) >= 1e4 ? Math.round(found) : text.includes("e") ? text : Number(text));
}

function shownWithUnit(value, kind) {
  if (!isNumber(value)) return "–";
  const [factor, name] = columnUnit([value], kind);
  return `${shown(value, factor)} ${name}`.trim();
}

function verdictMark(row) {
  const word = row.verdict || row.status;
  return element("span", { class: `verdict ${row.verdict || "none"}` }, word);
}

function startedText(row) {
  return row.started ? row.started.slice(0, 19).replace("T", " ") : row.run_id;
}

function setParams(params) {
  const text = params.toString();
  history.replaceState(null, "", text ? `?${text}` : location.pathname);
}

if (location.pathname === "/") document.querySelector("nav a").setAttribute("aria-current", "page");

const darkQuery = matchMedia("(prefers-color-scheme: dark)");

// Calls `work` again and again, never twice at a time, and not while the page is hidden.
function repeat(work, pause) {
  let timer = null;
  const next = async () => {
    timer = null;
    let goesOn = true;
    if (!document.hidden) goesOn = (await work()) !== false;
    if (goesOn) timer = setTimeout(next, pause);
  };
  document.addEventListener("visibilitychange", () => {
    if (timer !== null && !document.hidden) { clearTimeout(timer); next(); }
  });
  timer = setTimeout(next, pause);
}
