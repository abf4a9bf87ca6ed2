// Starts a page that contains its attention weights; it asks no server.

import { byId, element } from "../../api/page/common/elements.js";
import { setMessages } from "../../api/page/common/messages.js";
import { AttentionView } from "../../api/page/attention/view.js";
import { Weights, unpacked } from "../../api/page/attention/weights.js";

setMessages(document.documentElement.lang, JSON.parse(byId("messages").textContent));
for (const views of JSON.parse(byId("data").textContent)) {
  const place = element("section", { className: "attention-view" });
  byId("sentences").append(place);
  new AttentionView(place).show(views.map((view) => new Weights({ ...view, weights: unpacked(view.weights) })));
}
