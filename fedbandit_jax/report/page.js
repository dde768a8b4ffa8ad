// Sorts a table by the column whose head is clicked: numbers by size, other texts as in a dictionary, "-" last.
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
}
