// Plays the recording.

import { byId } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";

const AFTER_ANY_END = 1e9; // seconds

// changed: is called while the recording is played, and when somebody goes elsewhere in it.
export function beginPlaying(changed) {
  const player = byId("player");
  const follow = () => {
    changed();
    if (!player.paused) requestAnimationFrame(follow);
  };
  player.addEventListener("play", follow);
  for (const name of ["pause", "seeked"]) player.addEventListener(name, changed);
  player.addEventListener("loadedmetadata", findEnd);
  player.addEventListener("error", () => {
    player.classList.add("invisible");
    byId("player-status").textContent = formatMessage("transcribe.not-played");
  });
}

export function load(file) {
  const player = byId("player");
  URL.revokeObjectURL(player.src);
  player.src = URL.createObjectURL(file);
  player.classList.remove("invisible");
  byId("player-status").textContent = "";
}

export const position = () => byId("player").currentTime;

export const isPlaying = () => !byId("player").paused;

// Returns the seconds of the recording; 0 while they are not known.
export function length() {
  const { duration } = byId("player");
  return Number.isFinite(duration) ? duration : 0;
}

export function playFrom(seconds) {
  goTo(seconds);
  byId("player").play().catch(() => {}); // it cannot be played: `error` has said so
}

export function goTo(seconds) {
  byId("player").currentTime = seconds;
}

// A recording of a microphone does not say how long it is: a browser finds out, and can go to any
// place, once it has gone to the end.
function findEnd({ target: player }) {
  if (player.duration !== Infinity) return;
  player.addEventListener("durationchange", () => { player.currentTime = 0; }, { once: true });
  player.currentTime = AFTER_ANY_END;
}
