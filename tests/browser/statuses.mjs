// Prints the status of an answer after each event, as JSON: `node statuses.mjs STATIC EVENTS`.

const [folder, events] = process.argv.slice(2);
const { AnswerState } = await import(`${folder}/ragchat-events.js`);
const state = new AnswerState();
console.log(JSON.stringify(JSON.parse(events).map((event) => state.feed(event).status)));
