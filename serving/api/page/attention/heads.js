// Draws all layers and heads at once, small: a row for each layer, a column for each head.

import { element, withArrows } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { MEAN } from "./weights.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");

export class Heads {
  // choose: called with the layer and the head that are clicked.
  constructor(choose) {
    this.place = element("div", { className: "attention-view-heads", role: "group", ariaLabel: formatMessage("attention.heads.all") });
    withArrows(this.place, "button");
    this.place.addEventListener("click", (event) => {
      const picked = event.target.closest("button");
      if (picked) choose(picked.dataset.layer, picked.dataset.head);
    });
    const repaint = () => { if (this.place.isConnected && this.weights) this.paint(); };
    DARK.addEventListener("change", repaint);
    addEventListener("themechange", repaint);
  }

  begin(weights) {
    this.weights = weights;
    this.place.style.setProperty("--heads", weights.heads.length);
    const label = (textContent) => element("span", { textContent });
    const lines = weights.layers.flatMap((number, layer) => [label(number), ...weights.heads.map((_, head) => this.button(layer, head))]);
    this.place.replaceChildren(label(""), ...weights.heads.map(label), ...lines);
  }

  button(layer, head) {
    const { rows, columns, layers, heads } = this.weights;
    const canvas = element("canvas", { width: columns.length, height: rows.length });
    const name = formatMessage("attention.heads.head", { layer: layers[layer], head: heads[head] });
    const button = element("button", { type: "button", title: name, ariaLabel: name, tabIndex: layer || head ? -1 : 0 }, canvas);
    Object.assign(button.dataset, { layer, head });
    return button;
  }

  // Marks the chosen heads: all that a mean is computed from.
  show(layer, head, shade) {
    for (const button of this.place.querySelectorAll("button")) {
      const isChosen = (layer === MEAN || layer === button.dataset.layer) && (head === MEAN || head === button.dataset.head);
      button.setAttribute("aria-pressed", isChosen);
    }
    if (this.shade === shade && this.painted === this.weights) return;
    Object.assign(this, { shade, painted: this.weights });
    this.paint();
  }

  paint() {
    const colour = getComputedStyle(this.place).getPropertyValue("color").match(/[\d.]+/g).map(Number);
    for (const button of this.place.querySelectorAll("button")) {
      const { weights } = this;
      const map = weights.of(button.dataset.layer, button.dataset.head);
      fill(button.firstChild, weights.shades(map, this.shade), colour);
    }
  }
}

function fill(canvas, shades, [red, green, blue]) {
  const image = new ImageData(canvas.width, canvas.height);
  shades.forEach((shade, place) => image.data.set([red, green, blue, 255 * shade], 4 * place));
  canvas.getContext("2d").putImageData(image, 0, 0);
}
