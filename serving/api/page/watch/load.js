// Draws what the server has to do, and how long it takes, from its metrics. The server keeps those
// of the last two minutes.

import { byId } from "../common/elements.js";
import { get, getText, showingErrors } from "../common/server.js";
import { offerSnippet } from "../common/snippets.js";
import { Chart } from "./chart.js";
import { quantile, rate, samplesOf, sum } from "./metrics.js";

const SECONDS = 2;
const FAILED = ["refused", "limited", "overloaded", "expired", "failed"];

const times = (name) => [
  ["half within", " ms", (readings) => quantile(0.5, readings, name)],
  ["95 % within", " ms", (readings) => quantile(0.95, readings, name)],
];

// Of each chart its lines: name, unit, and the value between two readings of the metrics.
const CHARTS = {
  "Requests": [
    ["a second", "", (readings) => rate(readings, "attendant_requests_total")],
  ],
  "Requests in progress": [
    ["running", "", ({ now }) => sum(now, "attendant_requests_running")],
    ["waiting", "", ({ now }) => sum(now, "vllm:num_requests_waiting")],
  ],
  "Tokens written": [
    ["a second", "", (readings) => rate(readings, "vllm:generation_tokens_total")],
  ],
  "Time of a request": times("attendant_request_seconds"),
  "Time to the first token": times("vllm:time_to_first_token_seconds"),
  "Refused or failed": [
    ["a second", "", (readings) => FAILED
      .map((outcome) => rate(readings, "attendant_requests_total", `outcome="${outcome}"`))
      .reduce((one, other) => one + other)],
  ],
};

let timer = null;
let latest = null;
let charts = [];

export function beginLoad() {
  charts = Object.entries(CHARTS).map(([title, lines]) => new Chart(byId("charts"), title, lines));
  offerSnippet(byId("load"), "Read the metrics from a program", () => ({ path: "metrics" }));
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
