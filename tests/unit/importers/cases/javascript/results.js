// Writes results.json: what JavaScript gives for each operator and function on values of every type.
// Run `node results.js` in this folder after a change of the lists below.
const fs = require("fs");

const input = {
  n: 7, neg: -7, zero: 0, half: 2.5, digits: "5", decimals: "2.50", spaced: " 3 ", word: "abc", empty: "",
  yes: true, no: false, none: null, list: [3, 10, 2], no_list: [], object: { a: 1, length: 9 }, no_object: {},
};
const operands = [
  ...Object.keys(input).map((each) => `$json.${each}`), "$json.missing", "2", "2.5", "'5'", "'a'", "''", "true", "null",
];
const binary = ["+", "-", "*", "/", "%", "**", "<", ">", "<=", ">=", "==", "!=", "===", "!==", "&&", "||", "??"];
const unary = [
  "!(x)", "!!(x)", "-(x)", "+(x)", "typeof (x)", "(x) ? 'y' : 'n'", "`v${x}`", "'v' + (x)", "(x) + 'v'", "Number(x)",
  "String(x)", "Boolean(x)", "parseInt(x)", "parseFloat(x)", "Math.round(x)", "Math.floor(x)", "Math.ceil(x)",
  "Math.trunc(x)", "Math.abs(x)", "Math.max(x, 3)", "Math.min(x, '3')", "(x).length", "(x)?.length", "Array.isArray(x)",
  "[x].filter(y => y)", "[x].some(y => y)", "[x].every(y => y)", "[x].find(y => !y)", "[1, 2, 3][x]", "$json.object[x]",
  "$json.list[x]", "(x).slice(-2)", "(x).split()", "(x).toString()", "(x) === undefined", "(x) === null",
  "(x) != null", "(x) || (x) || 'd'", "(x) && 'y' || 'n'", "!(x) && 1", "((x) ?? 1) * 2", "(x) * 2 ?? 3",
  "(x) * 2 + ' pieces'", "(x) * 2.5 + ''",
];

// Numbers that JSON has no form for, and errors, are null under `fails`.
function value(source) {
  const $json = structuredClone(input);
  try {
    const found = eval(`(${source})`);
    if (typeof found === "number" && !Number.isFinite(found)) return { fails: null };
    return found === undefined ? null : found;
  } catch {
    return { fails: null };
  }
}

const rows = [];
for (const operator of binary)
  for (const left of operands)
    rows.push([`(${left}) ${operator} (x)`, operands.map((each) => value(`(${left}) ${operator} (${each})`))]);
for (const source of unary) rows.push([source, operands.map((each) => value(source.replace(/\bx\b/g, () => each)))]);
const lines = rows.map((each) => JSON.stringify(each));
fs.writeFileSync("results.json", `{"input": ${JSON.stringify(input)},\n"operands": ${JSON.stringify(operands)},\n"rows": [\n${lines.join(",\n")}\n]}\n`);
