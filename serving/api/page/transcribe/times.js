// Writes times of a recording.

// Returns 1:05, or 1:02:05 from an hour on.
export function formatClock(seconds) {
  const [hours, minutes, rest] = units(Math.floor(seconds), 1);
  const shown = [...(hours ? [hours, pad(minutes)] : [minutes]), pad(rest)];
  return shown.join(":");
}

// Returns 00:01:05,250 with a comma as the separator, as in subtitles.
export function formatTimestamp(seconds, separator) {
  const milliseconds = Math.round(seconds * 1000);
  return units(milliseconds, 1000).map((unit) => pad(unit)).join(":") + separator + pad(milliseconds % 1000, 3);
}

// Returns hours, minutes and seconds.
const units = (time, second) => [time / (3600 * second), (time / (60 * second)) % 60, (time / second) % 60].map(Math.floor);

const pad = (number, length = 2) => String(number).padStart(length, "0");
