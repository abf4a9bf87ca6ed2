// Tells when the server is gone, and when it is back.

import { byId } from "./elements.js";
import { formatMessage } from "./messages.js";

const MILLISECONDS = 2000;
const SHOWN_MILLISECONDS = 3000;

const listeners = [];
let isLost = false;

export const whenBack = (work) => listeners.push(work);

// Waits for the server, once however many requests have failed; what has failed then goes on.
export async function lost() {
  if (isLost) return;
  isLost = true;
  byId("connection").textContent = formatMessage("server.retrying");
  do await pause(MILLISECONDS); while (!(await isReady()));
  isLost = false;
  byId("connection").textContent = formatMessage("server.back");
  for (const work of listeners) work();
  await pause(SHOWN_MILLISECONDS);
  if (!isLost) byId("connection").textContent = "";
}

const isReady = () => fetch("ready").then((response) => response.ok, () => false);

const pause = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });
