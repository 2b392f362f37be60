// Everything is readable without this script; it adds filters and opens what a link points to.
(function () {
  "use strict";
  const all = (selector) => Array.from(document.querySelectorAll(selector));
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
  for (const tools of all(".tools")) {
    const cards = Array.from(tools.closest("section").querySelectorAll("details"));
    tools.querySelector("[data-open]").addEventListener("click", () => cards.forEach((card) => (card.open = true)));
    tools.querySelector("[data-close]").addEventListener("click", () => cards.forEach((card) => (card.open = false)));
  }
  addEventListener("hashchange", reveal);
  addEventListener("beforeprint", () => all("details").forEach((card) => (card.open = true)));
  if (location.hash !== "") reveal();
})();
