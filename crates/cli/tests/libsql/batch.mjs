// `batch` in each mode: all or nothing, results in order, reads only where promised.

import { assert, connect, errorOf, plain, single } from "./harness.mjs";

const db = connect();
await db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL)");

for (const mode of ["write", "deferred"]) {
  const results = await db.batch(
    [
      { sql: "INSERT INTO t (name) VALUES (?)", args: [mode] },
      ["INSERT INTO t (name) VALUES (:name)", { name: `${mode} again` }],
      "SELECT name FROM t ORDER BY id DESC LIMIT 2",
    ],
    mode,
  );
  assert.equal(results.length, 3);
  assert.equal(results[0].rowsAffected, 1);
  assert.equal(results[1].lastInsertRowid, results[0].lastInsertRowid + 1n);
  assert.deepEqual(plain(results[2]), [[`${mode} again`], [mode]]);
}

const read = await db.batch(["SELECT count(*) FROM t", "SELECT min(id) FROM t"], "read");
assert.deepEqual(read.map(single), [4, 1]);

// A batch that promised to read only is held to it, and changes nothing.
const refused = await errorOf(() => db.batch(["SELECT 1", "INSERT INTO t (name) VALUES ('x')"], "read"));
assert.equal(refused.code, "SQLITE_READONLY");
assert.equal(single(await db.execute("SELECT count(*) FROM t")), 4);

// A failing statement undoes those before it and those after it are not run; the error names its place.
for (const mode of ["write", "deferred"]) {
  const broken = ["INSERT INTO t (name) VALUES ('before')", "INSERT INTO t (name) VALUES (NULL)", "DELETE FROM t"];
  const error = await errorOf(() => db.batch(broken, mode));
  assert.equal(error.code, "SQLITE_CONSTRAINT");
  assert.equal(error.statementIndex, 1);
  assert.equal(single(await db.execute("SELECT count(*) FROM t")), 4, mode);
}

// The same text many times over, which the client stores on the server once.
const sql = "INSERT INTO t (name) VALUES (?)";
const many = Array.from({ length: 200 }, (_, i) => ({ sql, args: [`n${i}`] }));
const answers = await db.batch(many, "write");
assert.equal(answers.length, 200);
assert.equal(single(await db.execute("SELECT count(*) FROM t")), 204);

// Many at once from one client: each is one transaction.
await Promise.all(
  Array.from({ length: 20 }, () => db.batch(["UPDATE t SET name = name || '.' WHERE id = 1", "SELECT 1"], "write")),
);
assert.equal(single(await db.execute("SELECT length(name) - length(rtrim(name, '.')) FROM t WHERE id = 1")), 20);
