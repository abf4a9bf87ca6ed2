// Draws what the server has to do, and how long it takes, from its metrics. The server keeps those
// of the last two minutes.

import { byId } from "../common/elements.js";
import { formatMessage, formatPercent } from "../common/messages.js";
import { get, getText, showingErrors } from "../common/server.js";
import { offerSnippet } from "../common/snippets.js";
import { Chart } from "./chart.js";
import { quantile, rate, samplesOf, samplesOfLiving, sum } from "./metrics.js";
import { formatCount, formatRate, formatSeconds } from "./units.js";

const SECONDS = 2;
const FAILED = ["refused", "limited", "overloaded", "expired", "failed"];

// How readings of a kind are written, and the least end of their scale.
const RATES = { describe: formatRate, atLeast: 1 };
const COUNTS = { describe: formatCount, atLeast: 2 };
const TIMES = { describe: formatSeconds, atLeast: 0.1 };

const quantiles = (name) => [
  [formatMessage("load.half-within"), (readings) => quantile(0.5, readings, name)],
  [formatMessage("load.most-within", { share: formatPercent(0.95) }), (readings) => quantile(0.95, readings, name)],
];

const failures = (readings) => FAILED
  .map((outcome) => rate(readings, "attendant_requests_total", `outcome="${outcome}"`))
  .reduce((one, other) => one + other);

// Returns of each chart the key of its messages, and how it is drawn. A line is a name and the value between
// two readings of the metrics.
const describeCharts = () => ({
  "load.requests": { ...RATES, lines: [[formatMessage("load.latest"), (readings) => rate(readings, "attendant_requests_total")]] },
  "load.in-progress": {
    ...COUNTS,
    lines: [
      [formatMessage("load.running"), ({ now }) => sum(now, "attendant_requests_running")],
      [formatMessage("load.waiting"), ({ now }) => sum(now, "vllm:num_requests_waiting")],
    ],
  },
  "load.tokens": { ...RATES, lines: [[formatMessage("load.latest"), (readings) => rate(readings, "vllm:generation_tokens_total")]] },
  "load.request-time": { ...TIMES, lines: quantiles("attendant_request_seconds") },
  "load.first-token-time": { ...TIMES, lines: quantiles("vllm:time_to_first_token_seconds") },
  "load.failed": { ...RATES, lines: [[formatMessage("load.latest"), failures]] },
});

let timer = null;
let latest = null; // {samples, at}
let isOfLiving = false; // whether `latest` is one of the server's recent readings: they leave out processes that have ended
let charts = [];

export function beginLoad() {
  charts = Object.entries(describeCharts()).map(([key, chart]) =>
    new Chart(byId("charts"), { title: formatMessage(key), about: formatMessage(`${key}.about`), ...chart }));
  offerSnippet(byId("load"), formatMessage("load.snippet"), () => ({ path: "metrics" }));
}

export async function showLoad(isShown) {
  clearInterval(timer);
  if (!isShown) return;
  timer = setInterval(read, SECONDS * 1000);
  const readings = await showingErrors(byId("load-error"), () => get("metrics/recent"));
  const now = performance.now() / 1000;
  latest = null;
  for (const chart of charts) chart.clear();
  for (const { seconds_ago: ago, metrics } of readings ?? []) add({ samples: samplesOf(metrics), at: now - ago });
  isOfLiving = latest !== null;
  read();
}

async function read() {
  if (document.hidden) return;
  const text = await showingErrors(byId("load-error"), () => getText("metrics"));
  if (text === undefined) return;
  const reading = { samples: samplesOf(text), at: performance.now() / 1000 };
  add(isOfLiving ? { ...reading, samples: samplesOfLiving(reading.samples) } : reading);
  [latest, isOfLiving] = [reading, false];
}

// at: seconds of this page's clock.
function add({ samples, at }) {
  if (latest) {
    const readings = { now: samples, then: latest.samples, seconds: at - latest.at };
    for (const chart of charts) chart.add(readings, at);
  }
  latest = { samples, at };
}
