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

// A second, between two readings.
export const rate = ({ now, then, seconds }, name, label) => (sum(now, name, label) - sum(then, name, label)) / seconds;

// The upper bound, in milliseconds, of the bucket that holds the quantile; null without requests.
export function quantile(share, { now, then }, name) {
  const buckets = bucketsOf(name, now);
  const before = bucketsOf(name, then);
  const counts = [...buckets].map(([bound, count]) => [bound, count - (before.get(bound) ?? 0)]);
  counts.sort(([one], [other]) => one - other);
  const total = counts.at(-1)?.[1] ?? 0;
  const bucket = counts.find(([, count]) => count >= share * total);
  return total > 0 ? 1000 * bucket[0] : null;
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
