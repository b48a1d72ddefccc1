// Reads a UI message stream with the AI SDK itself, as useChat does; prints message and errors.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [, , url, modules, question] = process.argv;
const found = createRequire(`${modules}/`).resolve("ai");
const { DefaultChatTransport, readUIMessageStream } = await import(pathToFileURL(found));
const transport = new DefaultChatTransport({ api: url });
const stream = await transport.sendMessages({
  trigger: "submit-message",
  chatId: "c",
  messages: [{ id: "u", role: "user", parts: [{ type: "text", text: question }] }],
  abortSignal: undefined,
});
const errors = [];
const [seen, read] = stream.tee();
let message = null;
const onError = (error) => errors.push(String(error.message ?? error));
for await (const next of readUIMessageStream({ stream: read, onError, terminateOnError: false })) {
  message = next;
}
const types = [];
for await (const chunk of seen) types.push(chunk.type);
console.log(JSON.stringify({ message, errors, types }));
