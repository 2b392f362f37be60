// Asks the local server every second what is being computed, and draws what a chosen run has recorded so far.
(function () {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const FONT = { family: "STIX Two Text, STIXGeneral, Times New Roman, serif", size: 14, color: "#000" };
  const CONFIG = { displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"] };

  async function ask(path) {
    const answer = await fetch(path);
    return answer.ok ? answer.json() : null;
  }

  function task(one) {
    const item = document.createElement("li");
    const bar = document.createElement("progress");
    bar.max = one.steps;
    bar.value = one.step;
    bar.setAttribute("aria-label", one.label);
    const words = document.createElement("span");
    const loss = one.loss === null ? "" : `, loss ${Number(one.loss).toPrecision(3)}`;
    const cells = one.cells > 1 ? `, ${one.cells} cells` : "";
    words.textContent = `${one.label}: step ${one.step} of ${one.steps}${loss}${cells}, ${one.seeds} seeds, on ${one.host}`;
    item.append(words, bar);
    return item;
  }

  // Keeps what is chosen while the choices change.
  function choices(select, names) {
    const before = select.value;
    const now = Array.from(select.options, (option) => option.value);
    if (now.join("\n") === names.join("\n")) return;
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    if (names.includes(before)) select.value = before;
  }

  async function curves() {
    const name = $("run").value;
    const found = name ? await ask(`run/${name}`) : null;
    $("note").textContent = name && found === null ? "Its first checkpoint is still to come, after about five seconds of training." : "";
    if (found === null) return;
    choices($("quantity"), Object.keys(found.curves));
    const quantity = $("quantity").value;
    const own = found.curves[quantity];
    if (own === undefined) return;
    const positive = own.low.every((y) => y === null || y > 0);
    const range = { type: "scatter", mode: "lines", line: { width: 0 }, showlegend: false, hoverinfo: "skip" };
    Plotly.react("curve", [
      { ...range, x: found.steps, y: own.low },
      { ...range, x: found.steps, y: own.high, fill: "tonexty", fillcolor: "rgba(0,114,178,.18)" },
      { type: "scatter", mode: "lines", x: found.steps, y: own.middle, line: { color: "#0072B2", width: 2 }, name: quantity,
        hovertemplate: "step %{x}: %{y:.4g}<extra></extra>" },
    ], {
      width: 860, height: 380, margin: { l: 70, r: 10, t: 30, b: 50 }, font: FONT, showlegend: false,
      xaxis: { type: "log", title: { text: "step" }, exponentformat: "power" },
      yaxis: { type: positive ? "log" : "linear", title: { text: quantity }, exponentformat: "power" },
    }, CONFIG);
    const plate = $("matrix").parentElement;
    plate.hidden = found.matrix === null;
    if (found.matrix !== null) {
      const size = Math.max(...found.matrix.z.flat().map(Math.abs));
      Plotly.react("matrix", [{ type: "heatmap", z: found.matrix.z, zmin: -size, zmax: size, colorscale: found.matrix.colours }],
        { width: 860, height: 380, margin: { l: 70, r: 10, t: 40, b: 40 }, font: FONT, title: { text: `${found.matrix.name}, first seed, now` } }, CONFIG);
    }
  }

  async function look() {
    try {
      const state = await ask("state.json");
      const count = state.running.length;
      $("where").textContent = `${count === 0 ? "Nothing is being computed" : `${count} task${count > 1 ? "s" : ""}`} on ${state.store}.`;
      $("tasks").replaceChildren(...state.running.map(task));
      const running = state.running.flatMap((one) => one.runs.slice(0, 3));
      choices($("run"), [...new Set([...running, ...state.recent.map((one) => one.run)])]);
      await curves();
    } catch (error) {
      $("where").textContent = "The server has stopped; what is shown is what it said last.";
    }
    setTimeout(look, 1000);
  }

  for (const select of [$("run"), $("quantity")]) select.addEventListener("change", curves);
  look();
})();
