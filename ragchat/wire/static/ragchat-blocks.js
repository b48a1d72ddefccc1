// Markdown as blocks: paragraphs, headings, lists, quotes, code, tables, rules. No DOM in here.
// Nothing in it takes more than linear time, whatever the text is.

/** Lines with their places: {text, at}. */
function linesOf(markdown) {
  const lines = [];
  for (let at = 0; at <= markdown.length; ) {
    const end = markdown.indexOf("\n", at);
    const stop = end < 0 ? markdown.length : end;
    lines.push({ text: markdown.slice(at, stop).replace(/\r$/, ""), at });
    at = stop + 1;
  }
  return lines;
}

const cut = (line, count) => ({ text: line.text.slice(count), at: line.at + count });
const blank = (line) => !line.text.trim();
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const QUOTE = /^ {0,3}> ?/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const WIDEST_DIVIDER = 1000;
const DEEPEST = 12;

/** Says whether a line divides a table's head from its rows; a long one would take too long. */
function isDivider(line) {
  return line !== undefined && line.text.length <= WIDEST_DIVIDER && DIVIDER.test(line.text);
}

/** Splits lines into blocks: {kind, lines, …}; each covers whole lines. */
export function blocksOf(markdown) {
  return blocks(linesOf(markdown), 0);
}

function blocks(lines, depth) {
  const found = [];
  for (let i = 0; i < lines.length; ) {
    const line = lines[i];
    const begin = i;
    let block = null;
    let match;
    if (blank(line)) {
      i += 1;
      continue;
    }
    if ((match = FENCE.exec(line.text))) {
      const [, mark, words] = match;
      const closing = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}[ \\t]*$`);
      i += 1;
      while (i < lines.length && !closing.test(lines[i].text)) i += 1;
      const language = words.trim().split(/\s/, 1)[0];
      block = { kind: "code", language, body: lines.slice(begin + 1, i) };
      i += 1;
    } else if ((match = HEADING.exec(line.text))) {
      const rest = cut(line, match[0].length);
      rest.text = rest.text.trimEnd().replace(/ #{1,6}$/, "").trimEnd();
      block = { kind: "heading", level: match[1].length, body: [rest] };
      i += 1;
    } else if (RULE.test(line.text)) {
      block = { kind: "rule" };
      i += 1;
    } else if (QUOTE.test(line.text) && depth < DEEPEST) {
      const inside = [];
      while (i < lines.length && (match = QUOTE.exec(lines[i].text))) {
        inside.push(cut(lines[i], match[0].length));
        i += 1;
      }
      block = { kind: "quote", blocks: blocks(inside, depth + 1) };
    } else if (ITEM.test(line.text) && depth < DEEPEST) {
      [block, i] = list(lines, i, depth);
    } else if (line.text.includes("|") && isDivider(lines[i + 1])) {
      i += 2;
      while (i < lines.length && !blank(lines[i]) && lines[i].text.includes("|")) i += 1;
      block = table(lines.slice(begin, i));
    }
    if (!block) {
      i += 1;
      while (i < lines.length && !blank(lines[i]) && !interrupts(lines, i)) i += 1;
      block = { kind: "paragraph", body: lines.slice(begin, i).map(trimmed) };
    }
    block.key = lines.slice(begin, i).map(({ text }) => text).join("\n");
    block.at = line.at;
    block.end = lines[Math.min(i, lines.length) - 1].at + lines[Math.min(i, lines.length) - 1].text.length;
    found.push(block);
  }
  return found;
}

function interrupts(lines, i) {
  const { text } = lines[i];
  const item = ITEM.exec(text);
  return (
    FENCE.test(text) ||
    HEADING.test(text) ||
    RULE.test(text) ||
    QUOTE.test(text) ||
    (item && item[3] && (!/^\d/.test(item[2]) || /^1[.)]$/.test(item[2]))) ||
    (text.includes("|") && isDivider(lines[i + 1]))
  );
}

function trimmed(line) {
  const lead = line.text.length - line.text.trimStart().length;
  return cut(line, lead);
}

function list(lines, i, depth) {
  const first = ITEM.exec(lines[i].text);
  const ordered = /\d/.test(first[2]);
  const kind = first[2].at(-1);
  const items = [];
  let loose = false;
  let match;
  while (i < lines.length && (match = ITEM.exec(lines[i].text)) && match[2].at(-1) === kind) {
    const indent = match[1].length + match[2].length + Math.min(match[3].length || 1, 4);
    const inside = [cut(lines[i], Math.min(match[0].length, lines[i].text.length))];
    i += 1;
    for (; i < lines.length; i += 1) {
      if (blank(lines[i])) {
        const next = lines[i + 1];
        if (!next || blank(next) || !/^ {2,}/.test(next.text)) break;
        loose = true;
        inside.push({ text: "", at: lines[i].at });
        continue;
      }
      const own = /^ */.exec(lines[i].text)[0].length;
      if (own < 2 && (ITEM.test(lines[i].text) || interrupts(lines, i))) break;
      inside.push(cut(lines[i], Math.min(own, indent)));
    }
    items.push(blocks(inside, depth + 1));
    let after = i;
    while (after < lines.length && blank(lines[after])) after += 1;
    const again = after < lines.length && ITEM.exec(lines[after].text);
    if (after > i && again && again[2].at(-1) === kind) {
      loose = true;
      i = after;
    }
  }
  return [{ kind: "list", ordered, start: parseInt(first[2], 10), items, loose }, i];
}

function table(rows) {
  const aligned = cells(rows[1]).map(({ text }) => {
    const [left, right] = [text.startsWith(":"), text.endsWith(":")];
    return left && right ? "center" : right ? "end" : "start";
  });
  const body = rows.slice(2).map(cells).map((row) => row.slice(0, aligned.length));
  return { kind: "table", aligned, head: cells(rows[0]).slice(0, aligned.length), rows: body };
}

function cells(line) {
  const found = [];
  let [from, at] = [0, 0];
  const take = () => {
    const raw = line.text.slice(from, at);
    const lead = raw.length - raw.trimStart().length;
    found.push({ text: raw.trim(), at: line.at + from + lead });
    from = at + 1;
  };
  for (; at < line.text.length; at += 1) {
    if (line.text[at] === "\\") at += 1;
    else if (line.text[at] === "|") take();
  }
  take();
  if (!found[0].text) found.shift();
  if (found.length && !found.at(-1).text) found.pop();
  return found;
}
