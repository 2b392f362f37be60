// Everything is readable without this script. It adds filters, opens what a link points to, and puts plots that
// answer to the pointer in the place of pictures when they come into view.
(function () {
  "use strict";
  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));

  // ---------------------------------------------------------------- cards and filters

  const buttons = all(".filters button");
  const rows = all("tr[data-outcome]");

  function show(outcome) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.show === outcome));
    for (const item of all("[data-outcome]")) item.hidden = outcome !== "" && item.dataset.outcome !== outcome;
    const shown = rows.filter((row) => !row.hidden).length;
    document.querySelector(".shown").textContent = outcome === "" ? "" : `${shown} of ${rows.length} claims shown`;
  }

  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target === null) return;
    if (target.hidden) show("");
    if (target instanceof HTMLDetailsElement) target.open = true;
    target.scrollIntoView();
  }

  for (const hidden of all(".filters, .tools")) hidden.hidden = false;
  for (const button of buttons) button.addEventListener("click", () => show(button.dataset.show));
  for (const count of all(".counts a")) count.addEventListener("click", () => show(count.dataset.show));
  for (const tools of all(".tools")) {
    const cards = all("details.card", tools.closest("section"));
    tools.querySelector("[data-open]").addEventListener("click", () => cards.forEach((card) => (card.open = true)));
    tools.querySelector("[data-close]").addEventListener("click", () => cards.forEach((card) => (card.open = false)));
  }
  addEventListener("hashchange", reveal);
  addEventListener("beforeprint", () => all("details").forEach((card) => (card.open = true)));
  if (location.hash !== "") reveal();

  // ---------------------------------------------------------------- plots

  const awaited = {};
  window.descentlab = { take: (name, content) => awaited[name](content) };

  // Pages on a disk may load scripts, and nothing else: data come as scripts too.
  function load(source) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = source;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${source} cannot be read`));
      document.head.append(script);
    });
  }

  let library = null;
  const plotly = () => (library = library || load("assets/plotly.min.js"));

  function data(name) {
    return new Promise((resolve, reject) => {
      awaited[name] = resolve;
      load(`plots/${name}.js`).catch(reject);
    });
  }

  const CONFIG = {
    displaylogo: false,
    // Nothing leaves the machine: no button that sends a chart away.
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"],
    showSendToCloud: false,
    toImageButtonOptions: { format: "svg" },
  };

  const FONT = "STIXGeneral, STIX Two Text, Times New Roman, serif";
  // Words are measured when a plot is drawn, so their typeface has to be there.
  const letters = document.fonts.load(`14px ${FONT}`).catch(() => null);
  const ready = (name) => Promise.all([data(name), plotly(), letters]);

  // As drawn, an axis has the ticks of the printed figure; once zoomed, those that fit what is seen. An axis that is
  // neither linear nor logarithmic has its coordinates worked out beforehand, and keeps its ticks.
  function retick(place, layout) {
    const fixed = (layout.meta && layout.meta.fixed) || [];
    const axes = Object.keys(layout).filter((key) => /^[xy]axis/.test(key) && layout[key].tickvals && !fixed.includes(key));
    const printed = axes.map((axis) => [...layout[axis].range]);
    // The power of ten beside an axis is that of its printed ticks.
    const powers = axes.map((axis) => (layout.annotations || []).findIndex((words) => words.name === `power of ${axis}`));
    place.on("plotly_relayout", () => {
      const update = {};
      axes.forEach((axis, i) => {
        const room = 1e-6 * Math.abs(printed[i][1] - printed[i][0]);
        const whole = place.layout[axis].range.every((end, j) => Math.abs(end - printed[i][j]) < room);
        const mode = whole ? "array" : "auto";
        if (place.layout[axis].tickmode === mode) return;
        update[`${axis}.tickmode`] = mode;
        if (powers[i] >= 0) update[`annotations[${powers[i]}].visible`] = whole;
      });
      if (Object.keys(update).length > 0) Plotly.relayout(place, update);
    });
  }

  function stage(plate) {
    const place = document.createElement("div");
    place.className = "live";
    plate.querySelector(".scroll").append(place);
    return place;
  }

  async function draw(plate) {
    const [content] = await ready(plate.dataset.plot);
    const place = stage(plate);
    await Plotly.newPlot(place, content.data, content.layout, CONFIG);
    retick(place, content.layout);
    plate.classList.add("drawn");
  }

  // Matrices along training: one heatmap a matrix, a slider over the steps.
  async function play(plate) {
    const [movie] = await ready(plate.dataset.moving);
    const controls = plate.querySelector(".controls");
    const slider = controls.querySelector("input");
    const button = controls.querySelector("button");
    const frames = movie.panels.map(decode);
    const place = stage(plate);
    await Plotly.newPlot(place, heatmaps(movie, frames), panels(movie), CONFIG);

    function show(moment) {
      slider.value = String(moment);
      const words = `step ${movie.steps[moment].toLocaleString("en")}`;
      controls.querySelector("output").textContent = words;
      slider.setAttribute("aria-valuetext", words);
      return Plotly.restyle(place, { z: frames.map((frame) => frame(moment)) });
    }

    let timer = 0;
    function stop() {
      clearInterval(timer);
      timer = 0;
      button.textContent = "Play";
    }
    button.addEventListener("click", () => {
      if (timer) return stop();
      if (Number(slider.value) === movie.steps.length - 1) show(0);
      button.textContent = "Stop";
      timer = setInterval(() => {
        const next = Number(slider.value) + 1;
        if (next >= movie.steps.length) return stop();
        show(next);
      }, 160);
    });
    slider.addEventListener("input", () => {
      stop();
      show(Number(slider.value));
    });
    slider.max = String(movie.steps.length - 1);
    await show(movie.steps.length - 1);
    controls.hidden = false;
    plate.classList.add("drawn");
  }

  // Entries are bytes between the bounds of their matrix, moment after moment, row after row; 255 is none.
  const LEVELS = 254;
  function decode(panel) {
    const bytes = Uint8Array.from(atob(panel.entries), (sign) => sign.charCodeAt(0));
    const scale = (panel.high - panel.low) / LEVELS;
    return (moment) => {
      const rows = [];
      for (let row = 0; row < panel.rows; row++) {
        const start = (moment * panel.rows + row) * panel.columns;
        rows.push(Array.from(bytes.subarray(start, start + panel.columns), (byte) => (byte > LEVELS ? null : panel.low + scale * byte)));
      }
      return rows;
    };
  }

  const suffix = (i) => (i === 0 ? "" : String(i + 1));
  const ACROSS = 3;

  // The place of a panel on a plate 880 pixels wide, as shares: room for its own colour bar on the right.
  function spot(movie, i) {
    const count = movie.panels.length;
    const across = Math.min(count, ACROSS);
    const down = Math.ceil(count / across);
    const [column, row] = [i % across, Math.floor(i / across)];
    return { x: [(column + 0.14) / across, (column + 0.84) / across], y: [1 - (row + 0.82) / down, 1 - (row + 0.09) / down] };
  }

  function heatmaps(movie, frames) {
    return movie.panels.map((panel, i) => {
      const { x, y } = spot(movie, i);
      return {
        type: "heatmap",
        z: frames[i](0),
        zmin: panel.low,
        zmax: panel.high,
        xaxis: `x${suffix(i)}`,
        yaxis: `y${suffix(i)}`,
        colorscale: movie.colours,
        colorbar: { thickness: 8, outlinewidth: 0.5, x: x[1], xpad: 6, y: (y[0] + y[1]) / 2, len: y[1] - y[0], ypad: 0, nticks: 5, tickfont: { size: 11 } },
        hovertemplate: `${panel.row} %{y}, ${panel.column} %{x}: %{z:.3g}<extra></extra>`,
      };
    });
  }

  function panels(movie) {
    const layout = {
      width: 880,
      height: 20 + Math.ceil(movie.panels.length / ACROSS) * 310,
      margin: { l: 10, r: 10, t: 10, b: 10 },
      font: { family: FONT, size: 13, color: "#000" },
      annotations: [],
    };
    movie.panels.forEach((panel, i) => {
      const { x, y } = spot(movie, i);
      const axis = { showgrid: false, zeroline: false, nticks: 6, tickfont: { size: 12 } };
      layout[`xaxis${suffix(i)}`] = { ...axis, domain: x, anchor: `y${suffix(i)}`, title: { text: panel.column, standoff: 3 } };
      layout[`yaxis${suffix(i)}`] = { ...axis, domain: y, anchor: `x${suffix(i)}`, title: { text: panel.row, standoff: 3 }, autorange: "reversed" };
      layout.annotations.push({
        text: panel.name, showarrow: false, xref: "paper", yref: "paper", x: (x[0] + x[1]) / 2, y: y[1], yshift: 2, xanchor: "center", yanchor: "bottom",
        font: { size: 15 },
      });
    });
    return layout;
  }

  // Surfaces to turn around, two in a row.
  async function turn(plate) {
    const [surfaces] = await ready(plate.dataset.moving);
    const down = Math.ceil(surfaces.length / 2);
    const layout = {
      width: 880, height: 420 * down, margin: { l: 0, r: 0, t: 30, b: 0 }, annotations: [],
      font: { family: FONT, size: 13, color: "#000" },
    };
    const traces = surfaces.map((surface, i) => {
      const [column, row] = [i % 2, Math.floor(i / 2)];
      layout[`scene${suffix(i)}`] = {
        domain: { x: [column / 2, (column + 1) / 2], y: [1 - (row + 1) / down, 1 - (row + 0.06) / down] },
        xaxis: { title: { text: surface.x_name } }, yaxis: { title: { text: surface.y_name } }, zaxis: { title: { text: "" }, nticks: 5 },
        camera: { eye: { x: 1.75, y: 1.75, z: 1.15 }, center: { x: 0, y: 0, z: -0.12 } },
      };
      layout.annotations.push({
        text: surface.name, showarrow: false, xref: "paper", yref: "paper", x: column / 2 + 0.25, y: 1 - row / down, xanchor: "center", yanchor: "bottom",
      });
      return {
        type: "surface", x: surface.x, y: surface.y, z: surface.heights, scene: `scene${suffix(i)}`, colorscale: surface.colours,
        showscale: false, hovertemplate: "%{x:.2f}, %{y:.2f}: %{z:.4g}<extra></extra>",
      };
    });
    await Plotly.newPlot(stage(plate), traces, layout, CONFIG);
    plate.classList.add("drawn");
  }

  const kinds = { movie: play, surfaces: turn };
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        const plate = entry.target;
        const begin = plate.dataset.plot ? draw : kinds[plate.dataset.kind];
        // Where a plot cannot be drawn, its picture stays.
        begin(plate).catch((error) => plate.setAttribute("data-failed", error.message));
      }
    },
    { rootMargin: "400px" },
  );
  for (const plate of all("[data-plot], [data-moving]")) seen.observe(plate);
})();
