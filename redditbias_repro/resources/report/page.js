// A link to a folded part opens it.
function unfold() {
  const there = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!there) return;
  for (let part = there.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  there.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();
// Tables of more than a few rows are sorted by their headings and filtered by words. Without this script they are whole.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], rows = [...body.rows];
  if (rows.length < 8) continue;
  const title = table.caption.querySelector("strong").textContent;
  const number = (cell) => {
    const text = cell.textContent.replace(/,/g, "").replace("−", "-");
    return /^[-+]?[\d.]/.test(text) ? parseFloat(text) : NaN;
  };
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keys = new Map(rows.map((row) => [row, [number(row.cells[i]), row.cells[i].textContent]]));
      const numbers = rows.some((row) => !Number.isNaN(keys.get(row)[0])) && head.classList.contains("number");
      const sorted = [...rows].sort((a, b) => {
        const [x, y] = [keys.get(a), keys.get(b)];
        if (!numbers) return x[1].localeCompare(y[1]);
        return Number.isNaN(x[0]) - Number.isNaN(y[0]) || x[0] - y[0];
      });
      if (down) {  // what has no number stays last
        const known = numbers ? sorted.filter((row) => !Number.isNaN(keys.get(row)[0])) : sorted;
        body.append(...known.reverse(), ...sorted.filter((row) => !known.includes(row)));
      } else body.append(...sorted);
    });
  });
  const label = document.createElement("label"), field = document.createElement("input"), found = document.createElement("output");
  field.type = "search";
  field.placeholder = "Filter rows";
  field.setAttribute("aria-label", `Filter: ${title}`);
  label.className = "filter";
  label.append(field, found);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    found.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  });
  table.caption.append(label);
}
