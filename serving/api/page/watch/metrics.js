// Reads Prometheus' text format: [name, labels, value] of each sample.

export function samplesOf(text) {
  const matches = text.matchAll(/^(\w[\w:]*)(?:\{(.*)\})? (\S+)$/gm);
  return Array.from(matches, ([, name, labels = "", value]) => [name, labels, Number(value)]);
}

export function sum(samples, name, label = "") {
  return samples
    .filter(([sample, labels]) => sample === name && labels.includes(label))
    .reduce((total, [, , value]) => total + value, 0);
}

// Returns the samples of processes that still run: of those that have ended no gauges are left.
export function samplesOfLiving(samples) {
  const living = new Set(samples.filter(([name]) => name === "vllm:num_requests_waiting").map(([, labels]) => replicaOf(labels)));
  return samples.filter(([, labels]) => living.has(replicaOf(labels)));
}

const replicaOf = (labels) => labels.match(/(?:replica|engine)="([^"]*)"/)?.[1]; // vLLM's names have the second

// A second, between two readings; a process that has ended in between takes its count away.
export const rate = ({ now, then, seconds }, name, label) => Math.max(0, (sum(now, name, label) - sum(then, name, label)) / seconds);

// Returns the quantile as Prometheus' histogram_quantile estimates it: values are taken to be spread evenly
// within their bucket, and those of the last bucket to be at its lower bound. null without requests.
export function quantile(share, { now, then }, name) {
  const before = bucketsOf(name, then);
  const buckets = [...bucketsOf(name, now)].map(([bound, count]) => ({ bound, count: count - (before.get(bound) ?? 0) }));
  buckets.sort((one, other) => one.bound - other.bound);
  const rank = share * (buckets.at(-1)?.count ?? 0);
  if (rank <= 0) return null;
  const place = buckets.findIndex(({ count }) => count >= rank);
  const [lower, bucket] = [buckets[place - 1] ?? { bound: 0, count: 0 }, buckets[place]];
  if (bucket.bound === Infinity) return lower.bound;
  return lower.bound + (bucket.bound - lower.bound) * ((rank - lower.count) / (bucket.count - lower.count));
}

function bucketsOf(name, samples) {
  const buckets = new Map();
  for (const [sample, labels, value] of samples) {
    if (sample !== `${name}_bucket`) continue;
    const bound = Number(labels.match(/le="([^"]+)"/)[1].replace("+Inf", "Infinity"));
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  return buckets;
}
