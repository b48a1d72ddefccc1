// The parts of <ragchat-answer> around the text: progress, sources, the card of a citation.

import { element } from "./ragchat-markdown.js";
import { inOrder, placeOf, supportingRange } from "./ragchat-events.js";

const DOING = {
  gate: "deciding whether to search",
  transform: "understanding the question",
  expand: "trying other wordings",
  retrieve: "searching",
  keyword: "searching",
  vector: "searching",
  embed: "searching",
  rerank: "weighing what was found",
  augment: "choosing what to read",
};
const DONE = {
  gate: "whether to search",
  transform: "understanding the question",
  expand: "other wordings",
  retrieve: "searching, in all",
  keyword: "search by words",
  vector: "search by meaning",
  rerank: "weighing what was found",
  augment: "choosing what to read",
  verify: "checking the answer",
};
const SKIPPED = {
  gate: "This turn needed no search.",
  transform: "This turn needed no search.",
  "no text": "There was no text to search for.",
};
const UNFINISHED = {
  length: "The answer is not whole: the model stopped at its length limit.",
  content_filter: "The answer is not whole: the provider's content filter stopped it.",
  null: "The answer may not be whole: its stream ended without saying why.",
};

/** Seconds for a person. */
export function seconds(value) {
  return value < 0.1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`;
}

/** A count with its noun: `1 source`, `2,000 sources`. */
export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** What happens now, in words. */
export function doing(state, passages) {
  if (state.status === "checking") return "Checking the answer against its sources";
  if (state.hasSources) {
    const shown = state.presented.length;
    return shown ? `Reading ${count(shown, "passage")}` : "Answering";
  }
  const stage = state.stages.findLast((one) => one.running) ?? state.stages.at(-1);
  const words = stage ? (DOING[stage.stage] ?? stage.stage) : "starting";
  const among = words === "searching" && passages ? ` ${count(passages, "passage")}` : "";
  return capital(words) + among;
}

/** The bar of what took how long, which opens to a list. `total` is in seconds. */
export function stageBar(state, total) {
  const stages = state.stages.filter((one) => !one.running && one.stage !== "retrieve");
  const prepared = stages.reduce((sum, one) => sum + one.seconds, 0);
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  for (const { seconds: length, outcome } of stages) {
    const part = element("i", { class: outcome === "ok" ? null : "skipped" });
    part.style.flexGrow = String(Math.max(1000 * length, 1));
    bar.append(part);
  }
  const rest = element("i");
  rest.style.flexGrow = String(Math.max(1000 * (total - prepared), 1));
  bar.append(rest);
  const list = element("dl");
  for (const { stage, seconds: length, outcome } of state.stages) {
    const took = outcome === "ok" ? seconds(length) : `left out after ${seconds(length)}`;
    list.append(element("dt", {}, DONE[stage] ?? stage), element("dd", {}, took));
  }
  list.append(element("dt", {}, "in all"), element("dd", {}, seconds(total)));
  const left = state.degraded.map(({ stage }) => DONE[stage] ?? stage);
  const words = [seconds(total)];
  if (left.length) words.push(`without ${[...new Set(left)].join(", ")}`);
  for (const { stage, reason } of state.degraded) {
    const said = `Left out: ${DONE[stage] ?? stage} (${reason})`;
    list.append(element("dd", { class: "wide" }, said));
  }
  return element("details", {}, element("summary", {}, bar, words.join(" · ")), list);
}

/** What stands at the head of an answer that rests on no evidence; null otherwise. */
export function notice(state) {
  if (!state.hasSources || state.presented.length) return null;
  if (state.skipped) return `${SKIPPED[state.skipped] ?? ""} The answer rests on no document.`;
  return "Nothing was found in the documents. The answer rests on none of them.";
}

/** What stands below an answer that ended as it should not have; null otherwise. */
export function ending({ status, error, finishReason }) {
  if (status === "stopped") return "You stopped this answer.";
  if (status === "done") return UNFINISHED[finishReason] ?? null;
  return error?.message ?? null;
}

/** The list of sources: cited, then shown but not cited, then found and cut. */
export function sourceList(state, choose) {
  const cited = state.cited.map((number) => state.passage(number)).filter(Boolean);
  const shown = state.presented.filter((passage) => !cited.includes(passage));
  const rest = state.passages.filter((passage) => passage.number === null);
  const made = document.createDocumentFragment();
  if (cited.length) {
    made.append(element("h3", {}, `${count(cited.length, "source")} cited`), rows(cited, choose));
  }
  if (shown.length) {
    made.append(group(`${count(shown.length, "passage")} read but not cited`, shown, choose));
  }
  if (rest.length) {
    made.append(group(`${count(rest.length, "passage")} found and left out`, rest, choose));
  }
  return made;
}

function group(words, passages, choose) {
  return element("details", {}, element("summary", {}, words), rows(passages, choose));
}

function rows(passages, choose) {
  const list = element("ul", { role: "list" });
  for (const passage of passages) {
    const number = element(
      "span",
      { class: passage.number === null ? "number none" : "number" },
      passage.number === null ? "–" : String(passage.number),
    );
    const name = element("span", { class: "name", dir: "auto" }, inOrder(passage.label));
    const place = element("span", { class: "place", dir: "auto" }, whereOf(passage));
    const row = element("button", { class: "source", type: "button" }, number, name, place);
    row.addEventListener("click", () => choose(passage));
    list.append(element("li", {}, row));
  }
  return list;
}

/** Heading path and page or lines; the source where there is neither. */
export function whereOf(passage) {
  const path = passage.headings.filter((heading) => heading !== passage.label).join(" › ");
  const source = passage.source === passage.label ? "" : (passage.source ?? "");
  return [inOrder(path || source), placeOf(passage)].filter(Boolean).join(", ");
}

/** Why a claim is doubted, in words; null if it is not. */
export function doubt(claim) {
  if (claim.status === "unknown") return "It cites a number that no source has.";
  if (claim.status !== "unsupported") return null;
  if (claim.verdict === "contradicted") return "The cited source says otherwise.";
  const better = claim.best && claim.best.level !== "none" ? claim.best.number : null;
  const cites = claim.supports.some((support) => support.number === better);
  const hint = better !== null && !cites ? ` Source ${better} is closer to it.` : "";
  return `The cited source does not seem to say this.${hint}`;
}

/** The content of the card of one citation. */
export function card(passage, claim) {
  const quote = element("p", { class: "quote", dir: "auto" });
  const range = supportingRange(passage, claim);
  if (range) {
    const [start, end] = range;
    const lead = passage.text.slice(Math.max(0, start - 60), start).replace(/^\S*\s/, "");
    quote.append(start > 60 ? "…" : "", lead);
    quote.append(element("mark", {}, passage.text.slice(start, end)));
    quote.append(passage.text.slice(end, end + 200));
  } else quote.append(passage.text.slice(0, 300));
  const made = [
    element("p", { class: "title", dir: "auto" }, inOrder(passage.label)),
    element("p", { class: "where", dir: "auto" }, whereOf(passage)),
    quote,
  ];
  const why = claim && doubt(claim);
  if (why) made.push(element("p", { class: "why" }, why));
  return made;
}
