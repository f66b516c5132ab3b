for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("th button").forEach((button, column) => {
    button.addEventListener("click", () => {
      const up = button.dataset.up !== "1";
      button.dataset.up = up ? "1" : "0";
      const key = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const rows = [...body.rows].sort((a, b) => {
        const x = key(a), y = key(b), n = parseFloat(x) - parseFloat(y);
        return (Number.isNaN(n) ? x.localeCompare(y) : n) * (up ? 1 : -1);
      });
      body.append(...rows);
    });
  });
}
const filter = document.getElementById("filter");
if (filter) filter.addEventListener("input", () => {
  const word = filter.value.toLowerCase();
  for (const row of document.querySelectorAll("#ops tbody tr"))
    row.hidden = !row.textContent.toLowerCase().includes(word);
});
