// Shows attention weights: of a chosen kind, layer and head, and of all heads at once.

import { element, fillSelect } from "../common/elements.js";
import { Heads } from "./heads.js";
import { Lines } from "./lines.js";
import { MEAN } from "./weights.js";

const KINDS = {
  cross: "Translation at source",
  encoder: "Source at source",
  decoder: "Text at what comes before",
  memory: "Text at its memory",
  hops: "Hops at text",
};
const SHADES = [["row", "by a word's largest"], ["weight", "by weight"], ["log", "by logarithm"]];
const FORMS = [["lines", "columns"], ["text", "text"]];
const MOST_LINES = 40; // beyond this number, words are shown as text by default
const HELP = "Point at a word to see what it looks at; on the other side, what attends to it.";

export class AttentionView {
  // place: the element to fill.
  constructor(place) {
    this.place = place;
    this.kind = select("Who attends to what", []);
    this.layer = select("Layer", []);
    this.head = select("Head", []);
    this.shade = select("Shade", SHADES);
    this.form = select("Words as", FORMS);
    this.status = element("p", { className: "note attention-view-status", role: "status" });
    this.lines = new Lines((text) => { this.status.textContent = text || HELP; });
    this.heads = new Heads((layer, head) => this.choose(layer, head));
    place.replaceChildren(...this.createElements());
    this.clear();
  }

  clear() {
    this.place.hidden = true;
  }

  // views: Weights of each kind.
  show(views) {
    this.views = views;
    this.place.hidden = false;
    fillSelect(this.kind, views.map(({ kind }, number) => [number, KINDS[kind] ?? kind]));
    this.begin();
  }

  createElements() {
    const controls = [this.kind, this.layer, this.head, this.shade, this.form];
    const bar = element("div", { className: "attention-view-bar" }, ...controls.map((control) => control.parentElement));
    const listen = (work) => (event) => { event.stopPropagation(); work(); };
    bar.addEventListener("change", listen(() => this.draw()));
    this.kind.addEventListener("change", listen(() => this.begin()));
    const all = element("h3", { textContent: "All layers (down) and heads (across)" });
    const maps = element("div", { className: "attention-view-shown" }, this.lines.place, element("div", {}, all, this.heads.place));
    return [bar, this.status, maps];
  }

  // Shows the chosen kind.
  begin() {
    const weights = this.views[Number(this.kind.value)];
    this.weights = weights;
    fillSelect(this.layer, numbered(weights.layers));
    fillSelect(this.head, numbered(weights.heads));
    this.form.value = weights.rows.length > MOST_LINES ? "text" : "lines";
    this.lines.begin(weights);
    this.heads.begin(weights);
    this.draw();
  }

  choose(layer, head) {
    this.layer.value = layer;
    this.head.value = head;
    this.draw();
  }

  draw() {
    const map = this.weights.of(this.layer.value, this.head.value);
    this.lines.place.classList.toggle("as-text", this.form.value === "text");
    this.lines.show(map, this.weights.shades(map, this.shade.value));
    this.heads.show(this.layer.value, this.head.value, this.shade.value);
  }
}

const numbered = (numbers) => [
  ...(numbers.length > 1 ? [[MEAN, `mean of ${numbers.length}`]] : []),
  ...numbers.map((number, place) => [place, number]),
];

function select(name, options) {
  const select = element("select");
  element("label", { textContent: name }, select);
  fillSelect(select, options);
  return select;
}
