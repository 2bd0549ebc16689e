// Long tables: a page of the rows at first, more of them when they are asked for, and those that say a word.
// Decides: how many rows are drawn at once, so that a page with thousands opens and moves as one with ten.
// Never: asks the daemon. Follows: what was found and how far was read stay while the page looks again; a
// table that is short is nothing but the table.

import { button, field, h, table } from "./dom.js";

export const PAGE_ROWS = 100;

export class Rows {
  #page;
  #most = PAGE_ROWS;
  #word = "";

  constructor(page) {
    this.#page = page;
  }

  /** How many rows to ask for: all that are shown, and those that may be shown next. */
  get reach() {
    return this.#most + PAGE_ROWS;
  }

  /** As `table`; `says(row)` is the text in which a word is looked for. `whole`: there are no other rows. */
  table(label, columns, rows, key, says, whole = true) {
    if (rows.length <= PAGE_ROWS && !this.#word) return table(label, columns, rows, key);
    const found = rows.filter((one) => says(one).toLowerCase().includes(this.#word.toLowerCase()));
    const shown = found.slice(0, this.#most);
    const word = h("input", {
      type: "search",
      value: this.#word,
      onchange: (event) => this.#again(event.target.value.trim(), PAGE_ROWS),
    });
    const left = Math.min(PAGE_ROWS, found.length - shown.length);
    const more = button(`Show ${left} more`, () => this.#again(this.#word, this.#most + PAGE_ROWS));
    return [
      h("div", { class: "inline", "data-key": `find ${label}` }, field(`Find in ${rows.length}`, word)),
      shown.length > 0 && table(label, columns, shown, key),
      h(
        "div",
        { class: "row", "data-key": `more ${label}` },
        h("p", { class: "soft" }, `${shown.length} of ${whole ? "" : "the newest "}${found.length} are shown.`),
        left > 0 && more,
      ),
    ];
  }

  #again(word, most) {
    [this.#word, this.#most] = [word, most];
    this.#page.again();
  }
}
