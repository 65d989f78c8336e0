"use strict";
// Sorts a table by a column, says of a table that it is wider than the page, and opens the section that a link leads to. Without this script the page says the same.
const units = { ns: 1e-9, "µs": 1e-6, us: 1e-6, ms: 1e-3 };
const numberOf = text => {
  const seen = /([-−]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?)(?:\s*(ns|µs|us|ms)\b)?/i.exec(text);
  return seen ? Number(seen[1].replace(/,/g, "").replace("−", "-")) * (units[seen[2]] || 1) : NaN;
};
for (const table of document.querySelectorAll("table")) {
  const bodies = [...table.tBodies]; // rows stay below their heading
  const rowsOf = body => [...body.rows].filter(row => row.className !== "of");
  if (bodies.every(body => rowsOf(body).length < 2)) continue;
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const numbers = head.classList.contains("n");
      for (const body of bodies) {
        const rows = rowsOf(body).map(row => [row.cells[place].textContent.trim(), row]);
        rows.sort(([a], [b]) => {
          if (!a || !b) return !a - !b; // empty cells last, whichever way
          const order = numbers ? numberOf(a) - numberOf(b) : a.localeCompare(b, "en", { numeric: true });
          return (order || 0) * (down ? -1 : 1);
        });
        body.append(...rows.map(([, row]) => row));
      }
    };
  });
}
const measured = new ResizeObserver(entries => {
  for (const { target } of entries) {
    const wide = target.scrollWidth > target.clientWidth + 1;
    target.classList.toggle("wide", wide);
    if (wide) for (const [key, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", "Table, scrolls sideways"]]) target.setAttribute(key, value);
    else for (const key of ["tabindex", "role", "aria-label"]) target.removeAttribute(key);
  }
});
for (const around of document.querySelectorAll(".scroll")) measured.observe(around);
const reveal = () => {
  const target = document.getElementById(location.hash.slice(1));
  for (let at = target?.querySelector("details") ?? target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
};
addEventListener("hashchange", reveal);
for (const link of document.querySelectorAll('a[href^="#"]')) link.addEventListener("click", () => setTimeout(reveal));
reveal();
