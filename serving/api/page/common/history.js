// Remembers what was asked for, in this browser alone.

import { byId, element } from "./elements.js";

const MOST = 20;

export class History {
  // name: of the stored list; its list is in the element `${name}-history`. A click on an entry
  // calls `choose` with it. Each entry has a `text`, and what else is to come back.
  constructor(name, choose) {
    this.key = `attendant-${name}-history`;
    this.list = byId(`${name}-history`);
    this.choose = choose;
    byId(`${name}-history-clear`).addEventListener("click", () => this.keep([]));
    this.draw();
  }

  get entries() {
    return JSON.parse(localStorage.getItem(this.key) ?? "[]");
  }

  // Puts an entry first, in place of the same text and of what was there while it was typed.
  add(entry) {
    const [newest, ...others] = this.entries;
    const isTyped = newest && (entry.text.startsWith(newest.text) || newest.text.startsWith(entry.text));
    const before = isTyped || !newest ? others : [newest, ...others];
    this.keep([entry, ...before.filter(({ text }) => text !== entry.text)].slice(0, MOST));
  }

  // A browser has room for some megabytes: then older entries go.
  keep(entries) {
    try {
      localStorage.setItem(this.key, JSON.stringify(entries));
    } catch {
      if (entries.length) this.keep(entries.slice(0, Math.floor(entries.length / 2)));
    }
    this.draw();
  }

  draw() {
    this.list.replaceChildren(...this.entries.map((entry) => {
      const button = element("button", { type: "button", className: "quiet", textContent: entry.text });
      button.addEventListener("click", () => this.choose(entry));
      return element("li", {}, button);
    }));
    this.list.parentElement.hidden = !this.entries.length;
  }
}
