// Makes elements of what Markdown model cards and answers have: headings, tables, lists, code and paragraphs.
// All else stays as it is written; nothing in them is ever markup, and no picture is loaded.

import { element } from "./elements.js";

const PICTURE = /^!\[.*\]\(.*\)$/;
const LINK = /\[([^\]]+)\]\([^)\s]*\)/g; // shown by its words: what a card links to is no part of the server

// level: of the largest headings.
export function elementsOf(text, level) {
  return blocksOf(text).flatMap((block) => convertBlock(block, level));
}

// Cuts a text at empty lines, but not within code; a heading is a block of its own.
function blocksOf(text) {
  const pieces = text.split(/^(```[^]*?^```)$/m);
  return pieces.flatMap((piece) => (piece.startsWith("```") ? [piece] : piece.replace(/^(#+ .*)$/gm, "\n$1\n").split(/\n\s*\n/)))
    .map((block) => block.trim())
    .filter((block) => block && !PICTURE.test(block));
}

function convertBlock(block, level) {
  if (block.startsWith("```")) return [element("pre", { textContent: block.split("\n").slice(1, -1).join("\n") })];
  const heading = block.match(/^(#+) (.*)$/);
  if (heading) return [element(`h${Math.min(heading[1].length - 1 + level, 6)}`, { textContent: heading[2] })];
  const lines = block.split("\n");
  const isTable = /^\|?[\s:|-]+$/.test(lines[1] ?? "") && lines[1].includes("-");
  if (isTable) return [tableOf(lines)];
  if (lines.every((line) => /^([-*] |\s)/.test(line))) return [listOf(block)];
  return [element("p", {}, ...inline(lines.join(" ")))];
}

function listOf(block) {
  const items = block.split(/^[-*] /m).filter((item) => item.trim());
  return element("ul", {}, ...items.map((item) => element("li", {}, ...inline(item.replace(/\s+/g, " ")))));
}

function tableOf([head, , ...rows]) {
  const line = (text, name, properties) =>
    element("tr", {}, ...text.replace(/^\||\|$/g, "").split("|").map((cell) => element(name, properties, ...inline(cell.trim()))));
  const table = element("table", {},
    element("thead", {}, line(head, "th", { scope: "col" })), element("tbody", {}, ...rows.map((row) => line(row, "td", {}))));
  return element("div", { className: "wide", tabIndex: 0 }, table);
}

const inline = (text) => text.replace(LINK, "$1").split(/`([^`]+)`/).map((part, number) =>
  (number % 2 ? element("code", { textContent: part }) : part.replace(/\*\*(.+?)\*\*/g, "$1")));
