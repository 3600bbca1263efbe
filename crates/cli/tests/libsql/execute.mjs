// `execute`: positional and named arguments, every type of value there and back, what a result says about itself.

import { assert, connect, errorOf, plain, single } from "./harness.mjs";

const db = connect();
await db.execute("CREATE TABLE v (id INTEGER PRIMARY KEY, value ANY)");

// Positional and named arguments, with each of the prefixes SQLite knows.
assert.deepEqual(plain(await db.execute("SELECT ?, ?2, ?1", ["a", "b"])), [["a", "b", "a"]]);
for (const prefix of [":", "@", "$"]) {
  const sql = `SELECT ${prefix}x, ${prefix}y`;
  assert.deepEqual(plain(await db.execute({ sql, args: { x: "a", y: "b" } })), [["a", "b"]], sql);
}

// Every type of value, there and back.
const bytes = new Uint8Array(256).map((_, i) => i);
const values = [
  [null, null, "null"],
  [1.5, 1.5, "real"],
  [-0.1e-300, -0.1e-300, "real"],
  ["", "", "text"],
  ["Ærøskøbing 東京 🚢", "Ærøskøbing 東京 🚢", "text"],
  ["it's; -- not /* a comment */", "it's; -- not /* a comment */", "text"],
  [12n, 12, "integer"],
  [true, 1, "integer"],
  [false, 0, "integer"],
];
for (const [sent, expected, type] of values) {
  const answer = await db.execute({ sql: "INSERT INTO v (value) VALUES (?) RETURNING value, typeof(value)", args: [sent] });
  assert.deepEqual(plain(answer), [[expected, type]]);
  const kept = await db.execute("SELECT value, typeof(value) FROM v ORDER BY id DESC LIMIT 1");
  assert.deepEqual(plain(kept), [[expected, type]]);
}
for (const blob of [bytes, bytes.buffer, new Uint8Array(0)]) {
  const answer = await db.execute({ sql: "SELECT ?1, typeof(?1)", args: [blob] });
  assert.equal(answer.rows[0][1], "blob");
  assert.deepEqual(new Uint8Array(answer.rows[0][0]), new Uint8Array(blob));
}

// Integers beyond 2^53: exact where asked for, an error and not a wrong number where not.
const large = connect({ intMode: "bigint" });
for (const integer of [2n ** 63n - 1n, -(2n ** 63n), 2n ** 53n + 1n]) {
  assert.equal(single(await large.execute({ sql: "SELECT ?", args: [integer] })), integer);
}
await assert.rejects(db.execute({ sql: "SELECT ?", args: [2n ** 62n] }), RangeError);
const textual = connect({ intMode: "string" });
assert.equal(single(await textual.execute("SELECT 9223372036854775807")), "9223372036854775807");

// What a result says about itself.
const inserted = await db.execute("INSERT INTO v (id, value) VALUES (100, 'x'), (101, 'y')");
assert.equal(inserted.rowsAffected, 2);
assert.equal(inserted.lastInsertRowid, 101n);
const updated = await db.execute("UPDATE v SET value = 'z' WHERE id >= 100");
assert.equal(updated.rowsAffected, 2);
const described = await db.execute("SELECT id, value AS renamed, 1 + 1 FROM v WHERE id = 100");
assert.deepEqual(described.columns, ["id", "renamed", "1 + 1"]);
assert.equal(described.columnTypes[0], "INTEGER");
assert.equal(described.rows[0].renamed, "z");

// Errors keep their codes and the node goes on.
const cases = [
  ["SELECT", "SQL_PARSE_ERROR"],
  ["SELEC 1", "SQL_PARSE_ERROR"],
  ["", "SQL_NO_STATEMENT"],
  ["-- nothing", "SQL_NO_STATEMENT"],
  ["SELECT 1; SELECT 2", "SQL_MANY_STATEMENTS"],
];
for (const [sql, code] of cases) {
  assert.equal((await errorOf(() => db.execute(sql))).code, code, JSON.stringify(sql));
}
const missing = await errorOf(() => db.execute("SELECT * FROM nowhere"));
assert.match(missing.message, /nowhere/);
const unbound = await errorOf(() => db.execute("SELECT ?", []));
assert.equal(unbound.code, "ARGS_INVALID");
assert.equal(single(await db.execute("SELECT 1")), 1);
