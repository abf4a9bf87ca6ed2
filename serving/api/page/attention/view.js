// Shows attention weights: of a chosen kind, layer and head, and of all heads at once.

import { element, fillSelect } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { Heads } from "./heads.js";
import { Lines } from "./lines.js";
import { MEAN } from "./weights.js";

const KINDS = {
  cross: "attention.kind.cross",
  encoder: "attention.kind.encoder",
  decoder: "attention.kind.decoder",
  memory: "attention.kind.memory",
  hops: "attention.kind.hops",
};
const SHADES = [["row", "attention.shade.row"], ["weight", "attention.shade.weight"], ["log", "attention.shade.log"]];
const FORMS = [["lines", "attention.form.lines"], ["text", "attention.form.text"]];
const MOST_LINES = 40; // beyond this number, words are shown as text by default

export class AttentionView {
  // place: the element to fill.
  constructor(place) {
    this.place = place;
    this.kind = select("attention.kind", []);
    this.layer = select("attention.layer", []);
    this.head = select("attention.head", []);
    this.shade = select("attention.shade", SHADES);
    this.form = select("attention.form", FORMS);
    this.status = element("p", { className: "note attention-view-status", role: "status" });
    this.lines = new Lines((text) => { this.status.textContent = text || formatMessage("attention.view.help"); });
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
    fillSelect(this.kind, views.map(({ kind }, number) => [number, kind in KINDS ? formatMessage(KINDS[kind]) : kind]));
    this.begin();
  }

  createElements() {
    const controls = [this.kind, this.layer, this.head, this.shade, this.form];
    const bar = element("div", { className: "attention-view-bar" }, ...controls.map((control) => control.parentElement));
    const listen = (work) => (event) => { event.stopPropagation(); work(); };
    bar.addEventListener("change", listen(() => this.draw()));
    this.kind.addEventListener("change", listen(() => this.begin()));
    const all = element("h3", { textContent: formatMessage("attention.heads.title") });
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
  ...(numbers.length > 1 ? [[MEAN, formatMessage("attention.mean", { number: numbers.length })]] : []),
  ...numbers.map((number, place) => [place, number]),
];

// name, and those of options: keys of messages.
function select(name, options) {
  const select = element("select");
  element("label", { textContent: formatMessage(name) }, select);
  fillSelect(select, options.map(([value, key]) => [value, formatMessage(key)]));
  return select;
}
