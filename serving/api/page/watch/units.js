// Writes readings in the unit that people would say them in.

import { formatMessage, formatNumber } from "../common/messages.js";

const SECOND = 1;
const MINUTE = 60;

// seconds: below a second in milliseconds, from two minutes on in minutes.
export function formatSeconds(seconds) {
  if (seconds < SECOND) return formatMessage("load.milliseconds", { value: rounded(1000 * seconds) });
  if (seconds < 2 * MINUTE) return formatMessage("load.seconds", { value: rounded(seconds) });
  return formatMessage("load.minutes", { value: rounded(seconds / MINUTE) });
}

export const formatRate = (value) => formatMessage("load.rate", { value: rounded(value) });

export const formatCount = (value) => rounded(value);

const rounded = (value) => formatNumber(value, { maximumFractionDigits: value < 10 ? 1 : 0 });
