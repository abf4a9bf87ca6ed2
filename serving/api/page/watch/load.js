// Draws what the server has to do, and how long it takes, from its metrics. The server keeps those
// of the last two minutes.

import { byId } from "../common/elements.js";
import { formatMessage, formatPercent } from "../common/messages.js";
import { get, getText, showingErrors } from "../common/server.js";
import { offerSnippet } from "../common/snippets.js";
import { Chart } from "./chart.js";
import { quantile, rate, samplesOf, sum } from "./metrics.js";

const SECONDS = 2;
const FAILED = ["refused", "limited", "overloaded", "expired", "failed"];

const times = (name) => [
  [formatMessage("load.half-within"), "load.milliseconds", (readings) => quantile(0.5, readings, name)],
  [formatMessage("load.most-within", { share: formatPercent(0.95) }), "load.milliseconds", (readings) => quantile(0.95, readings, name)],
];

// Returns of each chart its lines: name, the message of a value with its unit, and the value between two
// readings of the metrics.
const describeCharts = () => ({
  "load.requests": [
    [formatMessage("load.per-second"), null, (readings) => rate(readings, "attendant_requests_total")],
  ],
  "load.in-progress": [
    [formatMessage("load.running"), null, ({ now }) => sum(now, "attendant_requests_running")],
    [formatMessage("load.waiting"), null, ({ now }) => sum(now, "vllm:num_requests_waiting")],
  ],
  "load.tokens": [
    [formatMessage("load.per-second"), null, (readings) => rate(readings, "vllm:generation_tokens_total")],
  ],
  "load.request-time": times("attendant_request_seconds"),
  "load.first-token-time": times("vllm:time_to_first_token_seconds"),
  "load.failed": [
    [formatMessage("load.per-second"), null, (readings) => FAILED
      .map((outcome) => rate(readings, "attendant_requests_total", `outcome="${outcome}"`))
      .reduce((one, other) => one + other)],
  ],
});

let timer = null;
let latest = null;
let charts = [];

export function beginLoad() {
  charts = Object.entries(describeCharts()).map(([key, lines]) => new Chart(byId("charts"), formatMessage(key), lines));
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
  for (const { seconds_ago: ago, metrics } of readings ?? []) add(metrics, now - ago);
  latest = null; // what comes next also counts processes that have ended
  read();
}

async function read() {
  if (document.hidden) return;
  const text = await showingErrors(byId("load-error"), () => getText("metrics"));
  if (text !== undefined) add(text, performance.now() / 1000);
}

// at: seconds of this page's clock.
function add(text, at) {
  const now = { samples: samplesOf(text), at };
  if (latest) {
    const readings = { now: now.samples, then: latest.samples, seconds: at - latest.at };
    for (const chart of charts) chart.add(readings, at);
  }
  latest = now;
}
