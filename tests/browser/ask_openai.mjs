// Asks the server with the official OpenAI client, in one of several ways; prints what came of it.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [, , baseURL, modules, way] = process.argv;
const found = createRequire(`${modules}/`).resolve("openai");
const { default: OpenAI } = await import(pathToFileURL(found));
const client = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0 });
const question = { role: "user", content: "How many days of paid leave are there?" };
const request = { model: "any", messages: [question] };
const handed = [];
const days = {
  type: "function",
  function: {
    name: "days",
    description: "Days of leave that a person has left.",
    parameters: { type: "object", properties: { who: { type: "string" } } },
    parse: JSON.parse,
    function: ({ who }) => {
      handed.push(who);
      return "11";
    },
  },
};

const ways = {
  async call() {
    const { data, response } = await client.chat.completions.create(request).withResponse();
    return { status: response.status, ...data };
  },
  async stream() {
    const chunks = [];
    const stream = await client.chat.completions.create({
      ...request,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const chunk of stream) chunks.push(chunk);
    return chunks;
  },
  async helper() {
    return client.chat.completions.stream(request).finalChatCompletion();
  },
  async tools() {
    const runner = client.chat.completions.runTools({ ...request, tools: [days] });
    return { said: await runner.finalContent(), messages: runner.messages, handed };
  },
  async streamedTools() {
    const runner = client.chat.completions.runTools({ ...request, stream: true, tools: [days] });
    return { said: await runner.finalContent(), messages: runner.messages, handed };
  },
  async models() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    return names;
  },
};

function raised(error) {
  const { status, code, type, param } = error;
  return { raised: error.constructor.name, status, code, type, param, message: error.message };
}
console.log(JSON.stringify(await ways[way]().catch(raised)));
