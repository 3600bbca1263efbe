// `executeMultiple`: a script of statements, with what makes scripts hard to split, and one that fails in the middle.

import { assert, connect, errorOf, plain, single } from "./harness.mjs";

const db = connect();
await db.executeMultiple(`
  -- A comment; with a semicolon.
  CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT);
  CREATE TABLE log (what TEXT);
  CREATE TRIGGER after_insert AFTER INSERT ON t BEGIN
    INSERT INTO log (what) VALUES ('one;');
    INSERT INTO log (what) VALUES (new.text);
  END;
  /* Another; comment */ INSERT INTO t (text) VALUES ('semi;colon'), ('it''s');
  ;
  BEGIN; INSERT INTO t (text) VALUES ('in a transaction'); COMMIT;
  SELECT * FROM t
`);
assert.equal(single(await db.execute("SELECT count(*) FROM t")), 3);
assert.deepEqual(plain(await db.execute("SELECT what FROM log WHERE what <> 'one;' ORDER BY rowid")), [
  ["semi;colon"],
  ["it's"],
  ["in a transaction"],
]);

// It stops at the first error; what was committed before stays, what was open is undone with its stream.
const error = await errorOf(() =>
  db.executeMultiple(`
    INSERT INTO t (text) VALUES ('kept');
    BEGIN;
    INSERT INTO t (text) VALUES ('undone');
    INSERT INTO nowhere VALUES (1);
    COMMIT;
  `),
);
assert.match(error.message, /nowhere/);
assert.deepEqual(plain(await db.execute("SELECT text FROM t WHERE id > 3")), [["kept"]]);
