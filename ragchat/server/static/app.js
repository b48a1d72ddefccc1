// The page: a conversation about documents, read beside its evidence. Nothing is stored on the
// server; the conversation lives in this tab.

import "../component/ragchat-answer.js";
import { element } from "../component/ragchat-markdown.js";
import { count } from "../component/ragchat-parts.js";
import * as api from "./api.js";
import { copyButton, Evidence } from "./evidence.js";
import { Uploads } from "./uploads.js";

const $ = (id) => document.getElementById(id);
const evidence = new Evidence($("evidence"));
const turns = []; // {question, answer, item}
let server = { documents: 0, passages: 0, questions: [], model: null, upload: false };
let running = null; // what stops the answer that streams

const uploads = new Uploads({
  list: $("uploads"),
  drop: $("drop"),
  input: $("files"),
  done: () => load(),
});

async function load() {
  try {
    server = { ...server, ...(await api.info()) };
    banner(null);
    welcome();
  } catch (error) {
    if (error.status === 401 || error.status === 403) locked();
    else banner("The server cannot be reached. Reload the page to try again.");
  }
}

function welcome() {
  uploads.enabled = server.upload;
  $("add").hidden = !server.upload;
  const has = server.passages > 0;
  const facts = [count(server.documents, "document"), count(server.passages, "passage")];
  // Said once, where it is seen with every answer.
  if (!server.model) facts.push("no chat model: answers are quotations");
  $("facts").textContent = has ? facts.join(" · ") : "";
  $("ask").hidden = !has;
  $("unlock").hidden = true;
  $("welcome").hidden = turns.length > 0;
  $("welcome").classList.toggle("drop", !has);
  $("pick").hidden = has || !server.upload;
  if (has) {
    $("welcome-title").textContent = "What would you like to know?";
    $("welcome-words").textContent = "Every answer shows where it comes from. Choose a number to read the passage itself.";
  } else {
    $("welcome-title").textContent = server.upload ? "Drop your documents here" : "There are no documents yet";
    $("welcome-words").textContent = server.upload
      ? "Text, Markdown and whatever else this server reads. They stay on this server."
      : "Add some with the command: ragchat ingest FOLDER";
  }
  const examples = has ? server.questions.slice(0, 3) : [];
  $("questions").replaceChildren(
    ...examples.map((question) => {
      const button = element("button", { type: "button", dir: "auto" }, question);
      button.addEventListener("click", () => ask(question));
      return element("li", {}, button);
    }),
  );
}

function locked() {
  $("welcome").hidden = false;
  $("ask").hidden = true;
  $("unlock").hidden = false;
  $("welcome-title").textContent = "This server asks for a key";
  $("welcome-words").textContent = "It is kept in this tab only.";
  $("key").value = "";
  banner(api.hasKey() ? "This key opens nothing here." : null);
}

function banner(words) {
  $("banner").hidden = !words;
  $("banner").textContent = words ?? "";
}

/** What was said so far, and a new question. Turns without an answer, or a broken one, are left out. */
function messagesFor(question, before) {
  const said = before.filter(({ answer: { state } }) => state.text && !["failed", "cut"].includes(state.status));
  return [
    ...said.flatMap(({ question: asked, answer }) => [
      { role: "user", content: asked },
      { role: "assistant", content: answer.state.text },
    ]),
    { role: "user", content: question },
  ];
}

function ask(question) {
  if (running || !question.trim()) return;
  const answer = document.createElement("ragchat-answer");
  answer.setAttribute("passages", String(server.passages));
  const title = element("h2", { dir: "auto", tabindex: "-1" }, question);
  const actions = element("div", { class: "actions" });
  actions.hidden = true;
  const item = element("li", { class: "turn" }, title, answer, actions);
  const turn = { question, answer, item };
  answer.addEventListener("ragchat-citation", ({ detail }) => evidence.show(answer, detail));
  answer.addEventListener("ragchat-retry", () => run(turn));
  const again = element("button", { type: "button" }, "Answer again");
  again.addEventListener("click", () => run(turn));
  actions.append(copyButton("Copy with references", () => answer.toMarkdown()), again);
  turn.actions = actions;
  turns.push(turn);
  $("welcome").hidden = true;
  $("turns").append(item);
  item.scrollIntoView({ block: "start" });
  run(turn);
}

async function run(turn) {
  if (running) return;
  const stop = new AbortController();
  running = stop;
  busy(true);
  turn.actions.hidden = true;
  if (evidence.answer === turn.answer) evidence.close();
  turn.answer.reset();
  turn.answer.begin();
  const before = turns.slice(0, turns.indexOf(turn));
  try {
    const response = await api.ask(messagesFor(turn.question, before), stop.signal);
    await turn.answer.read(response, stop);
  } catch {
    if (stop.signal.aborted) turn.answer.end("stopped");
    else turn.answer.end("cut", navigator.onLine ? "The server cannot be reached." : "You are offline.");
  }
  running = null;
  busy(false);
  turn.actions.hidden = !turn.answer.state.text;
}

function busy(is) {
  $("send").hidden = is;
  $("stop").hidden = !is;
  $("export").hidden = $("fresh").hidden = is || !turns.length;
}

function exported() {
  const parts = turns.map(({ question, answer }) => `## ${question}\n\n${answer.toMarkdown()}`);
  const blob = new Blob([parts.join("\n")], { type: "text/markdown" });
  const link = element("a", { href: URL.createObjectURL(blob), download: "answers.md" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  $("theme").setAttribute("aria-pressed", String(dark));
  return dark;
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) return;
  const question = $("question").value;
  $("question").value = "";
  ask(question.trim());
});
$("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("ask").requestSubmit();
});
$("stop").addEventListener("click", () => {
  running?.abort();
  $("question").focus();
});
$("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  api.useKey($("key").value);
  load();
});
$("add").addEventListener("click", () => uploads.choose());
$("pick").addEventListener("click", () => uploads.choose());
$("export").addEventListener("click", exported);
$("fresh").addEventListener("click", () => {
  evidence.close();
  turns.length = 0;
  $("turns").replaceChildren();
  busy(false);
  welcome();
  $("question").focus();
});
$("theme").addEventListener("click", () => {
  const theme = setTheme(document.documentElement.dataset.theme) ? "light" : "dark";
  localStorage.setItem("ragchat-theme", theme);
  setTheme(theme);
});
addEventListener("offline", () => banner("You are offline. What is on the page stays readable."));
addEventListener("online", () => banner(null));

setTheme(localStorage.getItem("ragchat-theme"));
load();
