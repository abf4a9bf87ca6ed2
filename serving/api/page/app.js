// Begins: tabs, the key, and what the server has. Each tab has a folder of its own.

import { whenBack } from "./common/connection.js";
import { byId, withArrows } from "./common/elements.js";
import { loadLanguage } from "./common/language.js";
import { get, keepKey, shownKey } from "./common/server.js";
import { beginComparing, offerComparers } from "./compare/compare.js";
import { offerHeads } from "./translate/heads.js";
import { beginPictures, offerPictures } from "./picture/picture.js";
import { beginTranscribing, offerTranscribers } from "./transcribe/transcribe.js";
import { beginTranslating, offerTranslations, showTranslationAddress } from "./translate/translate.js";
import { beginLoad, showLoad } from "./watch/load.js";
import { beginModels, showModels } from "./watch/models.js";
import { offerParameters } from "./write/parameters.js";
import { beginWriting, offerWriters } from "./write/write.js";

const tabs = [...document.querySelectorAll("[role=tab]")];

function show(chosen) {
  for (const tab of tabs) {
    const isChosen = tab === chosen;
    tab.setAttribute("aria-selected", isChosen);
    tab.tabIndex = isChosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !isChosen;
  }
  showLoad(chosen.id === "tab-load");
}

function tabOfAddress() {
  return tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash) ?? tabs[0];
}

function beginTabs() {
  for (const tab of tabs) {
    const choose = () => {
      if (tab.getAttribute("aria-selected") === "true") return; // a click focuses it, too
      if (tab === tabs[0]) showTranslationAddress();
      else history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
      show(tab);
    };
    tab.addEventListener("click", choose);
    tab.addEventListener("focus", choose);
  }
  withArrows(document.querySelector("[role=tablist]"), "[role=tab]:not([hidden])");
  addEventListener("hashchange", () => show(tabOfAddress()));
  show(tabOfAddress());
}

function beginKey() {
  byId("key").value = shownKey();
  byId("key").addEventListener("change", () => { keepKey(byId("key").value.trim()); loadAll(); });
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    byId("key").blur();
  });
}

async function loadAll() {
  const [settings, models] = await Promise.all([get("frontend/settings").catch(() => null), showModels(), offerParameters()]);
  byId("key-form").hidden = !settings?.keyRequired;
  offerHeads(models);
  await offerTranslations(settings, models);
  offerWriters(models);
  offerComparers(models);
  offerPictures(models);
  offerTranscribers(models);
}

await loadLanguage();
beginKey();
beginTranslating();
beginWriting();
beginComparing();
beginPictures();
beginTranscribing();
beginModels();
beginLoad();
beginTabs();
byId("text").focus();
whenBack(loadAll);
loadAll();
