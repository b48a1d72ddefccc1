// A small, safe renderer: Markdown in, DOM nodes out. It builds nodes one by one and never parses
// HTML, so nothing in a text can become an element, an attribute or a script of its own. Tags in
// the text stay text. Images are shown as links: a page must not call other hosts by itself.
//
// Every text node remembers where it stands in the source (`sourceOf`), so that ranges of the
// answer can be marked after rendering.

export { blocksOf } from "./ragchat-blocks.js";

const sources = new WeakMap();

/** Returns the UTF-16 index in the Markdown at which a text node begins. */
export function sourceOf(node) {
  return sources.get(node);
}

const DEEPEST = 12;
const FARTHEST = 2000; // how far the end of a link, emphasis or code is looked for
const SAFE = new Set(["http:", "https:", "mailto:"]);

/** Returns the address if a link may lead there, else null. */
export function safeAddress(address) {
  if (/[\u0000-\u0020\u007f-\u00a0\u202a-\u202e\u2066-\u2069]/u.test(address)) return null;
  try {
    const url = new URL(address); // without a base: a relative address leads nowhere
    return SAFE.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** Creates an element; attributes with a value of false or null are left out. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/**
 * Renders one block.
 *
 * `chips.at(index)` returns {end, node} where a citation begins at that index of the Markdown.
 */
export function renderBlock(block, chips) {
  switch (block.kind) {
    case "code": {
      const text = block.body.map((line) => line.text).join("\n");
      const code = element("code", {}, text);
      return element("pre", { tabindex: "0", "data-language": block.language || null }, code);
    }
    case "heading":
      // The page's own headings stand above those of an answer.
      return element(`h${Math.min(block.level + 2, 6)}`, { dir: "auto" }, inline(block.body, chips));
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, ...block.blocks.map((inner) => renderBlock(inner, chips)));
    case "list": {
      const start = block.ordered && block.start !== 1 ? String(block.start) : null;
      const items = block.items.map((inner) => item(inner, block.loose, chips));
      return element(block.ordered ? "ol" : "ul", { start }, ...items);
    }
    case "table":
      return renderTable(block, chips);
    default:
      return element("p", { dir: "auto" }, inline(block.body, chips));
  }
}

function item(inner, loose, chips) {
  const made = element("li", { dir: "auto" });
  for (const block of inner) {
    const tight = block.kind === "paragraph" && !loose;
    made.append(tight ? inline(block.body, chips) : renderBlock(block, chips));
  }
  return made;
}

function renderTable({ aligned, head, rows }, chips) {
  const row = (name, cellsOfRow) =>
    element(
      "tr",
      {},
      ...aligned.map((align, i) => {
        const scope = name === "th" ? "col" : null;
        const content = cellsOfRow[i] ? inline([cellsOfRow[i]], chips) : "";
        return element(name, { class: align, scope, dir: "auto" }, content);
      }),
    );
  const made = element("table", {}, element("thead", {}, row("th", head)));
  made.append(element("tbody", {}, ...rows.map((one) => row("td", one))));
  return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, made);
}

// Inline content. `Cursor` is the joined text of a block's lines with the place of each character.

class Cursor {
  constructor(lines) {
    this.text = lines.map((line) => line.text).join("\n");
    this.starts = [];
    this.line = 0;
    let position = 0;
    for (const line of lines) {
      this.starts.push([position, line.at]);
      position += line.text.length + 1;
    }
  }

  source(position) {
    // It is asked for places in order, nearly always.
    if (this.starts[this.line][0] > position) this.line = 0;
    while (this.starts[this.line + 1]?.[0] <= position) this.line += 1;
    const [begin, at] = this.starts[this.line];
    return at + position - begin;
  }
}

function inline(lines, chips) {
  const made = document.createDocumentFragment();
  const cursor = new Cursor(lines);
  run(cursor, 0, cursor.text.length, chips, made, 0);
  return made;
}

const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;
const BARE = /^https?:\/\/[^\s<>"'`|\\^{}]+/i;

/** Renders cursor.text from `from` to `to` into a parent. */
function run(cursor, from, to, chips, parent, depth) {
  const { text } = cursor;
  const failed = {};
  let pending = from;
  let at = from;
  const flush = (end) => {
    for (let start = pending; start < end; ) {
      const line = text.indexOf("\n", start);
      const stop = line < 0 || line >= end ? end : line + 1;
      const node = document.createTextNode(text.slice(start, stop));
      sources.set(node, cursor.source(start));
      parent.append(node);
      start = stop;
    }
    pending = end;
  };
  const put = (node, end) => {
    flush(at);
    if (node) parent.append(node);
    pending = at = end;
  };
  while (at < to) {
    const chip = chips.at(cursor.source(at));
    const character = text[at];
    if (chip) {
      const length = chip.end - cursor.source(at);
      // A chip belongs to the sentence before it.
      if (text[at - 1] === " " && pending < at && !chip.loud) {
        at -= 1;
        put(chip.node, at + 1 + length);
      } else put(chip.node, at + length);
      continue;
    }
    if (character === "\\" && at + 1 < to) {
      if (text[at + 1] === "\n") put(element("br"), at + 2);
      else if (PUNCTUATION.test(text[at + 1])) {
        put(null, at + 1);
        at += 1;
      } else at += 1;
      continue;
    }
    if (character === "`") {
      const mark = /^`+/.exec(text.slice(at, to))[0];
      const close = closingRun(text, at + mark.length, to, mark);
      if (close >= 0) {
        const inside = text.slice(at + mark.length, close).replaceAll("\n", " ");
        const bare = /^ .*[^ ].* $/.test(inside) ? inside.slice(1, -1) : inside;
        put(element("code", {}, bare), close + mark.length);
      } else at += mark.length;
      continue;
    }
    if (character === " " && text[at - 1] !== " " && /^ {2,}\n/.test(text.slice(at, to))) {
      put(element("br"), text.indexOf("\n", at) + 1);
      continue;
    }
    if (depth < DEEPEST) {
      const found =
        (character === "*" || character === "_" || character === "~") &&
        emphasis(text, at, to, failed);
      if (found) {
        const { name, width, close } = found;
        const inner = element(name);
        run(cursor, at + width, close, chips, inner, depth + 1);
        put(inner, close + width);
        continue;
      }
      const linked =
        character === "[" || (character === "!" && text[at + 1] === "[")
          ? link(text, at + (character === "!" ? 1 : 0), to)
          : null;
      if (linked) {
        const anchor = anchorTo(linked.address);
        const target = anchor ?? document.createDocumentFragment();
        run(cursor, linked.from, linked.close, NO_CHIPS, target, DEEPEST);
        put(target, linked.end);
        continue;
      }
    }
    const before = text[at - 1] ?? " ";
    if ((character === "h" || character === "H") && depth < DEEPEST && !WORD.test(before)) {
      const bare = BARE.exec(text.slice(at, to))?.[0].replace(/[.,;:!?)\]*_~]+$/, "");
      const anchor = bare && anchorTo(bare);
      if (anchor) {
        anchor.append(bare);
        put(anchor, at + bare.length);
        continue;
      }
    }
    at += 1;
  }
  flush(to);
}

/** For text without citations. */
export const NO_CHIPS = { at: () => null };

function closingRun(text, from, limit, mark) {
  const to = Math.min(limit, from + FARTHEST);
  for (let at = text.indexOf(mark, from); at >= 0 && at + mark.length <= to; ) {
    let end = at;
    while (text[end] === "`") end += 1;
    if (end - at === mark.length) return at;
    at = text.indexOf(mark, end);
  }
  return -1;
}

/**
 * Finds the end of emphasis that begins here: a run of marks closes with a run of the same.
 *
 * `failed` remembers how far there is none, so that many openings cost no more than one.
 */
function emphasis(text, at, limit, failed) {
  const mark = text[at];
  const width = text[at + 1] === mark ? 2 : 1;
  if (mark === "~" && width < 2) return null;
  const [before, after] = [text[at - 1] ?? " ", text[at + width] ?? " "];
  if (/\s/.test(after) || (mark === "_" && WORD.test(before))) return null;
  const wanted = mark.repeat(width);
  const to = Math.min(limit, at + FARTHEST);
  const from = Math.max(at + width + 1, failed[wanted] ?? 0);
  for (let close = text.indexOf(wanted, from); close >= 0 && close + width <= to; ) {
    const [left, right] = [text[close - 1], text[close + width] ?? " "];
    const longer = right === mark || (width === 1 && left === mark);
    const inWord = mark === "_" && WORD.test(right);
    if (!/\s/.test(left) && left !== "\\" && !inWord && !longer) {
      return { name: mark === "~" ? "del" : width === 2 ? "strong" : "em", width, close };
    }
    close = text.indexOf(wanted, close + (longer ? width + 1 : 1));
  }
  failed[wanted] = Math.max(failed[wanted] ?? 0, to - width);
  return null;
}

/** Reads `[words](address)` or `[words](address "title")`. */
function link(text, at, to) {
  let depth = 0;
  const farthest = Math.min(to, at + FARTHEST);
  const near = text.indexOf("]", at);
  if (near < 0 || near >= farthest) return null;
  for (let i = at; i < farthest; i += 1) {
    if (text[i] === "\\") i += 1;
    else if (text[i] === "[") depth += 1;
    else if (text[i] === "]" && (depth -= 1) === 0) {
      const rest = /^\(\s*<?((?:[^\s()<>]|\([^\s()<>]*\))*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(
        text.slice(i + 1, Math.min(to, i + FARTHEST)),
      );
      return rest && { address: rest[1], from: at + 1, close: i, end: i + 1 + rest[0].length };
    }
  }
  return null;
}

function anchorTo(address) {
  const href = safeAddress(address);
  return href && element("a", { href, rel: "noopener noreferrer nofollow", target: "_blank" });
}
