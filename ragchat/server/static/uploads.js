// Adding documents: by dropping files anywhere, or by choosing them.

import { inOrder } from "../component/ragchat-events.js";
import { element } from "../component/ragchat-markdown.js";
import { upload } from "./api.js";

function outcome({ passages, skipped, blank }) {
  if (passages) return `${passages} ${passages === 1 ? "passage" : "passages"}`;
  if (skipped) return "was here already";
  return blank ? "not added: there is no text in it" : "added";
}

export class Uploads {
  /** `done` is called when all files are sent. */
  constructor({ list, drop, input, done }) {
    Object.assign(this, { list, drop, input, done, enabled: false, waiting: [], sending: false });
    input.addEventListener("change", () => {
      this.add([...input.files]);
      input.value = "";
    });
    let depth = 0; // drag events come for each element passed over
    const files = (event) => this.enabled && event.dataTransfer?.types.includes("Files");
    addEventListener("dragenter", (event) => {
      if (!files(event)) return;
      depth += 1;
      drop.hidden = false;
    });
    addEventListener("dragover", (event) => files(event) && event.preventDefault());
    addEventListener("dragleave", (event) => {
      if (files(event) && (depth -= 1) === 0) drop.hidden = true;
    });
    addEventListener("drop", (event) => {
      if (!files(event)) return;
      event.preventDefault();
      depth = 0;
      drop.hidden = true;
      this.add([...event.dataTransfer.files]);
    });
  }

  choose() {
    this.input.click();
  }

  /** Sends files one after the other, behind those that are still to be sent. */
  async add(files) {
    this.waiting.push(...files);
    if (this.sending || !this.waiting.length) return;
    this.sending = true;
    this.list.hidden = false;
    this.list.replaceChildren();
    while (this.waiting.length) await this._send(this.waiting.shift());
    this.sending = false;
    const close = element("button", { type: "button", class: "dismiss" }, "Close");
    close.addEventListener("click", () => (this.list.hidden = true));
    this.list.append(close);
    this.done();
  }

  async _send(file) {
    const state = element("span", {}, "waiting");
    const bar = element("progress", { max: "1", value: "0", "aria-label": `Sending ${file.name}` });
    this.list.append(element("p", {}, element("span", {}, inOrder(file.name)), state, bar));
    try {
      const made = await upload(file, (share) => {
        bar.value = share;
        state.textContent = share < 1 ? `${Math.round(share * 100)} %` : "reading";
      });
      state.textContent = outcome(made);
    } catch (error) {
      state.textContent = `not added: ${error.message}`;
    }
    bar.remove();
  }
}
