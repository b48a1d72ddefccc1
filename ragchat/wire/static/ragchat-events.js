// Reading the events of ragchat.wire, and what they fold to. No DOM in here.
// The events are described in events.schema.json; unknown types and fields are ignored.

export const VERSION = 1;

/** Yields the events of a response of `EventEncoder`. Stops when the response ends. */
export async function* readEvents(response) {
  if (!response.ok) throw await refused(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        if (data.length) yield JSON.parse(data.map((line) => line.slice(5)).join("\n"));
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the reader may have failed already
  }
}

/** Makes an error event of a response that is none of ours, such as a proxy's. */
async function refused(response) {
  let message = `The server answered with status ${response.status}.`;
  try {
    const { error } = await response.json();
    if (typeof error?.message === "string") message = error.message;
  } catch {
    // Not JSON: the status says it.
  }
  const retryable = response.status >= 500 || response.status === 429;
  return Object.assign(new Error(message), { status: response.status, retryable });
}

/** Returns the UTF-16 index of a code point, counted from a known pair of both. */
export function utf16Index(text, point, from = { point: 0, index: 0 }) {
  let { point: at, index } = from.point <= point ? from : { point: 0, index: 0 };
  for (; at < point && index < text.length; at += 1) {
    index += text.codePointAt(index) > 0xffff ? 2 : 1;
  }
  return index;
}

/** What the events of one choice fold to. All offsets in it are UTF-16 indices of `text`. */
export class AnswerState {
  constructor(choice = 0) {
    this.choice = choice;
    this.text = "";
    /** Where its latest piece begins. */
    this.fresh = 0;
    this.refusal = "";
    this.reasoning = "";
    /** Markers in order: {start, end, numbers, unknown, foreign, marker}. */
    this.citations = [];
    /** Passages as sent: first those presented, by number, then those that were cut. */
    this.passages = [];
    this.degraded = [];
    this.skipped = null;
    /** {stage, seconds, outcome, running} in the order of their beginning. */
    this.stages = [];
    this.claims = null;
    this.usage = null;
    /** Why the model stopped, null where it did not say; undefined before. */
    this.finishReason = undefined;
    /** preparing, answering, checking, then done, failed, stopped or cut. */
    this.status = "preparing";
    this.error = null;
    this.hasSources = false;
    this._known = { point: 0, index: 0 };
  }

  get running() {
    return ["preparing", "answering", "checking"].includes(this.status);
  }

  get presented() {
    return this.passages.filter((passage) => passage.number !== null);
  }

  /** Numbers of the passages that are cited, in order of first appearance. */
  get cited() {
    return [...new Set(this.citations.flatMap((citation) => citation.numbers))];
  }

  passage(number) {
    return this.passages.find((passage) => passage.number === number) ?? null;
  }

  /** The claim that a marker belongs to, once the answer is checked. */
  claimAt(start) {
    return this.claims?.find((claim) => claim.start <= start && start < claim.end) ?? null;
  }

  feed(event) {
    if (event.choice !== undefined && event.choice !== this.choice) return this;
    switch (event.type) {
      case "start":
        if (event.version !== VERSION) this._fail("The server speaks another version.", false);
        break;
      case "stage":
        this._stage(event);
        break;
      case "sources":
        this.passages = event.passages;
        this.degraded = event.degraded;
        this.skipped = event.skipped;
        this.hasSources = true;
        break;
      case "text":
        this.fresh = this.text.length;
        this.text += event.text;
        this.status = "answering";
        break;
      case "refusal":
        this.refusal += event.text;
        this.status = "answering";
        break;
      case "reasoning":
        this.reasoning += event.text;
        break;
      case "citation":
        this.citations.push({ ...event, ...this._range(event) });
        break;
      case "usage":
        this.usage = event;
        break;
      case "finished":
        this.finishReason = event.finish_reason;
        if (event.finish_reason !== "tool_calls") this.status = "checking";
        break;
      case "verification":
        this.claims = event.claims.map((claim) => ({ ...claim, ...this._range(claim) }));
        break;
      case "error":
        this._fail(event.message, event.retryable, event);
        break;
      case "end":
        if (this.running) this.status = "done";
        break;
    }
    return this;
  }

  /** Ends it from outside: `stopped` by the reader, or `cut` by a lost connection. */
  end(status, message = "") {
    if (!this.running) return;
    this.status = status;
    const told = message || (status === "cut" ? "The connection was lost." : "");
    if (told) this.error = { message: told, retryable: true };
  }

  _fail(message, retryable, more = {}) {
    this.status = "failed";
    this.error = { ...more, message, retryable };
  }

  _range({ start, end }) {
    const first = utf16Index(this.text, start, this._known);
    this._known = { point: start, index: first };
    return { start: first, end: utf16Index(this.text, end, this._known) };
  }

  _stage({ stage, phase, seconds, outcome }) {
    if (phase === "start") {
      this.stages.push({ stage, seconds: 0, outcome: "ok", running: true });
      return;
    }
    const begun = this.stages.findLast((one) => one.stage === stage && one.running);
    if (begun) Object.assign(begun, { seconds, outcome, running: false });
  }
}

const LONGEST_MARKER = 66;
const OPEN = /[[【［][^\]】］\n]*$/u;
const CLOSED = /[[【［][^\]】］\n]+[\]】］]/gu;

/** Length of the text that can be shown: what may still become a citation waits. */
export function settledLength(state) {
  const { text, citations, fresh } = state;
  if (state.status !== "answering") return text.length;
  const last = citations.at(-1)?.end ?? 0;
  // The citation of a marker comes right after the piece that made it certain.
  const from = Math.max(last, fresh - LONGEST_MARKER);
  for (const { index, 0: marker } of text.slice(from).matchAll(CLOSED)) {
    const end = from + index + marker.length;
    if (end >= fresh && marker.length < LONGEST_MARKER) return from + index;
  }
  const late = Math.max(last, text.length - LONGEST_MARKER);
  const open = OPEN.exec(text.slice(late));
  return open ? late + open.index : text.length;
}

/** A name without characters that turn the direction of what follows: it would read like another. */
export function inOrder(name) {
  return name.replace(/[\u202a-\u202e\u2066-\u2069]/g, "");
}

/** Name, then place, of a passage, for a person. */
export function placeOf(passage) {
  const { page, lines } = passage;
  if (page !== null) return `page ${page}`;
  if (lines !== null) {
    return lines.start === lines.end ? `line ${lines.start}` : `lines ${lines.start}–${lines.end}`;
  }
  return "";
}

/** The part of a passage's text, as [start, end] in UTF-16, that supports a claim; null without. */
export function supportingRange(passage, claim) {
  const all = claim ? [...claim.supports, ...(claim.best ? [claim.best] : [])] : [];
  const support = all.find((one) => one.number === passage.number && one.level !== "none");
  if (!support?.span) return null;
  const shift = passage.span?.start ?? 0;
  const start = utf16Index(passage.text, support.span.start - shift);
  const end = utf16Index(passage.text, support.span.end - shift);
  return start < end ? [start, end] : null;
}

/** One line that names a passage in a list of references. */
export function reference(passage) {
  const named = [passage.label, passage.headings.join(" › "), placeOf(passage)];
  const where = passage.url ?? passage.source;
  return [...named, where === passage.label ? "" : where].filter(Boolean).join(", ");
}
