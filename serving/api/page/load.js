// Draws what the server has to do, from its metrics.

import { byId, element } from "./elements.js";
import { getText, tellingErrors } from "./server.js";

const SECONDS = 2;
const MOST_POINTS = 60;
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 100;
const HEIGHT = 40;

// Each is drawn from two readings of the metrics, `seconds` apart.
const CHARTS = [
  ["Requests a second", "", (now, then, seconds) => rate("attendant_requests_total", now, then, seconds)],
  ["Requests running", "", (now) => sum(now, "attendant_requests_running")],
  ["Requests waiting for a row", "", (now) => sum(now, "attendant_waiting")],
  ["Tokens written a second", "", (now, then, seconds) => rate("attendant_tokens_total", now, then, seconds, 'kind="generated"')],
  ["Time of a request, median", " ms", (now, then) => quantile(0.5, "attendant_request_seconds", now, then)],
  ["Time of a request, 95 of 100", " ms", (now, then) => quantile(0.95, "attendant_request_seconds", now, then)],
  ["Time to the first token, median", " ms", (now, then) => quantile(0.5, "attendant_time_to_first_token_seconds", now, then)],
  ["Errors and refusals a second", "", (now, then, seconds) =>
    rate("attendant_requests_total", now, then, seconds) - rate("attendant_requests_total", now, then, seconds, 'outcome="success"')],
];

let timer = null;
let latest = null;
let series = [];

export function showLoad(isShown) {
  clearInterval(timer);
  latest = null;
  if (!isShown) return;
  if (!series.length) series = CHARTS.map(chart);
  timer = setInterval(read, SECONDS * 1000);
  read();
}

async function read() {
  if (document.hidden) return;
  const text = await tellingErrors(byId("load-error"), () => getText("metrics"));
  if (text === undefined) return;
  const now = { samples: samplesOf(text), at: performance.now() };
  if (latest) {
    const seconds = (now.at - latest.at) / 1000;
    for (const each of series) each.add(each.value(now.samples, latest.samples, seconds));
  }
  latest = now;
}

// Reads Prometheus' text format: [name, labels, value] of each sample.
export function samplesOf(text) {
  const found = text.matchAll(/^(\w[\w:]*)(?:\{(.*)\})? (\S+)$/gm);
  return Array.from(found, ([, name, labels = "", value]) => [name, labels, Number(value)]);
}

function sum(samples, name, label = "") {
  return samples
    .filter(([each, labels]) => each === name && labels.includes(label))
    .reduce((total, [, , value]) => total + value, 0);
}

const rate = (name, now, then, seconds, label) => (sum(now, name, label) - sum(then, name, label)) / seconds;

// The upper bound, in milliseconds, of the bucket that holds the quantile; null without requests.
function quantile(share, name, now, then) {
  const buckets = bucketsOf(name, now);
  const before = bucketsOf(name, then);
  const counts = [...buckets].map(([bound, count]) => [bound, count - (before.get(bound) ?? 0)]);
  counts.sort(([one], [other]) => one - other);
  const total = counts.at(-1)?.[1] ?? 0;
  const found = counts.find(([, count]) => count >= share * total);
  return total > 0 ? 1000 * found[0] : null;
}

function bucketsOf(name, samples) {
  const buckets = new Map();
  for (const [each, labels, value] of samples) {
    if (each !== `${name}_bucket`) continue;
    const bound = Number(labels.match(/le="([^"]+)"/)[1].replace("+Inf", "Infinity"));
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  return buckets;
}

function chart([title, unit, value]) {
  const points = [];
  const number = element("p", { className: "number", textContent: "–" });
  const { picture, line } = emptyPicture();
  byId("charts").append(element("article", { className: "card" }, element("h2", { textContent: title }), number, picture));
  const add = (latestValue) => {
    points.push(latestValue);
    points.splice(0, points.length - MOST_POINTS);
    number.textContent = latestValue === null ? "–" : written(latestValue) + unit;
    draw(line, points);
  };
  return { value, add };
}

const written = (value) => {
  if (!Number.isFinite(value)) return "more than 300000";
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
};

function emptyPicture() {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", `0 -2 ${WIDTH} ${HEIGHT + 4}`);
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("class", "chart");
  picture.setAttribute("aria-hidden", "true"); // the number above says what is now
  const floor = document.createElementNS(SVG, "line");
  for (const [name, value] of Object.entries({ x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT })) floor.setAttribute(name, value);
  const line = document.createElementNS(SVG, "polyline");
  picture.append(floor, line);
  return { picture, line };
}

// The newest point is at the right; a value that is not there is drawn on the floor.
function draw(line, points) {
  const known = points.map((value) => (Number.isFinite(value) ? value : 0));
  const top = Math.max(...known) || 1;
  const step = WIDTH / (MOST_POINTS - 1);
  const first = WIDTH - step * (points.length - 1);
  const places = known.map((value, number) => `${(first + step * number).toFixed(2)},${(HEIGHT * (1 - value / top)).toFixed(2)}`);
  line.setAttribute("points", places.join(" "));
}
