// Follows a run while it writes: asks for new lines of its events twice a second and draws what they say.
"use strict";
const MAX_POINTS = 4000;

class Curve {
  constructor(label) { this.label = label; this.x = []; this.y = []; }

  add(x, y) {
    if (!isNumber(x) || !isNumber(y)) return;
    this.x.push(x);
    this.y.push(y);
    // Every second point goes when there are more than a screen shows.
    if (this.x.length > MAX_POINTS) {
      this.x = this.x.filter((_, index) => index % 2 === 0);
      this.y = this.y.filter((_, index) => index % 2 === 0);
    }
  }
}

class Follower {
  constructor(runId, place) {
    this.address = `/api/runs/${encodeURIComponent(runId)}/tail`;
    this.drawing = new DrawingPlace(place);
    this.begin();
  }

  begin() {
    this.byte = 0;
    this.events = 0;
    this.lastS = 0;
    this.step = 0;
    this.stage = "";
    this.curves = { loss: new Map(), metric: new Map(), rate: new Map() };
    this.sent = new Map();
    this.use = new Map();
  }

  // Returns true once the run has ended and all its lines were read.
  async poll() {
    let hasNew = false;
    for (;;) {
      const answer = await fetch(`${this.address}?from=${this.byte}`, { cache: "no-store" });
      if (!answer.ok) throw new Faults(`The server answered ${answer.status}.`);
      const text = await answer.text();
      if (answer.headers.get("X-Is-Restarted") === "1") this.begin();
      this.byte = Number(answer.headers.get("X-Next-Byte"));
      for (const line of text.split("\n")) if (line) this.take(line);
      hasNew = hasNew || text.length > 0;
      if (answer.headers.get("X-Has-More") !== "1") {
        if (hasNew) await this.draw();
        return answer.headers.get("X-Is-Ended") === "1";
      }
    }
  }

  take(line) {
    let event;
    try { event = JSON.parse(line); } catch { return; }
    if (!event || typeof event !== "object") return;
    this.events += 1;
    if (isNumber(event.t_s)) this.lastS = Math.max(this.lastS, event.t_s);
    if (event.event === "step") {
      this.step = Math.max(this.step, event.step);
      if (event.rank === 0) this.curve("loss", "rank 0").add(event.t_s, event.loss);
    } else if (event.event === "evaluation") {
      const kept = this.metricRank ?? event.rank;
      this.metricRank = Math.min(kept, event.rank);
      if (event.rank === this.metricRank) this.curve("metric", event.name).add(event.t_s, event.value);
    } else if (event.event === "link" && event.wan) this.takeLink(event);
    else if (event.event === "schedule") this.stage = event.what;
  }

  takeLink(event) {
    const way = `${event.from} to ${event.to}`;
    const before = this.sent.get(way);
    this.sent.set(way, [event.t_s, event.wire_bytes]);
    if (!before || event.t_s <= before[0]) return;
    const rate = (8 * (event.wire_bytes - before[1])) / (event.t_s - before[0]);
    if (rate < 0) return;
    this.curve("rate", way).add(event.t_s, rate / 1e6);
    if (event.rate_bit_s) this.use.set(event.name, Math.max(rate / event.rate_bit_s, this.use.get(event.name) || 0));
  }

  curve(kind, label) {
    const curves = this.curves[kind];
    if (!curves.has(label)) curves.set(label, new Curve(label));
    return curves.get(label);
  }

  async draw() {
    const names = { loss: "training loss", metric: [...this.curves.metric.keys()][0] || "metric", rate: "leaving WAN links (Mbit/s)" };
    const panels = Object.entries(this.curves).filter(([, curves]) => curves.size).map(([kind, curves]) => this.panel(names[kind], [...curves.values()]));
    const base = await window.figureBase;
    for (const panel of panels) { panel.layout = { ...base, ...panel.layout }; panel.config = { responsive: true, displaylogo: false, displayModeBar: false }; }
    await this.drawing.draw({ panels, notes: [] });
  }

  panel(name, curves) {
    const ink = darkQuery.matches ? "#FFFFFF" : "#000000";
    const colors = [ink, "#0077E0", "#FB9D47", "#8A66B8", "#018D81", "#F14D81", "#C4672B", "#D494FF"];
    const symbols = Object.keys(MARKS);
    const dashes = ["solid", "6px,3px", "2px,2px", "9px,3px,2px,3px", "14px,4px", "9px,3px,2px,3px,2px,3px", "3px,2px", "12px,3px,4px,3px"];
    const data = curves.slice(0, 8).map((curve, index) => ({
      type: "scatter", mode: curve.x.length < 60 ? "lines+markers" : "lines", x: curve.x, y: curve.y, name: curve.label,
      legendgroup: curve.label, line: { color: colors[index], width: 1.6, dash: dashes[index] },
      marker: { color: colors[index], size: 6, symbol: symbols[index] },
    }));
    const more = curves.length > 8 ? `, the first 8 of ${curves.length}` : "";
    return { title: "", data, layout: { yaxis: this.axis(name + more), xaxis: this.axis("emulated time (s)") } };
  }

  axis(text) {
    return { title: { text }, gridcolor: "rgba(128,128,128,0.25)", zeroline: false, linecolor: "#808080", automargin: true };
  }
}

window.figureBase = Promise.resolve({
  height: 280, margin: { l: 56, r: 12, t: 12, b: 48 }, showlegend: false, uirevision: "longhaul",
  paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
  font: { family: "system-ui, sans-serif", size: 12, color: darkQuery.matches ? "#E8E8E8" : "#1A1A1A" },
});
