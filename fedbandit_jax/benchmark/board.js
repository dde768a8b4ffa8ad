// Shows the tasks that are chosen, with the mean over these, and differences to the row whose name is clicked.
const board = document.querySelector("table.board"), heads = [...board.tHead.rows[0].cells];
const tasks = heads.map((head, column) => ({ head, column })).filter(one => one.head.dataset.trusted);
const lines = [...board.tBodies[0].rows], choices = [...document.querySelectorAll(".choices select")];
let base = null;
const value = (cell, name) => Number(cell.dataset[name] || 0);
const cut = x => (Math.abs(x) < .0005 ? 0 : x).toFixed(3);

function show() {
  const wanted = choices.filter(one => one.value);
  const shown = tasks.filter(one => wanted.every(choice => one.head.dataset[choice.name] === choice.value));
  const mean = line => {
    const cells = shown.map(one => line.cells[one.column]);
    const error = Math.sqrt(cells.reduce((sum, cell) => sum + value(cell, "error") ** 2, 0)) / cells.length;
    return [cells.reduce((sum, cell) => sum + value(cell, "score"), 0) / cells.length, error];
  };
  for (const one of tasks)
    for (const line of [board.tHead.rows[0], ...lines]) line.cells[one.column].hidden = !shown.includes(one);
  for (const line of lines) {
    line.classList.toggle("base", line === base);
    const relative = base && line !== base;
    for (const one of shown) {
      const cell = line.cells[one.column], other = base && base.cells[one.column];
      if (!cell.dataset.text) cell.dataset.text = cell.textContent;
      const apart = relative && value(cell, "score") - value(other, "score");
      cell.textContent = relative ? (apart < 0 ? "" : "+") + cut(apart) : cell.dataset.text;
    }
    const [score, error] = mean(line), [other, its] = relative ? mean(base) : [0, 0];
    const half = 1.96 * Math.hypot(error, its), middle = score - other;
    line.cells[1].textContent = shown.length ? (relative && middle >= 0 ? "+" : "") + cut(middle) : "-";
    line.cells[2].textContent = shown.length ? `${cut(middle - half)} to ${cut(middle + half)}` : "-";
  }
  document.querySelector(".choices output").textContent =
    `${shown.length} of ${tasks.length} tasks` + (base ? `; differences to ${base.cells[0].textContent}` : "");
}

for (const choice of choices) choice.addEventListener("change", show);
for (const line of lines) {
  const button = document.createElement("button");
  button.append(...line.cells[0].childNodes);
  button.title = "show differences to this row";
  button.addEventListener("click", () => { base = base === line ? null : line; show(); });
  line.cells[0].append(button);
}
document.querySelector(".choices").hidden = false;
show();
