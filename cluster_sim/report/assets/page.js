// The table of trials: sort by a column, filter by words, download what is shown. Nothing else on the page needs it.
for (const table of document.querySelectorAll("table.trials")) {
  const body = table.tBodies[0], rows = [...body.rows];
  const box = table.closest(".scroll"), tools = document.createElement("div");
  box.classList.add("trials-box");
  tools.className = "tools";
  const filter = document.createElement("input"), count = document.createElement("span"), save = document.createElement("a");
  filter.type = "search";
  filter.placeholder = "words in a row";
  filter.setAttribute("aria-label", "show only rows with these words");
  save.textContent = "download as CSV";
  save.href = "#";
  save.download = "trials.csv";
  tools.append(filter, count, save);
  box.before(tools);

  const shown = () => [...body.rows].filter((row) => !row.hidden);
  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const cells = [...row.cells].map((cell) => cell.textContent.toLowerCase());
      row.hidden = !words.every((word) => cells.some((cell) => cell.includes(word)));
    }
    count.textContent = `${shown().length} of ${rows.length} trials`;
  };
  filter.addEventListener("input", apply);
  apply();

  let last = -1, direction = 1;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      direction = column === last ? -direction : 1;
      last = column;
      const key = (row) => row.cells[column].textContent.replaceAll(",", "");
      rows.sort((a, b) => {
        const x = key(a), y = key(b), nx = parseFloat(x), ny = parseFloat(y);
        return direction * (Number.isNaN(nx) || Number.isNaN(ny) ? x.localeCompare(y) : nx - ny);
      });
      body.append(...rows);
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });

  save.addEventListener("click", () => {
    const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = [table.tHead.rows[0], ...shown()].map((row) => [...row.cells].map((cell) => quoted(cell.textContent)).join(","));
    save.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  });
}
