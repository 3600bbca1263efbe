// What every script here shares: the stock client, pointed at the node whose URL is the first argument, and a few checks.
// A script ends with code 0 if everything held; an assertion that fails ends it with another and says which.

import assert from "node:assert/strict";
import { once } from "node:events";
import readline from "node:readline";
import { createClient } from "@libsql/client";

export { assert };

/** The node's URL. */
export const url = process.argv[2];
assert.ok(url, "usage: node SCRIPT URL");

/** A client of the node, with the token that the environment names, if it does, and with what else the stock client can be configured with. */
export function connect(options = {}) {
  return createClient({ url, authToken: process.env.HIGHWATER_TOKEN, ...options });
}

/** The error that `action` must end in. */
export async function errorOf(action) {
  try {
    await action();
  } catch (error) {
    return error;
  }
  return assert.fail("this should have failed, and did not");
}

/** Rows as plain arrays, for comparing. */
export function plain(resultSet) {
  return resultSet.rows.map((row) => Array.from(row));
}

/** The one value of a result of one row and one column. */
export function single(resultSet) {
  assert.equal(resultSet.rows.length, 1);
  assert.equal(resultSet.columns.length, 1);
  return resultSet.rows[0][0];
}

/** Asks whoever runs this script to do something to the node, and waits until it is done. */
export async function ask(what) {
  const lines = readline.createInterface({ input: process.stdin });
  console.log(`ask: ${what}`);
  const [answer] = await once(lines, "line");
  lines.close();
  assert.equal(answer, `done: ${what}`);
}

// A node that hangs must not hang the tests.
setTimeout(() => {
  console.error("this script takes longer than two minutes");
  process.exit(3);
}, 120_000).unref();
