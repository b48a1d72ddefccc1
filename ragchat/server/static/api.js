// What the page asks of the server. Addresses are relative to the page, wherever it is mounted.

const ROOT = new URL("../../", import.meta.url);
const KEY = "ragchat-key"; // for this tab only

const at = (path) => new URL(path, ROOT);

function headers(more = {}) {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...more, authorization: `Bearer ${key}` } : more;
}

/** Keeps a key, less whatever was pasted with it and no header can carry. */
export function useKey(key) {
  sessionStorage.setItem(KEY, key.replace(/[^!-~]/g, ""));
}

export function hasKey() {
  return Boolean(sessionStorage.getItem(KEY));
}

/** What the server has: {model, documents, passages, questions, upload}; no model is null. */
export async function info() {
  const response = await fetch(at("v1/ragchat/info"), { headers: headers() });
  if (!response.ok) throw Object.assign(new Error("no info"), { status: response.status });
  const { model, extractive, documents, passages, examples, limits } = await response.json();
  const upload = (limits?.upload_files ?? 0) > 0;
  return { model: extractive ? null : model, documents, passages, questions: examples ?? [], upload };
}

export function ask(messages, signal) {
  return fetch(at("v1/ragchat/answer"), {
    method: "POST",
    headers: headers({ "content-type": "application/json", accept: "text/event-stream" }),
    body: JSON.stringify({ messages }),
    signal,
  });
}

/** A part of a document between code points, with its neighbours: {before, text, after}, or null. */
export async function surroundings(documentId, { start, end }, around, signal) {
  const address = at(`v1/documents/${encodeURIComponent(documentId)}`);
  for (const [name, value] of Object.entries({ start, end, around })) {
    address.searchParams.set(name, String(value));
  }
  const response = await fetch(address, { headers: headers(), signal });
  return response.ok ? response.json() : null;
}

/** Sends one file; `progress` hears the share that is sent, 0 … 1. */
export function upload(file, progress) {
  return new Promise((resolve, reject) => {
    const form = new FormData();
    form.append("file", file);
    const request = new XMLHttpRequest(); // fetch cannot tell how much is sent
    request.open("POST", at("v1/documents"));
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) progress(event.loaded / event.total);
    });
    request.addEventListener("load", () => {
      const fault = request.response?.errors?.[0];
      if (fault) reject(new Error(fault.message || fault.error));
      else if (request.status < 300) resolve(request.response ?? {});
      else reject(new Error(request.response?.error?.message ?? `status ${request.status}`));
    });
    request.addEventListener("error", () => reject(new Error("the connection was lost")));
    request.send(form);
  });
}

