// Reads questions as JSON from standard input and prints what @grafana/data answers.
//
//   units            [[unit, value, decimals or null], ...]  ->  texts
//   reducers         [[calculation, values], ...]            ->  values; "NaN" stands for one that is no number
//   transformations  [{steps, frames}, ...]                  ->  of each the frames: [[shown name, values], ...]
//
// questions.py asks them; see ../README.md.
'use strict';

const fs = require('fs');

const answer = console.log;
console.log = console.info = console.error; // packages print there; standard output is for the answers

// Grafana's packages expect a browser as soon as they are loaded.
const { JSDOM } = require('jsdom');
const { window } = new JSDOM('<!doctype html><html></html>', { url: 'http://localhost' });
global.window = window;
global.document = window.document;
global.self = window;
global.navigator ??= window.navigator;
for (const name of ['HTMLElement', 'Element', 'Node', 'DOMParser', 'localStorage', 'getComputedStyle']) {
  global[name] ??= window[name];
}

const grafana = require('@grafana/data');
const { firstValueFrom } = require('rxjs');

const transformers = Object.values(grafana.standardTransformers);
grafana.standardTransformersRegistry.setInit(() =>
  transformers
    .filter((one, index) => transformers.findIndex((other) => other.id === one.id) === index)
    .map((one) => ({ id: one.id, name: one.name ?? one.id, transformation: one, aliasIds: [] }))
);

const UNITS = new Set(grafana.getValueFormats().flatMap((group) => group.submenu.map((one) => one.value)));

function text([unit, value, decimals]) {
  if (!UNITS.has(unit) && !unit.startsWith('suffix:')) {
    throw new Error(`no unit ${unit} in @grafana/data`); // it would stand behind the number as it is
  }
  return grafana.formattedValueToString(grafana.getValueFormat(unit)(value, decimals ?? undefined));
}

function reduced([calculation, values]) {
  if (!grafana.fieldReducers.getIfExists(calculation)) {
    throw new Error(`no reducer ${calculation} in @grafana/data`);
  }
  const numbers = values.map((one) => (one === 'NaN' ? NaN : one));
  const field = { name: 'Value', type: 'number', config: {}, values: numbers };
  const value = grafana.reduceField({ field, reducers: [calculation] })[calculation];
  return Number.isNaN(value) ? 'NaN' : value ?? null;
}

async function transformed({ steps, frames }) {
  for (const step of steps) {
    if (!grafana.standardTransformersRegistry.getIfExists(step.id)) {
      throw new Error(`no transformation ${step.id} in @grafana/data`);
    }
  }
  const data = frames.map(({ refId, fields }) =>
    grafana.toDataFrame({ refId, fields: fields.map((one) => ({ ...one, config: {} })) })
  );
  const made = await firstValueFrom(grafana.transformDataFrame(steps, data));
  return made.map((frame) =>
    frame.fields.map((field) => [
      grafana.getFieldDisplayName(field, frame, made),
      Array.from(field.values, (one) => one ?? null),
    ])
  );
}

async function main() {
  const asked = JSON.parse(fs.readFileSync(0, 'utf8'));
  const transformations = [];
  for (const one of asked.transformations) {
    transformations.push(await transformed(one));
  }
  const { version } = JSON.parse(fs.readFileSync(`${__dirname}/node_modules/@grafana/data/package.json`, 'utf8'));
  const [units, reducers] = [asked.units.map(text), asked.reducers.map(reduced)];
  answer(JSON.stringify({ version, units, reducers, transformations }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
