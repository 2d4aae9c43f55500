// The index is a script and not a JSON file: a page that is opened from a disk may load scripts only.
"use strict";
const root = document.documentElement.dataset.root;
const box = document.querySelector("#search");
const found = document.querySelector("#found");

box.addEventListener("focus", () => {
  if (window.peragoIndex || document.querySelector("#index")) return;
  const script = document.createElement("script");
  script.id = "index";
  script.src = root + "search-index.js";
  script.onload = show;
  document.head.append(script);
});
box.addEventListener("input", show);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== box) {
    event.preventDefault();
    box.focus();
  }
});

function show() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.replaceChildren();
  if (!words.length || !window.peragoIndex) return;
  const ranked = window.peragoIndex
    .map((entry) => ({ entry, rank: rankOf(entry, words) }))
    .filter(({ rank }) => rank > 0)
    .sort((one, other) => other.rank - one.rank);
  for (const { entry } of ranked.slice(0, 12)) found.append(item(entry, words[0]));
  if (!ranked.length) found.append(line("Nothing was found."));
}

// Every word must occur; one in a heading counts more than one in the text.
function rankOf(entry, words) {
  const title = (entry.page + " " + entry.heading).toLowerCase();
  const text = entry.text.toLowerCase();
  let rank = 0;
  for (const word of words) {
    const inTitle = title.includes(word);
    if (!inTitle && !text.includes(word)) return 0;
    rank += inTitle ? 10 : 1;
  }
  return rank;
}

function line(...content) {
  const made = document.createElement("li");
  made.append(...content);
  return made;
}

function item(entry, word) {
  const link = document.createElement("a");
  link.href = root + entry.address;
  link.textContent = entry.heading === entry.page ? entry.page : entry.page + ": " + entry.heading;
  const at = Math.max(0, entry.text.toLowerCase().indexOf(word) - 40);
  const part = document.createElement("small");
  part.textContent = entry.text.slice(at, at + 120);
  return line(link, part);
}
