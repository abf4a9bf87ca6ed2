// Names models where they are chosen, and says of what texts they were made.

import { formatMessage } from "./messages.js";

const SMALL_BYTES = 200_000_000;

export const isGeneral = ({ domain }) => !domain;

export const modelTitle = (model) => (isGeneral(model) ? model.id : `${model.id} (${describeTraining(model)})`);

export function describeTraining({ domain, size_bytes: size }) {
  return formatMessage(size && size < SMALL_BYTES ? "common.model.small" : "common.model.trained", { domain });
}
