// Prints how wide each part of the bar is, as JSON: `node stage_bar.mjs STATIC STAGES TOTAL`.
// The bar needs no layout, so a document that only keeps what is made will do.

const [folder, stages, total] = process.argv.slice(2);
const made = () => ({
  style: {},
  children: [],
  append(...more) { this.children.push(...more); },
  setAttribute() {},
});
globalThis.document = { createElement: made };

const { stageBar } = await import(`${folder}/ragchat-parts.js`);
const state = { stages: JSON.parse(stages), degraded: [] };
const [summary] = stageBar(state, Number(total)).children;
const [bar] = summary.children;
console.log(JSON.stringify(bar.children.map((part) => Math.round(Number(part.style.flexGrow)))));
