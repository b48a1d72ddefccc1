// <ragchat-answer>: renders an answer that streams, its citations and its sources.
//
//   import { readEvents } from "./ragchat-answer.js";      // also defines the element
//   const answer = document.createElement("ragchat-answer");
//   await answer.read(await fetch("/v1/ragchat/answer", { method: "POST", … }));
//
// or `answer.feed(event)` for each event of events.schema.json. It fires
//   ragchat-citation  {index, number, passage, claim}  a citation or source was chosen
//   ragchat-end       {status, error}                  it is done, failed, stopped or cut
//   ragchat-retry     {}                               the reader asks to try again
// Nothing of an answer or a document becomes HTML: all of it is text in nodes made one by one.

import { AnswerState, readEvents, reference, settledLength } from "./ragchat-events.js";
import { blocksOf, element, renderBlock, sourceOf } from "./ragchat-markdown.js";
import { card, count, doing, doubt, ending, notice, seconds, sourceList, stageBar } from "./ragchat-parts.js";
import { sheet } from "./ragchat-style.js";

export { readEvents };

const WORDS = {
  done: "Answer finished.",
  failed: "The answer failed.",
  stopped: "Stopped.",
  cut: "The connection was lost.",
};

export class RagchatAnswer extends HTMLElement {
  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [sheet];
    this._said = element("p", { class: "unseen", role: "status" });
    this._progress = element("div", { class: "progress", part: "progress" });
    this._notice = element("p", { class: "notice", part: "notice", hidden: true });
    this._thoughts = element("div");
    this._reasoning = element("details", { class: "reasoning", hidden: true });
    this._reasoning.append(element("summary", {}, "Reasoning"), this._thoughts);
    this._answer = element("div", { class: "answer", part: "answer" });
    this._failure = element("div", { class: "failure", part: "failure", role: "alert" });
    this._failure.hidden = true;
    this._sources = element("section", { class: "sources", part: "sources", "aria-label": "Sources" });
    this._sources.hidden = true;
    this._why = element("div", { class: "unseen" });
    this._card = element("div", { class: "card", role: "tooltip", id: "card", popover: "manual" });
    root.append(this._said, this._progress, this._notice, this._reasoning, this._answer);
    root.append(this._failure, this._sources, this._why, this._card);
    root.addEventListener("click", (event) => this._clicked(event));
    root.addEventListener("keydown", (event) => this._keyed(event));
    for (const name of ["pointerover", "focusin"]) {
      root.addEventListener(name, (event) => this._showCard(event));
    }
    for (const name of ["pointerout", "focusout"]) {
      root.addEventListener(name, () => this._hideCard());
    }
    this._escape = (event) => event.key === "Escape" && this._hideCard();
    this.reset();
  }

  /** How many passages are searched, for the words of the progress line. */
  get passages() {
    return Number(this.getAttribute("passages")) || 0;
  }

  /** Forgets everything, for another answer. */
  reset() {
    this.state = new AnswerState(Number(this.getAttribute("choice")) || 0);
    this._began = performance.now();
    this._blocks = [];
    this._current = null;
    this._answer.replaceChildren();
    this._why.replaceChildren();
    this._progress.replaceChildren();
    this._stopClock();
    this._draw();
  }

  /** Shows that something happens, before the first event. */
  begin() {
    if (this._clock) return;
    this._began = performance.now();
    this._clock = setInterval(() => this._drawProgress(), 100);
    this._draw();
  }

  disconnectedCallback() {
    this._stopClock();
    document.removeEventListener("keydown", this._escape);
  }

  _stopClock() {
    clearInterval(this._clock);
    this._clock = null;
  }

  /** Feeds the events of a response; resolves at its end. Abort the fetch to stop it. */
  async read(response, { signal } = {}) {
    try {
      for await (const event of readEvents(response)) this.feed(event);
      this.end("cut", "The connection ended before the answer did.");
    } catch (error) {
      if (signal?.aborted) this.end("stopped");
      else if (error.status) this.feed({ type: "error", ...error, message: error.message });
      else this.end("cut", "The connection was lost.");
    }
    return this.state;
  }

  /** Takes the next event. */
  feed(event) {
    const was = this.state.status;
    this.state.feed(event);
    if (event.type === "start") this.begin();
    this._changed(was);
  }

  /** Ends the answer from outside: `stopped`, or `cut` with a message. */
  end(status, message) {
    const was = this.state.status;
    this.state.end(status, message);
    this._changed(was);
  }

  /** Marks a citation as chosen: that with this index, or none. */
  select(index) {
    this._current = index;
    for (const chip of this._chips()) {
      if (Number(chip.dataset.index) === index) chip.setAttribute("aria-current", "true");
      else chip.removeAttribute("aria-current");
    }
  }

  /** All citations of known passages, in order: {index, number, passage, claim}. */
  get citations() {
    return this.state.citations
      .flatMap(({ numbers, start }) => numbers.map((number) => ({ number, start })))
      .map(({ number, start }, index) => ({
        index,
        number,
        passage: this.state.passage(number),
        claim: this.state.claimAt(start),
      }));
  }

  /** Scrolls to a citation, and focuses it if asked to. */
  reveal(index, { block = "nearest", focus = false } = {}) {
    const chip = this._chips().find((one) => Number(one.dataset.index) === index);
    if (focus) chip?.focus({ preventScroll: true });
    chip?.scrollIntoView({ block });
  }

  /** The answer as Markdown, with its references. */
  toMarkdown() {
    const { state } = this;
    const cited = [...state.cited].sort((a, b) => a - b).map((number) => state.passage(number));
    const list = cited.map((passage) => `[${passage.number}] ${reference(passage)}`);
    const [before, after] = [notice(state), ending(state)].map((words) => words && `*${words}*`);
    return [before, state.text.trimEnd(), after, list.join("  \n")].filter(Boolean).join("\n\n") + "\n";
  }

  _changed(was) {
    const { status, error } = this.state;
    if (status !== was && !this.state.running) {
      this._stopClock();
      this._took = (performance.now() - this._began) / 1000;
      this._draw();
      this._fire("ragchat-end", { status, error });
    } else if (!this._waiting) {
      this._waiting = true;
      const frame = document.hidden ? queueMicrotask : requestAnimationFrame;
      frame(() => {
        this._waiting = false;
        this._draw();
      });
    }
  }

  _draw() {
    const { state } = this;
    this._drawProgress();
    const said = notice(state);
    this._notice.hidden = !said;
    this._notice.textContent = said ?? "";
    this._reasoning.hidden = !state.reasoning;
    this._thoughts.textContent = state.reasoning;
    this._answer.setAttribute("aria-busy", String(state.running));
    this._drawText();
    this._drawFailure();
    this._drawSources();
  }

  _drawProgress() {
    const { state } = this;
    if (state.running) {
      if (!this._clock) return;
      const words = doing(state, this.passages);
      if (!this._now?.isConnected) {
        this._now = element("div", { class: "now" }, element("span"), element("span", { class: "time" }));
        this._progress.replaceChildren(this._now);
      }
      const [what, time] = this._now.children;
      if (what.textContent !== words) {
        what.textContent = words;
        this._said.textContent = words;
      }
      time.textContent = seconds((performance.now() - this._began) / 1000);
      return;
    }
    if (this._drawn === state) return;
    this._drawn = state;
    this._progress.replaceChildren(stageBar(state, this._took ?? 0));
    const cited = state.cited.length;
    const ended = WORDS[state.status];
    this._said.textContent = cited ? `${ended} ${count(cited, "source")} cited.` : ended;
  }

  _drawText() {
    const { state } = this;
    const shown = (state.text || state.refusal).slice(0, state.text ? settledLength(state) : undefined);
    const places = new Map();
    let index = 0;
    for (const citation of state.citations) {
      places.set(citation.start, { ...citation, first: index });
      index += citation.numbers.length;
    }
    const chips = {
      at: (place) => {
        const citation = places.get(place);
        if (!citation || citation.end > shown.length) return null;
        return { end: citation.end, node: this._marker(citation) };
      },
    };
    const focused = this.shadowRoot.activeElement?.dataset?.index;
    const blocks = blocksOf(shown);
    blocks.forEach((block, i) => {
      const inside = state.citations.filter(({ start, end }) => start >= block.at && end <= block.end);
      const key = `${block.at}/${inside.length}/${state.claims !== null}/${block.key}`;
      const old = this._blocks[i];
      if (old?.key === key) return;
      const node = renderBlock(block, chips);
      if (state.claims) this._markClaims(node);
      if (old) old.node.replaceWith(node);
      else this._answer.append(node);
      this._blocks[i] = { key, node };
    });
    for (const { node } of this._blocks.splice(blocks.length)) node.remove();
    if (this._current !== null) this.select(this._current);
    if (focused && !this.shadowRoot.activeElement) {
      this._chips().find((chip) => chip.dataset.index === focused)?.focus({ preventScroll: true });
    }
  }

  _marker({ numbers, unknown, foreign, first }) {
    const made = element("span", { class: "chips" });
    numbers.forEach((number, i) => {
      const label = this.state.passage(number)?.label ?? "";
      made.append(
        element(
          "button",
          {
            class: "chip",
            part: "chip",
            type: "button",
            "data-index": String(first + i),
            "data-number": String(number),
            "aria-label": `Citation ${number}: ${label}`,
          },
          String(number),
        ),
      );
    });
    if (unknown.length || foreign) {
      const why = "No source has this number.";
      made.append(element("span", { class: "chip unknown", role: "img", "aria-label": why, title: why }, "?"));
    }
    return made;
  }

  /** Underlines the sentences that their citations do not support. */
  _markClaims(root) {
    const doubted = this.state.claims.filter(doubt);
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (walker.nextNode()) nodes.push(walker.currentNode);
    for (const node of nodes) {
      const from = sourceOf(node);
      if (from === undefined) continue;
      const parts = [];
      let done = 0;
      for (const claim of doubted) {
        const start = Math.max(claim.start - from, done);
        const end = Math.min(claim.end - from, node.data.length);
        if (start >= end || !node.data.slice(start, end).trim()) continue;
        parts.push(node.data.slice(done, start), this._doubted(claim, node.data.slice(start, end)));
        done = end;
      }
      if (done) node.replaceWith(...parts, node.data.slice(done));
    }
  }

  /** A piece of a doubted sentence; the first piece can be focused and says why. */
  _doubted(claim, text) {
    const span = element("span", { class: "doubt", "data-claim": String(claim.start) }, text);
    const id = `why-${claim.start}`;
    if (!this._why.querySelector(`#${id}`)) {
      this._why.append(element("span", { id }, doubt(claim)));
      span.tabIndex = 0;
      span.setAttribute("role", "note");
      span.setAttribute("aria-describedby", id);
    }
    return span;
  }

  _drawFailure() {
    const { state } = this;
    const words = state.running ? null : ending(state);
    this._failure.hidden = !words;
    if (this._failed === state) return;
    this._failure.replaceChildren(words ?? "");
    if (!words) return;
    this._failed = state;
    if (state.status === "stopped" || state.error?.retryable) {
      const retry = element("button", { type: "button" }, "Try again");
      retry.addEventListener("click", () => this._fire("ragchat-retry", {}));
      this._failure.append(retry);
    }
  }

  _drawSources() {
    const { state } = this;
    const wanted = !state.running && state.passages.length > 0;
    if (this._sources.hidden === !wanted) return;
    this._sources.hidden = !wanted;
    this._sources.replaceChildren(
      wanted ? sourceList(state, (passage) => this._choose(passage)) : "",
    );
  }

  _choose(passage) {
    const citation = this.citations.find((one) => one.number === passage.number && one.passage);
    const chosen = passage.number === null ? undefined : citation;
    const { number } = passage;
    this._fire("ragchat-citation", chosen ?? { index: null, number, passage, claim: null });
  }

  _chips() {
    return [...this._answer.querySelectorAll("button.chip")];
  }

  _clicked(event) {
    const chip = event.target.closest?.("button.chip");
    if (!chip) return;
    this._hideCard();
    const citation = this.citations[Number(chip.dataset.index)];
    if (citation?.passage) this._fire("ragchat-citation", citation);
  }

  _keyed(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const chips = this._chips();
    const at = chips.indexOf(event.target);
    if (!step || at < 0) return;
    event.preventDefault();
    chips[(at + step + chips.length) % chips.length].focus();
  }

  _showCard(event) {
    const target = event.target.closest?.("button.chip, .doubt");
    if (!target) return;
    const citation = this.citations[Number(target.dataset.index)];
    if (citation?.passage) this._card.replaceChildren(...card(citation.passage, citation.claim));
    else if (target.dataset.claim) {
      const claim = this.state.claims?.find(({ start }) => String(start) === target.dataset.claim);
      this._card.replaceChildren(claim ? doubt(claim) : "");
    } else return;
    this._card.showPopover();
    document.addEventListener("keydown", this._escape);
    const box = target.getClientRects()[0];
    const { width, height } = this._card.getBoundingClientRect();
    const below = box.bottom + 8 + height < innerHeight || box.top < height + 8;
    this._card.style.left = `${Math.max(8, Math.min(box.left - 12, innerWidth - width - 8))}px`;
    this._card.style.top = `${below ? box.bottom + 8 : box.top - height - 8}px`;
  }

  _hideCard() {
    document.removeEventListener("keydown", this._escape);
    if (this._card.matches(":popover-open")) this._card.hidePopover();
  }

  _fire(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { bubbles: true, composed: true, detail }));
  }
}

if (!customElements.get("ragchat-answer")) customElements.define("ragchat-answer", RagchatAnswer);
