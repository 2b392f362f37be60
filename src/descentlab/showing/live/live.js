// Asks the local server every second what is being computed, and draws what a chosen run has recorded so far.
(function () {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const FONT = { family: "STIXGeneral, STIX Two Text, Times New Roman, serif", size: 14, color: "#000" };
  const CONFIG = {
    displaylogo: false,
    responsive: true,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"],
  };

  async function ask(path) {
    const answer = await fetch(path);
    return answer.ok ? answer.text() : "null";
  }

  function minutes(seconds) {
    if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
    return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
  }

  function job(one) {
    const item = document.createElement("li");
    const bar = document.createElement("progress");
    bar.max = one.steps;
    bar.value = one.step;
    bar.setAttribute("aria-label", one.label);
    const words = document.createElement("span");
    const many = one.cells > 1 ? `${one.cells} cells of ${one.seeds} seeds` : `${one.seeds} seeds`;
    const loss = one.loss === null ? "" : `, loss ${Number(one.loss).toPrecision(3)}`;
    const left = one.seconds_left === null ? "" : `, ${minutes(one.seconds_left)} left`;
    const step = `step ${one.step.toLocaleString("en")} of ${one.steps.toLocaleString("en")}`;
    words.textContent = `${step}${loss}${left}; ${many}, on ${one.host}`;
    const name = document.createElement("strong");
    name.textContent = one.label;
    item.append(name, words, bar);
    return item;
  }

  // Keeps what is chosen while the choices change.
  function choices(select, names) {
    const before = select.value;
    const now = Array.from(select.options, (option) => `${option.value} ${option.text}`);
    if (now.join("\n") === names.map(([value, text]) => `${value} ${text}`).join("\n")) return;
    select.replaceChildren(...names.map(([value, text]) => new Option(text, value)));
    if (names.some(([value]) => value === before)) select.value = before;
  }

  let drawn = "";
  async function curves() {
    const name = $("run").value;
    const text = name ? await ask(`run/${name}`) : "null";
    const found = JSON.parse(text);
    $("note").textContent = name && found === null ? "Its first checkpoint is still to come, after about five seconds of training." : "";
    $("plots").hidden = found === null;
    if (found === null) return;
    choices($("quantity"), Object.keys(found.curves).map((one) => [one, one]));
    const quantity = $("quantity").value;
    // The same again would take what is under the pointer away.
    if (drawn === text + quantity) return;
    drawn = text + quantity;
    const own = found.curves[quantity];
    $("curve").parentElement.hidden = own === undefined;
    if (own !== undefined) curve(name, quantity, found.steps, own);
    $("matrix").parentElement.hidden = found.matrix === null;
    if (found.matrix !== null) matrix(name, found);
  }

  function curve(name, quantity, steps, own) {
    const positive = own.low.every((y) => y === null || y > 0);
    const range = { type: "scatter", mode: "lines", line: { width: 0 }, showlegend: false, hoverinfo: "skip" };
    Plotly.react("curve", [
      { ...range, x: steps, y: own.low },
      { ...range, x: steps, y: own.high, fill: "tonexty", fillcolor: "rgba(0,114,178,.18)" },
      { type: "scatter", mode: "lines+markers", x: steps, y: own.middle, line: { color: "#0072B2", width: 2 }, marker: { size: 4 }, name: quantity,
        customdata: own.low.map((low, i) => [low, own.high[i]]),
        hovertemplate: "step %{x}: %{y:.4g}<br>seeds %{customdata[0]:.4g} to %{customdata[1]:.4g}<extra></extra>" },
    ], {
      height: 380, margin: { l: 70, r: 10, t: 40, b: 50 }, font: FONT, showlegend: false, uirevision: `${name} ${quantity}`,
      title: { text: `${quantity}: median and range of seeds`, font: { size: 15 } },
      xaxis: { type: "log", title: { text: "step" }, exponentformat: "power", dtick: steps[steps.length - 1] > 30 ? 1 : undefined },
      yaxis: { type: positive ? "log" : "linear", exponentformat: "power", nticks: 6 },
    }, CONFIG);
  }

  function matrix(name, found) {
    const { z, colours, name: quantity } = found.matrix;
    const size = Math.max(...z.flat().map(Math.abs)) || 1;
    const step = found.steps[found.steps.length - 1].toLocaleString("en");
    Plotly.react("matrix", [{ type: "heatmap", z, zmin: -size, zmax: size, colorscale: colours, hovertemplate: "%{y}, %{x}: %{z:.4g}<extra></extra>" }], {
      height: 380, margin: { l: 70, r: 10, t: 40, b: 40 }, font: FONT, uirevision: name,
      title: { text: `${quantity}, first seed, step ${step}`, font: { size: 15 } }, yaxis: { autorange: "reversed" },
    }, CONFIG);
  }

  async function look() {
    try {
      const state = JSON.parse(await ask("state.json"));
      const count = state.running.length;
      $("where").textContent = `${count === 0 ? "Nothing is being computed" : `${count} job${count > 1 ? "s" : ""}`} on ${state.store}.`;
      $("jobs").replaceChildren(...state.running.map(job));
      const running = state.running.flatMap((one) => one.runs.slice(0, 3).map((run) => [run, `${one.cells > 1 ? run : one.label}, running`]));
      const names = new Set(running.map(([run]) => run));
      const recent = state.recent.filter((one) => !names.has(one.run));
      choices($("run"), [...running, ...recent.map((one) => [one.run, `${one.label || one.run} (${one.run.slice(-4)})`])]);
      $("nothing").hidden = $("run").options.length > 0;
      $("chosen").hidden = $("run").options.length === 0;
      await curves();
    } catch (error) {
      $("where").textContent = "The server has stopped; what is shown is what it said last.";
    }
    setTimeout(look, 1000);
  }

  for (const select of [$("run"), $("quantity")]) select.addEventListener("change", () => curves());
  look();
})();
