// Constraint errors of every kind: the code clients look for, and a message that names what was violated.

import { assert, connect, errorOf, single } from "./harness.mjs";

const db = connect();
await db.executeMultiple(`
  CREATE TABLE p (id INTEGER PRIMARY KEY, u TEXT UNIQUE, c INTEGER CHECK (c > 0), n TEXT NOT NULL DEFAULT '') STRICT;
  CREATE TABLE f (p INTEGER REFERENCES p (id) DEFERRABLE INITIALLY IMMEDIATE, d INTEGER REFERENCES p (id) DEFERRABLE INITIALLY DEFERRED);
  INSERT INTO p (id, u, c) VALUES (1, 'taken', 1);
  CREATE TRIGGER forbid BEFORE DELETE ON p BEGIN SELECT RAISE(ABORT, 'never delete'); END;
`);
const cases = [
  ["INSERT INTO p (id) VALUES (1)", /p\.id/],
  ["INSERT INTO p (u) VALUES ('taken')", /p\.u/],
  ["INSERT INTO p (c) VALUES (0)", /CHECK/],
  ["INSERT INTO p (n) VALUES (NULL)", /p\.n/],
  ["INSERT INTO p (c) VALUES ('text')", /INTEGER/],
  ["INSERT INTO f (p) VALUES (99)", /FOREIGN KEY/],
  ["INSERT INTO f (d) VALUES (99)", /FOREIGN KEY/],
  ["DELETE FROM p", /never delete/],
];
for (const [sql, message] of cases) {
  const error = await errorOf(() => db.execute(sql));
  assert.equal(error.code, "SQLITE_CONSTRAINT", sql);
  assert.match(error.message, message, sql);
  const inBatch = await errorOf(() => db.batch(["SELECT 1", sql], "write"));
  assert.equal(inBatch.code, "SQLITE_CONSTRAINT", sql);
}
assert.equal(single(await db.execute("SELECT count(*) FROM p")), 1);
assert.equal(single(await db.execute("SELECT count(*) FROM f")), 0);

// A deferred violation is found at COMMIT, and the transaction can still be mended.
const transaction = await db.transaction("write");
await transaction.execute("INSERT INTO f (d) VALUES (2)");
await transaction.execute("INSERT INTO p (id, c) VALUES (2, 5)");
await transaction.commit();
assert.equal(single(await db.execute("SELECT count(*) FROM f")), 1);
const unmended = await db.transaction("write");
await unmended.execute("INSERT INTO f (d) VALUES (77)");
assert.equal((await errorOf(() => unmended.commit())).code, "SQLITE_CONSTRAINT");
assert.equal(single(await db.execute("SELECT count(*) FROM f")), 1);
