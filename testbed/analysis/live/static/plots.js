// Draws figures that the server made, each panel with a legend that a keyboard reaches.
"use strict";
const MARKS = {
  circle: "●", square: "■", "triangle-up": "▲", diamond: "◆", "triangle-down": "▼", cross: "✚", x: "✖", star: "★",
};
let loading = null;

// After the table is painted: its script takes a second to read.
function plotly() {
  loading = loading || new Promise((done, failed) => {
    const script = element("script", { src: document.querySelector("meta[name=plotly]").content });
    script.addEventListener("load", () => done(window.Plotly));
    script.addEventListener("error", () => failed(new Error("Plotly.js did not load")));
    document.head.append(script);
  });
  return loading;
}

// One place on a page for a drawing: {"title", "notes", "panels"}. What was hidden or zoomed stays so when it is redrawn.
class DrawingPlace {
  constructor(place, options = {}) {
    this.place = place;
    this.off = options.off || new Set();
    this.onHide = options.onHide || (() => {});
    this.notes = element("div");
    this.panels = element("div", { class: "panels" });
    place.replaceChildren(this.panels, this.notes);
    this.boxes = [];
    window.addEventListener("beforeprint", () => this.resize((box) => Math.min(box.plot.clientWidth, 640)));
    window.addEventListener("afterprint", () => this.resize(() => null));
  }

  async draw(drawing) {
    const Plotly = await plotly();
    while (this.boxes.length > drawing.panels.length) {
      const box = this.boxes.pop();
      Plotly.purge(box.plot);
      box.figure.remove();
    }
    while (this.boxes.length < drawing.panels.length) this.boxes.push(this.newBox());
    this.notes.replaceChildren(...drawing.notes.map((note) => element("p", { class: "note" }, note)));
    for (const [number, panel] of drawing.panels.entries()) {
      const withBars = panel.data.filter((trace) => trace.error_x || trace.error_y).map((trace) => trace.legendgroup);
      await this.drawPanel(Plotly, this.boxes[number], panel, [drawing.kind, panel.title, ...withBars].join("\n"));
    }
    longhaulPage.drawn += 1;
  }

  newBox() {
    const [plot, legend] = [element("div", { class: "plot" }), element("div", { class: "legend" })];
    const caption = element("figcaption");
    const figure = element("figure", {}, caption, plot, legend);
    this.panels.append(figure);
    return { figure, caption, plot, legend, panel: null };
  }

  async drawPanel(Plotly, box, panel, name) {
    // A zoom, and the colours of error bars, would stay from what was drawn here before.
    if (box.name !== name) Plotly.purge(box.plot);
    box.name = name;
    box.panel = panel;
    box.figure.setAttribute("aria-label", panel.title || "figure");
    box.caption.textContent = panel.title;
    for (const trace of panel.data) trace.visible = !this.off.has(trace.legendgroup);
    await Plotly.react(box.plot, panel.data, panel.layout, panel.config);
    this.drawLegend(box);
  }

  drawLegend(box) {
    const focused = document.activeElement && document.activeElement.dataset.series;
    const first = new Map();
    for (const trace of box.panel.data) {
      const known = first.get(trace.legendgroup);
      if (trace.legendgroup && (!known || known.fill)) first.set(trace.legendgroup, trace);
    }
    const keys = [...first.keys()].join("\n");
    if (box.keys === keys) return this.updateLegend(box);
    box.keys = keys;
    box.legend.replaceChildren(...[...first].map(([label, trace]) => this.button(box, label, trace)));
    this.updateLegend(box);
    if (focused) [...box.legend.children].find((one) => one.dataset.series === focused)?.focus();
    return undefined;
  }

  button(box, label, trace) {
    const marker = trace.marker || {};
    const color = typeof marker.color === "string" ? marker.color : (trace.line && trace.line.color) || "";
    const dash = trace.line && trace.line.dash && trace.line.dash !== "solid" ? "╌" : "";
    const mark = element("span", { "aria-hidden": "true" }, (MARKS[marker.symbol] || "■") + dash);
    mark.style.color = color;
    const made = element("button", { type: "button", "data-series": label }, mark, ` ${label}`);
    made.addEventListener("click", () => {
      if (!this.off.delete(label)) this.off.add(label);
      this.boxes.forEach((one) => this.show(one));
      this.onHide();
    });
    return made;
  }

  updateLegend(box) {
    for (const one of box.legend.children) one.setAttribute("aria-pressed", String(!this.off.has(one.dataset.series)));
  }

  show(box) {
    const visible = box.panel.data.map((trace) => !this.off.has(trace.legendgroup));
    Plotly.restyle(box.plot, { visible });
    this.updateLegend(box);
  }

  resize(widthOf) {
    if (!window.Plotly) return;
    for (const box of this.boxes) {
      const width = widthOf(box);
      Plotly.relayout(box.plot, width === null ? { width: null, autosize: true } : { width });
    }
  }
}
