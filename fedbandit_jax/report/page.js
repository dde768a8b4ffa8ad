// Sorts a table by the column whose head is clicked: numbers by size, other texts as in a dictionary, "-" last. Above a
// table of more rows than a screen shows at a glance, a field hides rows that do not have all the words typed there.
for (const table of document.querySelectorAll("table.sortable")) {
  const number = text => { const found = Number(text.replace(/,/g, "")); return text && !isNaN(found) ? found : null; };
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending", body = table.tBodies[0];
      table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const keyed = [...body.rows].map(row => [row.cells[column].textContent.trim(), row]);
      keyed.sort(([a], [b]) => {
        if ((a === "-") !== (b === "-")) return a === "-" ? 1 : -1;
        const [x, y] = [number(a), number(b)];
        const order = x !== null && y !== null ? x - y : a.localeCompare(b, "en", { numeric: true });
        return up ? order : -order;
      });
      body.append(...keyed.map(([, row]) => row));
    });
  });
  const rows = [...table.tBodies[0].rows];
  if (rows.length > 8) {
    const field = document.createElement("input");
    Object.assign(field, { type: "search", placeholder: `filter ${rows.length} rows` });
    field.setAttribute("aria-label", "show rows that have these words");
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      rows.forEach(row => { row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word)); });
    });
    table.before(field);
  }
}
