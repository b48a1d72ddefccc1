// The evidence panel: a passage in its context, what it supports, and why it was found.

import { inOrder, reference, supportingRange } from "../component/ragchat-events.js";
import { blocksOf, element, NO_CHIPS, renderBlock, safeAddress } from "../component/ragchat-markdown.js";
import { doubt, whereOf } from "../component/ragchat-parts.js";
import { surroundings } from "./api.js";

const sheet = matchMedia("(max-width: 46rem), (max-width: 69.99rem) and (min-height: 30.01rem)"); // as in app.css
const AROUND = 700; // code points of context on either side
const LEVELS = {
  verbatim: "Word for word in this passage",
  strong: "Supported by this passage",
  weak: "Perhaps supported by this passage",
  none: "Not found in this passage",
};

export class Evidence {
  constructor(panel) {
    this.panel = panel;
    this.answer = null;
    this.shown = null;
    document.addEventListener("keydown", (event) => this._keyed(event));
  }

  get open() {
    return !this.panel.hidden;
  }

  /** Shows a citation of an answer, as `ragchat-citation` tells it. */
  show(answer, citation) {
    if (this.answer !== answer) this.answer?.select(null);
    this.answer = answer;
    this.shown = citation;
    answer.select(citation.index);
    this._loading?.abort();
    this._loading = new AbortController();
    const { passage, claim } = citation;
    const text = element("div", { class: "passage", dir: "auto" });
    this.panel.replaceChildren(
      this._navigation(),
      element("h2", { dir: "auto" }, inOrder(passage.label)),
      where(passage),
      ...said(passage, claim),
      text,
      copyButton("Copy quote with reference", () => quoted(passage, claim)),
      ...why(passage),
    );
    this.panel.hidden = false;
    this.panel.scrollTop = 0;
    // A sheet from below would cover the sentence that it is about.
    if (sheet.matches && citation.index !== null) answer.reveal(citation.index, { block: "start" });
    this._place(text, passage, claim);
  }

  close() {
    if (!this.open) return;
    this.panel.hidden = true;
    this.answer?.select(null);
    if (this.shown?.index != null) this.answer?.reveal(this.shown.index, { focus: true });
  }

  step(by) {
    const citations = this.answer?.citations.filter(({ passage }) => passage) ?? [];
    if (!citations.length) return;
    const at = citations.findIndex(({ index }) => index === this.shown.index);
    const next = citations[Math.min(Math.max(at + by, 0), citations.length - 1)];
    if (next.index === this.shown.index) return;
    const inside = this.panel.contains(document.activeElement);
    this.show(this.answer, next);
    if (!sheet.matches) this.answer.reveal(next.index);
    if (inside) this.panel.querySelector(by < 0 ? ".previous" : ".next").focus();
  }

  _navigation() {
    const { citations } = this.answer;
    const { index, number } = this.shown;
    const words =
      index === null
        ? number === null ? "Found, but not given to the model" : `Source ${number}, not cited`
        : `Source ${number} · citation ${index + 1} of ${citations.length}`;
    const button = (name, label, sign, act, disabled) => {
      const made = element("button", { type: "button", class: name, "aria-label": label, title: label, disabled }, sign);
      made.addEventListener("click", act);
      return made;
    };
    return element(
      "nav",
      { "aria-label": "Citations" },
      element("span", { role: "status" }, words),
      button("previous", "Previous citation", "←", () => this.step(-1), !(index > 0)),
      button("next", "Next citation", "→", () => this.step(1), index !== null && index + 1 >= citations.length),
      button("close", "Close the evidence", "✕", () => this.close(), false),
    );
  }

  /** Puts the passage in, then its neighbours around it once they are there. */
  async _place(parent, passage, claim) {
    const body = element("span", { class: "own" }, ...marked(passage, claim));
    parent.append(body);
    const signal = this._loading.signal;
    const settle = () => (parent.querySelector("mark") ?? body).scrollIntoView({ block: "nearest" });
    if (!passage.span || !passage.document_id) return settle();
    try {
      const found = await surroundings(passage.document_id, passage.span, AROUND, signal);
      // It may have been changed since it was found.
      if (signal.aborted || found?.text !== passage.text) return settle();
      const cut = passage.span.start > AROUND ? "…" : "";
      body.before(element("span", { class: "around" }, cut + found.before));
      body.after(element("span", { class: "around" }, found.after));
    } catch {
      // Without its neighbours the passage stands for itself.
    }
    return settle();
  }

  _keyed(event) {
    if (!this.open || event.altKey || event.ctrlKey || event.metaKey) return;
    const editing = event.target.closest?.("textarea, input, select");
    if (event.key === "Escape") this.close();
    else if (!editing && event.key === "ArrowRight") this.step(1);
    else if (!editing && event.key === "ArrowLeft") this.step(-1);
  }
}

function where(passage) {
  const made = element("p", { class: "where", dir: "auto" }, whereOf(passage));
  const href = passage.url && safeAddress(passage.url);
  if (href) {
    const link = element("a", { href, target: "_blank", rel: "noopener noreferrer" }, "Open the source");
    made.append(made.textContent ? " · " : "", link);
  }
  return made;
}

/** What the answer says there, and how well this passage supports it. */
function said(passage, claim) {
  if (!claim) return [];
  const support = claim.supports.find(({ number }) => number === passage.number);
  const level = support ? LEVELS[support.level] : null;
  const words = (support?.level === "none" && doubt(claim)) || level;
  if (!words) return [];
  const sentence = blocksOf(claim.text).map((block) => renderBlock(block, NO_CHIPS));
  return [element("div", { class: "claim" }, element("p", {}, element("strong", {}, words)), ...sentence)];
}

function marked(passage, claim) {
  const range = supportingRange(passage, claim);
  if (!range) return [passage.text];
  const [start, end] = range;
  const mark = element("mark", {}, passage.text.slice(start, end));
  return [passage.text.slice(0, start), mark, passage.text.slice(end)];
}

function quoted(passage, claim) {
  const range = supportingRange(passage, claim);
  const quote = range ? passage.text.slice(...range) : passage.text;
  return `“${quote.trim()}”\n— ${reference(passage)}`;
}

/** Why it was found: what each lane said, and its way to its rank. */
function why(passage) {
  const { explain } = passage;
  if (!explain) return [];
  const lanes = [
    ["by words", explain.keyword],
    ["by meaning", explain.vector],
    ["by title", explain.title],
  ].filter(([, lane]) => lane);
  const most = Math.max(...lanes.map(([, lane]) => lane.contribution), 1e-9);
  const grid = element("div", { class: "lanes" });
  for (const [name, lane] of lanes) {
    const share = String(Math.max(lane.contribution, 0) / most);
    const figures = [
      lane.rank ? `rank ${lane.rank}` : "",
      Number.isFinite(lane.score) ? lane.score.toFixed(2) : "",
    ].filter(Boolean);
    grid.append(
      element("span", {}, name),
      element("meter", { value: share, min: "0", max: "1", "aria-label": `Weight ${name}` }),
      element("span", { class: "figures" }, figures.join(" · ") || "not in its list"),
    );
  }
  const steps = [`Rank ${explain.fused_rank} when both are put together (${explain.fused_score.toFixed(2)})`];
  if (explain.keyword?.overlap) {
    steps.unshift(`It has ${Math.round(explain.keyword.overlap * 100)} % of the question's words`);
  }
  if (explain.rerank) {
    const { rank_in, rank_out, score } = explain.rerank;
    steps.push(`Weighed again: from rank ${rank_in} to ${rank_out} (${score.toFixed(2)})`);
  }
  steps.push(`Rank ${explain.final_rank} in the end`);
  const path = element("ul", { class: "path" }, ...steps.map((step) => element("li", {}, step)));
  return [element("details", {}, element("summary", {}, "Why this passage"), grid, path)];
}

/** A button that copies a text and says so. */
export function copyButton(label, text) {
  const button = element("button", { type: "button", class: "copy" }, label);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "The browser does not allow copying";
    }
    setTimeout(() => (button.textContent = label), 1600);
  });
  return button;
}
