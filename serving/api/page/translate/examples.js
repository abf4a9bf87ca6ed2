// Offers texts to try while there is none.

import { byId, element } from "../common/elements.js";
import { exampleKind } from "./languages.js";

// Of models for general text, and of those that were trained on captions and everyday sentences.
const GENERAL = {
  en: [
    "The meeting has been moved to Thursday at 10 a.m. Could you please confirm that you will be there?",
    "Researchers have found that walking for half an hour a day lowers blood pressure within a few weeks.",
    "Press and hold the power button for five seconds to restart the device.",
  ],
  de: [
    "Die Besprechung wurde auf Donnerstag um 10 Uhr verschoben. Könnten Sie bitte bestätigen, dass Sie kommen?",
    "Forscher haben herausgefunden, dass eine halbe Stunde Gehen am Tag den Blutdruck innerhalb weniger Wochen senkt.",
    "Halten Sie die Einschalttaste fünf Sekunden lang gedrückt, um das Gerät neu zu starten.",
  ],
  es: [
    "La reunión se ha aplazado al jueves a las 10. ¿Podría confirmar que asistirá?",
    "Los investigadores han descubierto que caminar media hora al día reduce la tensión en pocas semanas.",
    "Mantenga pulsado el botón de encendido durante cinco segundos para reiniciar el dispositivo.",
  ],
  fr: [
    "La réunion a été reportée à jeudi à 10 heures. Pourriez-vous confirmer votre présence ?",
    "Des chercheurs ont constaté qu’une demi-heure de marche par jour fait baisser la tension en quelques semaines.",
    "Maintenez le bouton d’alimentation enfoncé pendant cinq secondes pour redémarrer l’appareil.",
  ],
  pt: [
    "A reunião foi adiada para quinta-feira às 10 horas. Poderia confirmar a sua presença?",
    "Os investigadores descobriram que caminhar meia hora por dia reduz a tensão em poucas semanas.",
    "Prima o botão de ligar durante cinco segundos para reiniciar o dispositivo.",
  ],
};
const EVERYDAY = {
  en: ["A dog runs through the snow.", "Two children are playing in the park.", "Where is the nearest train station?"],
  de: ["Ein Hund rennt durch den Schnee.", "Zwei Kinder spielen im Park.", "Wo ist der nächste Bahnhof?"],
  es: ["Un perro corre por la nieve.", "Dos niños juegan en el parque.", "¿Dónde está la estación de tren más cercana?"],
  fr: ["Un chien court dans la neige.", "Deux enfants jouent dans le parc.", "Où est la gare la plus proche ?"],
  pt: ["Um cão corre pela neve.", "Duas crianças brincam no parque.", "Onde fica a estação de comboios mais próxima?"],
};

// choose: called with the text that somebody clicks.
export function offerExamples(choose) {
  const kind = exampleKind();
  const texts = (kind?.isGeneral ? GENERAL : EVERYDAY)[kind?.language] ?? [];
  byId("examples").replaceChildren(...texts.map((text) => {
    const button = element("button", { type: "button", lang: kind.language, textContent: text, title: text });
    button.addEventListener("click", () => choose(text));
    return button;
  }));
}
