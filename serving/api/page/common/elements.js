// Makes elements. Text is only ever set as text, so nothing that a server or a user says is markup.

export const byId = (id) => document.getElementById(id);

export function element(name, properties = {}, ...children) {
  const created = Object.assign(document.createElement(name), properties);
  created.append(...children);
  return created;
}

export function fillSelect(select, options) {
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, textContent]) => element("option", { value, textContent })));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

// One stop for the tab key; arrows move among the elements, as in a toolbar.
export function withArrows(container, selector) {
  container.addEventListener("keydown", (event) => {
    const all = [...container.querySelectorAll(selector)];
    const place = all.indexOf(event.target.closest(selector));
    const next = placeAfter(event.key, place, all.length);
    if (place < 0 || next === null) return;
    event.preventDefault();
    all.forEach((each, number) => { each.tabIndex = number === next ? 0 : -1; });
    all[next].focus();
  });
}

function placeAfter(key, place, length) {
  switch (key) {
    case "ArrowRight": case "ArrowDown": return (place + 1) % length;
    case "ArrowLeft": case "ArrowUp": return (place + length - 1) % length;
    case "Home": return 0;
    case "End": return length - 1;
    default: return null;
  }
}
