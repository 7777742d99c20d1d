// Holds dashboards, as JSON in the files named as arguments, to the types that Grafana publishes of them in
// @grafana/schema: the classic model, and each panel's options and field options. Prints what does not fit.
'use strict';

const fs = require('fs');
const path = require('path');
const ts = require('typescript');

const PACKAGE = path.join(__dirname, 'node_modules/@grafana/schema');
const SCHEMA = JSON.parse(fs.readFileSync(path.join(PACKAGE, 'package.json'), 'utf8'));
const CHECKED = path.join(__dirname, 'checked.ts'); // is never written
const OPTIONS = {
  lib: ['lib.es2022.d.ts', 'lib.dom.d.ts'],
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  noEmit: true,
  skipLibCheck: true,
  strict: true,
  target: ts.ScriptTarget.ES2022,
  types: [],
};
// What grafana-foundation-sdk 0.0.21 writes though Grafana 12.4 has no such keys (any more), and leaves unread.
const BEYOND_VARIABLE = ['auto', 'auto_count', 'auto_min'];
const BEYOND_OPTIONS = { table: ['footer'] };
// JSON has a text where TypeScript has a member of an enum.
const HEAD = `
type Plain<T> = unknown extends T ? T : T extends string ? \`\${T}\` : T extends (infer One)[] ? Plain<One>[]
  : T extends object ? { [Key in keyof T]: Plain<T[Key]> } : T;
`;

function without(found, names) {
  return Object.fromEntries(Object.entries(found).filter(([name]) => !names.includes(name)));
}

function imported(name, module) {
  return `import type * as ${name} from '@grafana/schema/${module.replace(/^\.\//, '')}';\n`;
}

function moduleOf(folder) {
  return Object.keys(SCHEMA.exports).find((name) => name.startsWith(`./dist/esm/raw/${folder}/`));
}

// A panel's options and field options are of any form in the dashboard's own type; each kind of panel has its own.
function panelChecks(panel, name) {
  const kind = panel.type.replace(/-/g, '');
  const module = moduleOf(`composable/${kind}/panelcfg`);
  if (module === undefined) {
    throw new Error(`no panel of type ${panel.type} in @grafana/schema`);
  }
  const declares = fs.readFileSync(path.join(PACKAGE, SCHEMA.exports[module].types), 'utf8');
  const options = JSON.stringify(without(panel.options ?? {}, BEYOND_OPTIONS[panel.type] ?? []));
  const text = `${imported(name, module)}const ${name}_options: Plain<${name}.Options> = ${options};\n`;
  if (!declares.includes('interface FieldConfig')) {
    return text;
  }
  const custom = JSON.stringify(panel.fieldConfig?.defaults?.custom ?? {});
  return `${text}const ${name}_custom: Partial<Plain<${name}.FieldConfig>> = ${custom};\n`;
}

function source(board) {
  const list = board.templating.list.map((one) => without(one, BEYOND_VARIABLE));
  const json = JSON.stringify({ ...board, templating: { ...board.templating, list } });
  const shown = board.panels.flatMap((panel) => (panel.type === 'row' ? panel.panels ?? [] : [panel]));
  const checks = shown.map((panel) => panelChecks(panel, `panel_${panel.id}`));
  return `${HEAD}${imported('model', moduleOf('dashboard'))}const board: Plain<model.Dashboard> = ${json};
${checks.join('')}export {};
`;
}

function faults(board) {
  const text = source(board);
  const host = ts.createCompilerHost(OPTIONS);
  const { fileExists, getSourceFile, readFile } = host;
  host.fileExists = (name) => name === CHECKED || fileExists(name);
  host.readFile = (name) => (name === CHECKED ? text : readFile(name));
  host.getSourceFile = (name, ...rest) =>
    name === CHECKED ? ts.createSourceFile(name, text, OPTIONS.target) : getSourceFile(name, ...rest);
  const program = ts.createProgram([CHECKED], OPTIONS, host);
  return ts.getPreEmitDiagnostics(program).map((one) => {
    const around = one.file === undefined ? '' : one.file.text.slice(one.start, one.start + 60).split('\n')[0];
    return `${ts.flattenDiagnosticMessageText(one.messageText, ' ')} [${around}]`;
  });
}

for (const file of process.argv.slice(2)) {
  for (const fault of faults(JSON.parse(fs.readFileSync(file, 'utf8')))) {
    console.log(`${path.basename(file)}: ${fault}`);
  }
}
