// `migrate`: rebuilding a table that others refer to, with foreign keys off. Every child row must survive it, and foreign keys must be on again.

import { assert, connect, errorOf, plain, single } from "./harness.mjs";

const db = connect();
await db.batch(
  [
    "CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT)",
    "CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL REFERENCES parent (id) ON DELETE CASCADE)",
    "INSERT INTO parent (id, name) VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "INSERT INTO child (parent) SELECT 1 + value % 3 FROM json_each('[0,1,2,3,4,5,6,7,8,9,10,11]')",
  ],
  "write",
);
const children = plain(await db.execute("SELECT id, parent FROM child ORDER BY id"));
assert.equal(children.length, 12);

const rebuild = [
  "CREATE TABLE parent_new (id INTEGER PRIMARY KEY, name TEXT NOT NULL, born INTEGER NOT NULL DEFAULT 0)",
  "INSERT INTO parent_new (id, name) SELECT id, name FROM parent",
  "DROP TABLE parent",
  "ALTER TABLE parent_new RENAME TO parent",
];
const results = await db.migrate(rebuild);
assert.equal(results.length, rebuild.length);
assert.deepEqual(plain(await db.execute("SELECT id, parent FROM child ORDER BY id")), children);
assert.deepEqual(plain(await db.execute("SELECT id, name, born FROM parent ORDER BY id")), [
  [1, "a", 0],
  [2, "b", 0],
  [3, "c", 0],
]);
assert.deepEqual(plain(await db.execute("PRAGMA foreign_key_check")), []);

// Foreign keys are on for everybody else, before, during and after.
assert.equal(single(await db.execute("PRAGMA foreign_keys")), 1);
const orphan = await errorOf(() => db.execute("INSERT INTO child (parent) VALUES (99)"));
assert.equal(orphan.code, "SQLITE_CONSTRAINT");
await db.execute("DELETE FROM parent WHERE id = 3");
assert.equal(single(await db.execute("SELECT count(*) FROM child")), 8, "the cascade works on the rebuilt table");

// A migration that fails in the middle changes nothing.
const before = plain(await db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name"));
const broken = await errorOf(() => db.migrate(["DROP TABLE child", "CREATE TABLE parent (id INTEGER)"]));
assert.match(broken.message, /parent/);
assert.deepEqual(plain(await db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name")), before);
assert.equal(single(await db.execute("SELECT count(*) FROM child")), 8);
