// Makes elements of what Markdown model cards and answers have: headings, tables, lists, code and paragraphs.
// All else stays as it is written; nothing in them is ever markup, and no picture is loaded.

import { copied } from "./clipboard.js";
import { element } from "./elements.js";
import { formatMessage } from "./messages.js";

const PICTURE = /^!\[.*\]\(.*\)$/;
const LINK = /\[([^\]]+)\]\([^)\s]*\)/g; // shown by its words: what a card links to is no part of the server
const CODE = /^([ \t]*```[^]*?(?:^[ \t]*```[ \t]*$|(?![^])))/m; // to its end, or to that of the text

// level: of the largest headings.
export function elementsOf(text, level) {
  return blocksOf(text).flatMap((block) => convertBlock(block, level));
}

// Shows a text that grows at the end of a place. What has not changed stays as it is, with the focus and the
// selection in it.
export class GrowingMarkdown {
  constructor(place, level) {
    this.place = place;
    this.level = level;
    this.blocks = []; // {block, elements}
  }

  show(text) {
    const blocks = blocksOf(text);
    const changed = this.blocks.findIndex(({ block }, number) => block !== blocks[number]);
    const stale = changed < 0 ? [] : this.blocks.splice(changed);
    const block = blocks[changed];
    if (block && isCode(block) && isCode(stale[0].block)) {
      const { elements } = stale.shift();
      fillCode(elements[0], block); // its button may have the focus
      this.blocks.push({ block, elements });
    }
    for (const { elements } of stale) elements.forEach((shown) => shown.remove());
    for (const added of blocks.slice(this.blocks.length)) {
      const elements = convertBlock(added, this.level);
      this.place.append(...elements);
      this.blocks.push({ block: added, elements });
    }
  }
}

// Cuts a text at empty lines, but not within code; a heading is a block of its own.
function blocksOf(text) {
  return text.split(CODE)
    .flatMap((piece) => (isCode(piece) ? [piece] : piece.replace(/^(#+ .*)$/gm, "\n$1\n").split(/\n\s*\n/)))
    .map((block) => (isCode(block) ? block : block.trim()))
    .filter((block) => block && !PICTURE.test(block));
}

const isCode = (block) => block.trimStart().startsWith("```");

// Returns the lines between the marks, without the indentation of these. The last mark may not be there yet,
// or only its beginning.
function codeOf(block) {
  const [first, ...lines] = block.split("\n");
  const indentation = first.match(/^[ \t]*/)[0];
  if (/^[ \t]*`{0,3}[ \t]*$/.test(lines.at(-1) ?? "")) lines.pop();
  return lines.map((line) => (line.startsWith(indentation) ? line.slice(indentation.length) : line)).join("\n");
}

function codeElement(block) {
  const code = element("code");
  const button = element("button", { type: "button", className: "quiet", textContent: formatMessage("common.copy") });
  button.addEventListener("click", () => copied(button, code.textContent, code));
  const bar = element("div", { className: "code-bar" }, element("span"), button);
  const place = element("div", { className: "code" }, bar, element("pre", { tabIndex: 0 }, code));
  fillCode(place, block);
  return place;
}

function fillCode(place, block) {
  place.querySelector("span").textContent = block.trimStart().match(/^```(\S*)/)[1]; // the language
  place.querySelector("code").textContent = codeOf(block);
}

function convertBlock(block, level) {
  if (isCode(block)) return [codeElement(block)];
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
