// Keeps what matters in view within a box that scrolls.

// Follows what is added to a box that was scrolled to its end.
export function keepAtEnd(box, add) {
  const wasAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  add();
  if (wasAtEnd) box.scrollTop = box.scrollHeight;
}

// Scrolls a positioned box, and not the page, to one of its descendants that is out of view.
export function scrollTo(box, part) {
  if (part.offsetTop < box.scrollTop || part.offsetTop + part.offsetHeight > box.scrollTop + box.clientHeight) {
    box.scrollTop = part.offsetTop - box.clientHeight / 2;
  }
}
