// Splits a WebAssembly module in two, so that only the calls that need the second one load it.
import binaryen from "binaryen";

/**
 * Moves the functions whose names start with one of `starts`, and all that only they call, to a second module. The first
 * module calls them through a table, which the second one fills. The second module imports everything else.
 */
export function split(wasm, starts) {
  const [first, second] = [wasm, wasm].map((bytes) => binaryen.readBinary(bytes));
  const moved = functions(first).filter(({ name }) => starts.some((start) => name.startsWith(start)));
  const unknown = starts.filter((start) => !moved.some(({ name }) => name.startsWith(start)));
  if (unknown.length) throw new Error(`the module has no function ${unknown}`);
  const table = "second";
  first.addTable(table, moved.length, moved.length, binaryen.funcref);
  second.addTable(table, moved.length, moved.length, binaryen.funcref);
  second.runPasses(["remove-memory-init"]);
  for (const { name } of list(second, "Export")) second.removeExport(name);
  for (const { name } of list(second, "ElementSegment")) second.removeElementSegment(name);
  for (const [slot, { name, params, results }] of moved.entries()) {
    const operands = binaryen.expandType(params).map((type, at) => first.local.get(at, type));
    first.removeFunction(name);
    first.addFunction(name, params, results, [], first.call_indirect(table, first.i32.const(slot), operands, params, results));
  }
  second.addActiveElementSegment(table, table, moved.map(({ name }) => name), second.i32.const(0));

  first.addMemoryExport("0", "m");
  second.addMemoryImport("0", "", "m");
  for (const [at, { name }] of list(first, "Table").entries()) {
    first.addTableExport(name, `t${at}`);
    second.addTableImport(name, "", `t${at}`);
  }
  for (const [at, { name, type, mutable }] of list(first, "Global").entries()) {
    first.addGlobalExport(name, `g${at}`);
    second.addGlobalImport(name, "", `g${at}`, type, mutable);
  }
  first.runPasses(["remove-unused-module-elements"]);
  const names = new Set(moved.map(({ name }) => name));
  const kept = functions(first).filter(({ name }) => !names.has(name));
  for (const [at, { name, params, results }] of kept.entries()) {
    second.removeFunction(name);
    second.addFunctionImport(name, "", `f${at}`, params, results);
  }
  second.runPasses(["remove-unused-module-elements"]);
  for (const { name, module, base } of functions(second)) if (base) first.addFunctionExport(name, base);
  return [first, second].map((module) => {
    // Other optimizations save bytes that the compression has saved already.
    module.runPasses(["duplicate-function-elimination"]);
    return module.emitBinary();
  });
}

/** Returns the descriptions of all items of a kind. */
function list(module, kind) {
  const items = Array.from({ length: module[`getNum${kind}s`]() }, (_, at) => module[`get${kind}ByIndex`](at));
  return items.map(binaryen[`get${kind}Info`]);
}
const functions = (module) => list(module, "Function");
