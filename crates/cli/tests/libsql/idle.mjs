// A transaction that idles too long: it is ended so that others can write, and the next request on it is told what was lost.

import { assert, connect, errorOf, single } from "./harness.mjs";

const db = connect();
await db.execute("CREATE TABLE t (n INTEGER)");

const idle = await db.transaction("write");
await idle.execute("INSERT INTO t (n) VALUES (1)");

// Somebody else's write waits for the writer, and is the sign that the idle transaction was ended.
let other;
for (let attempt = 0; ; attempt += 1) {
  assert.ok(attempt < 20, "the idle transaction was never ended");
  try {
    other = await db.execute("INSERT INTO t (n) VALUES (2)");
    break;
  } catch (error) {
    assert.equal(error.code, "TRANSACTION_BUSY", error.message);
  }
}
assert.equal(other.rowsAffected, 1);

const lost = await errorOf(() => idle.execute("INSERT INTO t (n) VALUES (3)"));
assert.equal(lost.code, "TRANSACTION_TIMEOUT", lost.message);
assert.match(lost.message, /transaction/i);
assert.equal(single(await db.execute("SELECT group_concat(n) FROM t")), "2", "nothing of the idle transaction stays");

// A COMMIT that comes too late is not taken for one.
const late = await db.transaction("write");
await late.execute("INSERT INTO t (n) VALUES (4)");
for (let attempt = 0; ; attempt += 1) {
  assert.ok(attempt < 20, "the idle transaction was never ended");
  try {
    await db.execute("INSERT INTO t (n) VALUES (5)");
    break;
  } catch (error) {
    assert.equal(error.code, "TRANSACTION_BUSY", error.message);
  }
}
const refused = await errorOf(() => late.commit());
assert.equal(refused.code, "TRANSACTION_TIMEOUT", refused.message);
assert.equal(single(await db.execute("SELECT group_concat(n) FROM t")), "2,5");
