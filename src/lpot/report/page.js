"use strict";
// Rows of small tables are moved; the ops are drawn from their data, a few hundred at a time.
const PAGE = 200;

function before(a, b, up) {
  if (a === null || a === undefined || a === "") return b === null || b === undefined || b === "" ? 0 : 1;
  if (b === null || b === undefined || b === "") return -1;
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true});
  return up ? order : -order;
}

function heads(table, react) {
  const cells = [...table.tHead.rows[0].cells];
  cells.forEach((cell, column) => cell.querySelector("button").addEventListener("click", () => {
    const up = cell.getAttribute("aria-sort") !== "ascending";
    cells.forEach(other => other.removeAttribute("aria-sort"));
    cell.setAttribute("aria-sort", up ? "ascending" : "descending");
    react(column, up);
  }));
}

function movable(table) {
  const body = table.tBodies[0];
  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    return cell.textContent;
  };
  heads(table, (column, up) => {
    body.append(...[...body.rows].sort((a, b) => before(key(a, column), key(b, column), up)));
  });
}

function opTable(kept) {
  const source = document.getElementById("op-data"), table = document.getElementById("ops");
  if (!source || !table) return null;
  const data = JSON.parse(source.textContent);
  const kinds = data.columns.map(column => column[1]), names = data.columns.map(column => column[0]);
  const rows = data.rows.map(row => row.map((value, column) => kinds[column] === "word" ? data.words[value] : value));
  const body = table.tBodies[0], more = document.getElementById("more"), shown = document.getElementById("shown");
  const filter = document.getElementById("filter"), selects = [...document.querySelectorAll("select[data-column]")];
  const state = Object.assign({column: -1, up: true, text: "", words: {}, count: PAGE}, kept);
  const texts = rows.map(row => row.filter(value => typeof value === "string").join("\n").toLowerCase());

  function draw() {
    const text = state.text.toLowerCase();
    const wanted = Object.entries(state.words).filter(([, word]) => word).map(([name, word]) => [names.indexOf(name), word]);
    let found = [];
    rows.forEach((row, index) => {
      if (texts[index].includes(text) && wanted.every(([column, word]) => row[column] === word)) found.push(row);
    });
    if (state.column >= 0) found.sort((a, b) => before(a[state.column], b[state.column], state.up));
    body.replaceChildren(...found.slice(0, state.count).map(row => {
      const line = document.createElement("tr");
      row.forEach((value, column) => {
        const cell = line.insertCell();
        if (kinds[column] === "number") cell.className = "n";
        cell.textContent = value === null ? "" : String(value);
      });
      return line;
    }));
    more.hidden = found.length <= state.count;
    shown.textContent = `${Math.min(found.length, state.count)} of ${found.length}`;
  }
  heads(table, (column, up) => { Object.assign(state, {column, up}); draw(); });
  filter.addEventListener("input", () => { state.text = filter.value; state.count = PAGE; draw(); });
  selects.forEach(select => select.addEventListener("change", () => {
    state.words[select.dataset.column] = select.value; state.count = PAGE; draw();
  }));
  more.addEventListener("click", () => { state.count += 5 * PAGE; draw(); });
  addEventListener("beforeprint", () => { state.count = Math.max(state.count, 10 * PAGE); draw(); });
  filter.value = state.text;
  selects.forEach(select => { select.value = state.words[select.dataset.column] || ""; });
  if (rows.length > PAGE || kept) draw();
  return state;
}

function setUp(kept) {
  document.querySelectorAll("table.sortable").forEach(movable);
  return opTable(kept);
}

let state = setUp(null);

if ("live" in document.body.dataset) {
  let stamp = null;
  const ask = async () => {
    try {
      const news = await (await fetch("stamp", {cache: "no-store"})).text();
      if (stamp !== null && news !== stamp) {
        const text = await (await fetch("./", {cache: "no-store"})).text();
        const next = new DOMParser().parseFromString(text, "text/html");
        const focus = document.activeElement && document.activeElement.id;
        document.querySelector("main").replaceWith(document.adoptNode(next.querySelector("main")));
        document.title = next.title;
        state = setUp(state);
        if (focus && document.getElementById(focus)) document.getElementById(focus).focus();
      }
      stamp = news;
      const now = await (await fetch("now", {cache: "no-store"})).text();
      if (document.getElementById("now")) document.getElementById("now").textContent = now;
      document.body.classList.remove("lost");
    } catch (error) {
      document.body.classList.add("lost"); // the server was stopped; what is shown stays
    }
    setTimeout(ask, 2000);
  };
  ask();
}
