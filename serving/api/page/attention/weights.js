// The attention weights of one kind, of all layers and heads, and their shades.

export const MEAN = ""; // of all layers, or of all heads

const DECADES = 3; // of weights that the logarithmic shade shows

const DARKNESS = {
  row: (weight, largest) => weight / largest,
  weight: (weight) => weight,
  log: (weight) => Math.max(0, 1 + Math.log10(weight) / DECADES),
};

export class Weights {
  // rows attend to columns. layers, heads: their numbers. weights: of all layers, heads, rows and
  // columns, in this order.
  constructor({ kind, rows, columns, layers, heads, weights }) {
    Object.assign(this, { kind, rows, columns, layers, heads, weights });
    this.means = new Map();
  }

  get size() {
    return this.rows.length * this.columns.length;
  }

  // Returns rows times columns, of one layer and head, by their places, or of a mean.
  of(layer, head) {
    if (layer !== MEAN && head !== MEAN) return this.map(Number(layer), Number(head));
    const key = `${layer}/${head}`;
    if (!this.means.has(key)) this.means.set(key, this.meanOf(within(layer, this.layers.length), within(head, this.heads.length)));
    return this.means.get(key);
  }

  map(layer, head) {
    const start = (layer * this.heads.length + head) * this.size;
    return this.weights.subarray(start, start + this.size);
  }

  meanOf(layers, heads) {
    const sum = new Float32Array(this.size);
    for (const layer of layers) {
      for (const head of heads) this.map(layer, head).forEach((weight, place) => { sum[place] += weight; });
    }
    return sum.map((total) => total / (layers.length * heads.length));
  }

  // How dark each weight is, 0 to 1: by itself, by the largest of its row, or by its logarithm.
  shades(map, shade) {
    const width = this.columns.length;
    const shades = new Float32Array(map.length);
    for (let start = 0; start < map.length; start += width) {
      const row = map.subarray(start, start + width);
      const largest = Math.max(...row, Number.MIN_VALUE);
      row.forEach((weight, column) => { shades[start + column] = weight && DARKNESS[shade](weight, largest); });
    }
    return shades;
  }
}

const within = (chosen, count) => (chosen === MEAN ? [...Array(count).keys()] : [Number(chosen)]);

// Reads bytes with the square root of each weight; so small weights keep digits.
export function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return Float32Array.from(bytes, (byte) => (byte / 255) ** 2);
}
