// The look of <ragchat-answer>. A page changes it by custom properties (`--ragchat-…`) and parts.

const css = `
:host {
  --text: var(--ragchat-text, #23211e);
  --muted: var(--ragchat-muted, #635e57);
  --line: var(--ragchat-line, #ddd8cf);
  --soft: var(--ragchat-soft, #f3f0ea);
  --surface: var(--ragchat-surface, #fffefb);
  --accent: var(--ragchat-accent, #0b5e57);
  --mark: var(--ragchat-mark, #cfe6e0);
  display: block;
  color: var(--text);
  font: 400 1.0625rem/1.65 var(--ragchat-font, system-ui, sans-serif);
  overflow-wrap: break-word;
}
@media (prefers-color-scheme: dark) {
  :host {
    --text: var(--ragchat-text, #e8e4dc);
    --muted: var(--ragchat-muted, #a8a297);
    --line: var(--ragchat-line, #3a3833);
    --soft: var(--ragchat-soft, #272622);
    --surface: var(--ragchat-surface, #1f1e1b);
    --accent: var(--ragchat-accent, #7fc9bd);
    --mark: var(--ragchat-mark, #23473f);
  }
}
:host([hidden]), [hidden] { display: none !important; }
* { box-sizing: border-box; }
.unseen {
  position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap;
}
button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }

.answer > :first-child { margin-top: 0; }
.answer > :last-child { margin-bottom: 0; }
p, ul, ol, pre, blockquote, .scroll { margin: 0 0 1em; }
h3, h4, h5, h6 { margin: 1.5em 0 .4em; font-weight: 600; line-height: 1.3; font-size: 1.05em; }
h3 { font-size: 1.25em; }
h4 { font-size: 1.12em; }
ul, ol { padding: 0; }
li { margin: .25em 0; margin-inline-start: 1.5em; } /* on the side where its own text begins */
li > ul, li > ol { margin-bottom: .25em; }
strong, th { font-weight: 600; }
a { color: var(--accent); text-underline-offset: .15em; }
blockquote { padding-inline-start: 1em; border-inline-start: 3px solid var(--line); color: var(--muted); }
hr { border: 0; border-top: 1px solid var(--line); margin: 1.5em 0; }
code { font: .88em/1.5 var(--ragchat-mono, ui-monospace, monospace); background: var(--soft); padding: .1em .3em; border-radius: 4px; }
pre { background: var(--soft); padding: .8em 1em; border-radius: 8px; overflow-x: auto; }
pre code { padding: 0; background: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .94em; line-height: 1.45; font-variant-numeric: tabular-nums; }
th, td { padding: .45em .9em .45em 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { border-bottom-color: var(--muted); }
.start { text-align: start; } .center { text-align: center; } .end { text-align: end; }

.chips { white-space: nowrap; }
.chip {
  display: inline-block; min-width: 1.6em; margin-inline-start: .22em; padding: 0 .4em;
  font-size: .72em; font-weight: 600; line-height: 1.55; text-align: center; vertical-align: .18em;
  font-variant-numeric: tabular-nums; color: var(--accent);
  background: color-mix(in srgb, var(--accent) 11%, transparent); border-radius: 5px;
  position: relative; transition: background-color 120ms, color 120ms;
}
/* A larger place to hit than what is seen. */
.chip::after { content: ""; position: absolute; inset: -.55em -.2em; }
.chip:hover { background: color-mix(in srgb, var(--accent) 22%, transparent); }
.chip[aria-current="true"] { background: var(--accent); color: var(--surface); }
.chip.unknown { color: var(--muted); background: none; border: 1px dashed var(--muted); cursor: help; line-height: 1.35; }
.doubt { text-decoration: underline dotted var(--muted) 1.5px; text-underline-offset: .28em; cursor: help; }

.progress { min-height: 2em; margin-bottom: .35em; color: var(--muted); font-size: .85rem; line-height: 2em; }
.now { display: flex; gap: .6em; align-items: center; }
.now::before { content: ""; flex: none; width: .5em; height: .5em; border-radius: 50%; background: var(--accent); animation: breathe 1.6s ease-in-out infinite; }
.now .time { font-variant-numeric: tabular-nums; }
@keyframes breathe { 50% { opacity: .25; } }
.progress summary { display: flex; gap: .8em; align-items: center; cursor: pointer; width: fit-content; list-style: none; }
.progress summary::-webkit-details-marker { display: none; }
.bar { display: flex; gap: 2px; width: 6rem; height: 4px; }
.bar i { background: color-mix(in srgb, var(--accent) 40%, transparent); min-width: 2px; border-radius: 2px; }
.bar i:last-child { background: var(--accent); }
.bar i.skipped { background: var(--muted); }
.progress dl { display: grid; grid-template-columns: max-content max-content; gap: 0 1.5em; margin: .2em 0 .8em; line-height: 1.7; }
.progress dd { margin: 0; text-align: end; font-variant-numeric: tabular-nums; }
.progress dl .wide { grid-column: 1 / -1; text-align: start; }

.notice { margin: 0 0 1em; padding-inline-start: .9em; border-inline-start: 3px solid var(--muted); color: var(--muted); font-size: .94em; }
.failure { margin: 1em 0 0; padding: .7em 1em; border: 1px solid var(--line); border-inline-start: 3px solid var(--text); border-radius: 6px; font-size: .94em; }
.failure button { margin-inline-start: .6em; color: var(--accent); font-weight: 600; text-decoration: underline; text-underline-offset: .2em; }
.reasoning { margin: 0 0 1em; color: var(--muted); font-size: .9em; white-space: pre-wrap; }
.reasoning summary { cursor: pointer; }

.sources { margin-top: 1.4em; padding-top: .8em; border-top: 1px solid var(--line); font-size: .9rem; line-height: 1.45; }
.sources h3 { margin: 0 0 .3em; font-size: .85rem; font-weight: 600; color: var(--muted); }
.sources summary { color: var(--muted); font-size: .85rem; cursor: pointer; padding: .35em 0; width: fit-content; }
.sources ul { list-style: none; margin: 0; padding: 0; }
.sources li { margin: 0; }
.source { display: flex; gap: .7em; align-items: baseline; width: 100%; padding: .38em .4em; margin-inline: -.4em; text-align: start; border-radius: 6px; }
.source:hover { background: var(--soft); }
.source .number { flex: none; min-width: 1.7em; text-align: center; font-size: .78em; font-weight: 600; color: var(--accent); background: color-mix(in srgb, var(--accent) 11%, transparent); border-radius: 5px; font-variant-numeric: tabular-nums; }
.source .number.none { color: var(--muted); background: none; }
.source .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 60%; }
.source .place { color: var(--muted); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; flex: 1; }

.card {
  position: fixed; margin: 0; inset: auto; width: min(23rem, calc(100vw - 1.5rem)); padding: .8rem 1rem;
  color: var(--text); background: var(--surface); border: 1px solid var(--line); border-radius: 10px;
  box-shadow: 0 6px 24px rgb(0 0 0 / .14); font-size: .875rem; line-height: 1.5; pointer-events: none;
}
.card .title { margin: 0; font-weight: 600; }
.card .where { margin: 0 0 .5em; color: var(--muted); font-size: .8rem; }
.card .quote { margin: 0; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 7; overflow: hidden; }
.card .why { margin: .5em 0 0; color: var(--muted); }
mark { background: var(--mark); color: inherit; border-radius: 2px; padding: .05em 0; }

@media (prefers-reduced-motion: reduce) { *, *::before { animation: none !important; transition: none !important; } }
@media (forced-colors: active) { .chip { border: 1px solid ButtonText; } mark { background: Mark; color: MarkText; } }
`;

/** A constructed sheet: a strict Content-Security-Policy forbids <style>, not this. */
export const sheet = new CSSStyleSheet();
sheet.replaceSync(css);
