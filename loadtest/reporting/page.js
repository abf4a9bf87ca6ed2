// Shows, for the point nearest to the pointer, what each curve of a plot is there.
for (const area of document.querySelectorAll("[data-plot]")) {
  const plot = JSON.parse(area.dataset.plot);
  let guide, tip;
  const write = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
  const nearest = (curve, at) => {
    let best = 0;
    curve.at.forEach((each, i) => {
      if (Math.abs(each - at) < Math.abs(curve.at[best] - at)) best = i;
    });
    return best;
  };
  const leave = () => {
    guide?.remove();
    tip?.remove();
    guide = tip = undefined;
  };
  const element = (parent, name, text, kind) => {
    const made = parent.appendChild(document.createElement(name));
    made.textContent = text;
    made.className = kind;
    return made;
  };
  area.addEventListener("pointermove", (event) => {
    leave();
    const room = area.getBoundingClientRect();
    const at = (event.clientX - room.left) / room.width;
    const curves = plot.curves.filter((curve) => curve.at.length);
    if (!curves.length) return;
    const [first] = [...curves].sort(
      (a, b) => Math.abs(a.at[nearest(a, at)] - at) - Math.abs(b.at[nearest(b, at)] - at));
    const i = nearest(first, at);
    guide = element(area, "div", "", "guide");
    guide.style.left = `${first.at[i] * 100}%`;
    tip = element(area, "div", "", "tip");
    element(tip, "b", `${write(first.x[i])} ${plot.x}`, "");
    for (const curve of curves) {
      const j = nearest(curve, first.at[i]);
      if (Math.abs(curve.at[j] - first.at[i]) > 0.03) continue;
      const line = element(tip, "div", "", "");
      element(line, "i", "", curve.role);
      const label = curve.labels[j] ? `, ${curve.labels[j]}` : "";
      line.append(`${curve.name}${label}: ${write(curve.y[j])} ${plot.y}`);
    }
    const left = first.at[i] * room.width;
    tip.style.left = `${Math.max(0, Math.min(room.width - tip.offsetWidth, left + (at > 0.5 ? -tip.offsetWidth - 10 : 10)))}px`;
    tip.style.top = "8px";
  });
  area.addEventListener("pointerleave", leave);
}
