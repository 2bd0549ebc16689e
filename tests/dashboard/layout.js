// What a page looks like, as boxes and colours that do not depend on fonts or on what happens to be in it.
// Decides: which parts are measured. Follows: it works on a copy of the page, in which every word is a box
// as wide as half its letters, what changes from run to run is one word of eight, and lists have one entry.
(() => {
  const CHANGES =
    "td, dd, time, code, pre, .tile-value, .tile-more, .soft, .state, .who span, .note-box, .wrong, .empty-title";
  const PARTS =
    ".side, .side nav a[aria-current], .who, main, h1, h2, .lead, .row, .inline, .tiles, .tile, section, .scroll, " +
    "th, td, .state, .facts, .facts > div, .card, .empty, .command, .lines, button, input, select, textarea, " +
    "label, .field, .hint, .bars, .span-row, .track, .wrong, .note-box, summary";
  const COLOURED =
    "body, .side, .side nav a[aria-current], h1, h2, a, .soft, .lead, .hint, th, td, .tile, .card, .facts, .empty, " +
    ".command, .lines, button, input, .wrong, .note-box, .group, .bar";
  const LETTERS_MAX = 20;
  const live = document.body;
  const copy = live.cloneNode(true);
  const all = (selector) => [...copy.querySelectorAll(selector)];
  for (const one of all("tbody")) [...one.children].slice(1).forEach((row) => row.remove());
  for (const one of all(".lines, .says, .cards, .chart")) one.replaceChildren();
  for (const one of all(".span-row")) if (one.previousElementSibling?.matches(".span-row")) one.remove();
  for (const one of all("select")) {
    one.replaceChildren();
    if (one.closest("td")) one.style.width = "96px";
  }
  const texts = [];
  const walk = document.createTreeWalker(copy, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) texts.push(walk.currentNode);
  const boxed = new Set();
  for (const text of texts) {
    const parent = text.parentElement;
    if (parent.closest("script, noscript, select, textarea")) continue;
    const changing = parent.closest(CHANGES);
    if (changing && boxed.has(changing)) {
      text.remove();
      continue;
    }
    if (changing) boxed.add(changing);
    const words = changing ? ["changing"] : text.data.split(/\s+/).filter(Boolean);
    text.replaceWith(
      ...words.map((word) => {
        const box = document.createElement("span");
        box.style.display = "inline-block";
        box.style.width = `${Math.min(word.length, LETTERS_MAX) / 2}em`;
        box.style.marginRight = "0.25em";
        return box;
      }),
    );
  }
  for (const one of all("button, .state")) one.style.lineHeight = "20px";
  document.documentElement.replaceChild(copy, live);
  const KINDS = ["good", "busy", "wait", "bad", "odd", "over"];
  const name = (one) => [one.localName, ...[...one.classList].filter((word) => !KINDS.includes(word))].join(".");
  const boxes = all(PARTS)
    .map((one) => [name(one), one.getBoundingClientRect()])
    .filter(([, box]) => box.width && box.height)
    .map(([word, box]) =>
      [word, box.x + scrollX, box.y + scrollY, box.width, box.height]
        .map((part) => (typeof part === "number" ? Math.round(part) : part))
        .join(" "),
    );
  const colours = {};
  const samples = KINDS.map((kind) => {
    const one = document.createElement("span");
    one.className = `state ${kind}`;
    return one;
  });
  copy.append(...samples);
  for (const one of [copy, ...all(COLOURED), ...samples]) {
    const style = getComputedStyle(one);
    const standing = one.disabled ? ":disabled" : one.hasAttribute("aria-current") ? ":current" : "";
    const inside = one.localName === "a" || one.localName === "h2" ? ` of ${name(one.parentElement)}` : "";
    const kind = samples.includes(one) ? one.className : name(one);
    colours[`${kind}${standing}${inside}`] =
      `${style.color} on ${style.backgroundColor} in ${style.borderTopColor}, ${style.fontSize} ${style.fontWeight}`;
  }
  document.documentElement.replaceChild(live, copy);
  return { boxes, colours };
})();
