// Draws a picture, and over it what a word looks at, as Xu et al. 2015 do: the lighter, the more.

const LONGEST = 800; // points of a side
const DARKNESS = 0.8; // where there is no weight

// weights: of the patches, row after row, if any. share: the part of both sides that the model reads, in
// the middle.
export function draw(canvas, picture, weights, share) {
  const scale = LONGEST / Math.max(picture.width, picture.height);
  const [width, height] = [picture.width * scale, picture.height * scale];
  Object.assign(canvas, { width, height, hidden: false });
  const pen = canvas.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(picture, 0, 0, width, height);
  const edge = (1 - share) / 2;
  if (weights) pen.drawImage(shade(weights), width * edge, height * edge, width * share, height * share);
}

// Returns an image with a point for each patch, which is smoothed where it is drawn.
function shade(weights) {
  const side = Math.sqrt(weights.length);
  const largest = Math.max(...weights);
  const levels = new ImageData(side, side);
  weights.forEach((weight, place) => { levels.data[4 * place + 3] = 255 * DARKNESS * (1 - weight / largest); });
  const canvas = new OffscreenCanvas(side, side);
  canvas.getContext("2d").putImageData(levels, 0, 0);
  return canvas;
}
