// Begins a page that holds attention within itself: it asks no server.

import { byId, element } from "../../api/page/common/elements.js";
import { Look } from "../../api/page/look/look.js";
import { Weights, unpacked } from "../../api/page/look/weights.js";

for (const views of JSON.parse(byId("data").textContent)) {
  const place = element("section", { className: "look" });
  byId("sentences").append(place);
  new Look(place).show(views.map((view) => new Weights({ ...view, weights: unpacked(view.weights) })));
}
