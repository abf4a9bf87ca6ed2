// Translates documents that are dropped or chosen.

import { byId, element } from "./elements.js";
import { postForm, Refused } from "./server.js";

// languages: tells source, target and model as they are chosen now.
export function beginDocuments(languages) {
  const drop = byId("drop");
  const translate = (files) => { for (const file of files) translateOne(file, languages()); };
  byId("file").addEventListener("change", (event) => {
    translate(event.target.files);
    event.target.value = "";
  });
  for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault());
  drop.addEventListener("dragover", () => drop.classList.add("over"));
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => translate(event.dataTransfer.files));
}

export function offerFormats(formats) {
  byId("formats").textContent = formats.join(" ");
  byId("file").accept = formats.join(",");
}

async function translateOne(file, { source, target, model }) {
  const line = element("li", { textContent: `${file.name}: being translated …` });
  byId("documents").prepend(line);
  const form = new FormData();
  for (const [name, value] of Object.entries({ source, target, model })) if (value) form.append(name, value);
  form.append("file", file);
  try {
    const { translatedFileUrl } = await postForm("translate_file", form);
    line.replaceChildren(`${file.name}: `, link(translatedFileUrl, file.name, target));
  } catch (error) {
    const said = error instanceof Refused ? error.message : "could not be sent";
    line.replaceChildren(`${file.name}: `, element("span", { className: "error", textContent: said }));
  }
}

// The server may know itself by another address than this page does: only the name counts.
function link(url, name, target) {
  const href = `download_file/${new URL(url).pathname.split("/").pop()}`;
  return element("a", { href, download: `${target}-${name}`, textContent: `the translation into ${target}` });
}
