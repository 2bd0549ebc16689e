// The page as it is to be drawn for a picture: nothing in it moves, and what differs from run to run is fixed.
// Decides: which words stay. Follows: it shows a copy of the page, so that what the page does meanwhile is not
// seen; a number, a time, an id is the same in every run, and a list has its first entries alone.
// `window.still(false)` shows the page itself again.
(() => {
  const ROWS_MAX = 3;
  const NAME = document.querySelector(".who span")?.textContent.split(" · ")[0];
  // What depends on how far the daemon's loops are is covered.
  const COVERED = '[data-key="sWhat the loops decided last"] .scroll, [data-key="sWhat was decided last"] .scroll';
  const FIXED = [
    [/\d{4}-\d\d-\d\d(?:[T ][\d:.]+Z?)?/g, "YYYY-MM-DD"],
    [/\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d+/g, "Jan N"],
    [/(?:< )?\b\d+ (?:ms|s|min|h|d)(?: \d+ (?:s|min|h))?\b/g, "N min"],
    [/\b\d+(?:\.\d+)? (?:B|KiB|MiB|GiB|TiB)\b/g, "N GiB"],
    [/…[0-9A-Za-z]{8}\b/g, "…NNNNNNNN"],
    [/(?<![0-9A-Za-z])(?:(?=[A-Za-z]*\d)[0-9A-Za-z]{16,}|[0-9A-Za-z]{22,})/g, "N".repeat(20)],
    [/\/tmp\/[^\s'",;:)]*/g, "/folder"],
    [/\bc-[0-9a-f]{12}\b/g, "c-customer"],
    [/\buck_[0-9A-Za-z]{4}\b/g, "uck_NNNN"],
    [/\d+(?:[.,]\d+)*/g, "N"],
  ];
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(
    '* { font-family: "DejaVu Sans" !important; animation: none !important; transition: none !important; ' +
      "caret-color: transparent !important; } " +
      'code, code *, pre, pre *, textarea { font-family: "DejaVu Sans Mono" !important; } ' +
      "* { scrollbar-width: none !important; } " +
      ".one-line { white-space: nowrap; } .covered { background: gray; height: 80px; }",
  );
  const live = document.body;
  const copy = live.cloneNode(true);
  const all = (selector) => [...copy.querySelectorAll(selector)];
  for (const one of all("tbody")) [...one.children].slice(ROWS_MAX).forEach((row) => row.remove());
  for (const one of all(".lines")) {
    const printed = ["", "note", "err"].map((kind) => {
      const line = document.createElement("span");
      line.className = kind;
      line.textContent = "a line that was printed\n";
      return line;
    });
    one.replaceChildren(...printed);
  }
  for (const one of all("#says")) one.replaceChildren();
  for (const one of all("#live")) one.textContent = "✓ how it is";
  for (const one of all(COVERED)) {
    const cover = document.createElement("div");
    cover.className = "covered";
    one.replaceWith(cover);
  }
  for (const one of all("time")) {
    const fixed = document.createElement("span");
    fixed.className = "one-line";
    fixed.textContent = "N min ago";
    one.replaceWith(fixed);
  }
  // What is drawn is drawn with values of ours, where there is a drawing at all.
  for (const one of all(".chart .area")) one.setAttribute("d", "M150 40 L150 20 L200 8 L250 24 L300 12 L300 40 Z");
  for (const one of all(".chart .stroke")) one.setAttribute("d", "M150 20 L200 8 L250 24 L300 12");
  for (const one of all(".span")) Object.assign(one.style, { left: "20%", width: "60%" });
  for (const one of all(".used > div")) one.style.width = "40%";
  for (const one of all(".bars")) {
    const costs = one.querySelector(".bar:not(.none)");
    [...one.children].forEach((bar, at) => {
      const last = costs && at === one.children.length - 1;
      bar.className = last ? "bar" : "bar none";
      bar.style.height = last ? "100%" : "0";
    });
  }
  const lived = [...live.querySelectorAll("select, input")];
  all("select, input").forEach((one, at) => {
    if (one.localName === "select") one.selectedIndex = lived[at].selectedIndex;
    else if (one.value && one.type !== "checkbox") one.value = fixed(one.value);
  });
  const walk = document.createTreeWalker(copy, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) walk.currentNode.data = fixed(walk.currentNode.data);
  function fixed(text) {
    const told = NAME ? text.replaceAll(NAME, "NAME") : text;
    return FIXED.reduce((so, [pattern, word]) => so.replace(pattern, word), told);
  }
  const before = document.adoptedStyleSheets;
  document.adoptedStyleSheets = [...before, sheet];
  document.documentElement.replaceChild(copy, live);
  scrollTo(0, 0);
  window.still = () => {
    document.documentElement.replaceChild(live, copy);
    document.adoptedStyleSheets = before;
  };
  return document.fonts.ready.then(() => document.documentElement.scrollHeight);
})();
