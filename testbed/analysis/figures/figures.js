// Unpacks Plotly.js from the page itself and draws its figures. Asks nothing of the network.
"use strict";
(async () => {
  const given = JSON.parse(document.getElementById("figures").textContent);
  const marks = {
    circle: "●", square: "■", "triangle-up": "▲", diamond: "◆", "triangle-down": "▼", cross: "✚", x: "✖", star: "★",
  };
  const places = [...document.querySelectorAll(".plot")];
  const page = (window.longhaulPage = { drawn: 0 });

  async function unpack(id) {
    const packed = atob(document.getElementById(id).textContent);
    const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  function isShown(trace, number) {
    const place = places[number];
    const runs = (trace.meta && trace.meta.run_ids) || [];
    const isChosen = !runs.length || runs.some((run) => place.chosen(run));
    return isChosen && !place.off.has(trace.legendgroup);
  }

  function show(number) {
    const place = places[number];
    const traces = given.figures[number].data;
    const visible = traces.map((trace) => isShown(trace, number));
    place.closest("figure").hidden = !traces.some((trace, index) => trace.legendgroup && visible[index]) && !place.off.size;
    Plotly.restyle(place, { visible });
  }

  // Plotly's own legend is out of a keyboard's reach.
  function legend(number) {
    const bar = places[number].nextElementSibling;
    const seen = new Set();
    for (const trace of given.figures[number].data) {
      if (!trace.legendgroup || seen.has(trace.legendgroup) || trace.fill) continue;
      seen.add(trace.legendgroup);
      const button = document.createElement("button");
      const mark = document.createElement("span");
      mark.textContent = marks[trace.marker.symbol] || "■";
      mark.style.color = trace.marker.color;
      button.append(mark, " " + trace.legendgroup);
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        const off = places[number].off;
        if (!off.delete(trace.legendgroup)) off.add(trace.legendgroup);
        button.setAttribute("aria-pressed", String(!off.has(trace.legendgroup)));
        show(number);
      });
      bar.append(button);
    }
  }

  function isChecked(run) {
    const wanted = given.boxes[run];
    return !wanted || wanted.every((ids) => ids.some((id) => document.getElementById(id).checked));
  }

  try {
    await unpack("plotly");
    for (const [number, place] of places.entries()) {
      place.off = new Set();
      place.chosen = isChecked;
      const { data, layout, config } = given.figures[number];
      await Plotly.newPlot(place, data, layout, config);
      legend(number);
      page.drawn += 1;
    }
  } catch (error) {
    for (const place of places) place.textContent = "This browser cannot draw the figure: " + error;
    return;
  }
  const form = document.querySelector("form.boxes");
  const update = () => places.forEach((_, number) => show(number));
  if (form) {
    form.addEventListener("change", update);
    form.addEventListener("reset", () => setTimeout(update));
  }
  window.addEventListener("beforeprint", () => {
    for (const place of places) Plotly.relayout(place, { width: Math.min(place.clientWidth, 680) });
  });
  window.addEventListener("afterprint", () => {
    for (const place of places) Plotly.relayout(place, { width: null, autosize: true });
  });
})();
