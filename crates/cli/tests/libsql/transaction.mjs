// Interactive transactions: commit, rollback, two interleaved.

import { assert, connect, errorOf, single } from "./harness.mjs";

const db = connect();
await db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE)");
const count = async (of = db) => single(await of.execute("SELECT count(*) FROM t"));

// Commit: seen inside at once, outside afterwards.
const kept = await db.transaction("write");
await kept.execute("INSERT INTO t (n) VALUES (1)");
assert.equal(await count(kept), 1);
assert.equal(await count(), 0, "nobody else may see it yet");
await kept.batch(["INSERT INTO t (n) VALUES (2)", "INSERT INTO t (n) VALUES (3)"]);
await kept.executeMultiple("INSERT INTO t (n) VALUES (4); INSERT INTO t (n) VALUES (5);");
await kept.commit();
assert.equal(kept.closed, true);
assert.equal(await count(), 5);

// Rollback, asked for and by closing.
const dropped = await db.transaction("write");
await dropped.execute("DELETE FROM t");
assert.equal(await count(dropped), 0);
await dropped.rollback();
assert.equal(await count(), 5);
const closed = await db.transaction("write");
await closed.execute("DELETE FROM t");
closed.close();
assert.equal(await count(), 5);

// An error inside leaves the transaction open, and the client decides.
const dented = await db.transaction("write");
await dented.execute("INSERT INTO t (n) VALUES (6)");
assert.equal((await errorOf(() => dented.execute("INSERT INTO t (n) VALUES (1)"))).code, "SQLITE_CONSTRAINT");
await dented.execute("INSERT INTO t (n) VALUES (7)");
await dented.commit();
assert.equal(await count(), 7);

// A reader beside a writer keeps the state it began with, whatever the writer does meanwhile.
const reader = await db.transaction("read");
assert.equal(await count(reader), 7);
const writer = await db.transaction("write");
await writer.execute("INSERT INTO t (n) VALUES (8)");
assert.equal(await count(reader), 7);
assert.equal(await count(writer), 8);
await writer.commit();
assert.equal(await count(reader), 7);
assert.equal((await errorOf(() => reader.execute("DELETE FROM t"))).code, "SQLITE_READONLY");
await reader.commit();
assert.equal(await count(), 8);

// Two that both write, interleaved: the one that read before the other committed may not write on what it saw.
const stale = await db.transaction("deferred");
const fresh = await db.transaction("deferred");
assert.equal(await count(stale), 8);
assert.equal(await count(fresh), 8);
await fresh.execute("INSERT INTO t (n) VALUES (9)");
await fresh.commit();
assert.equal((await errorOf(() => stale.execute("INSERT INTO t (n) VALUES (10)"))).code, "TRANSACTION_BUSY");
await stale.rollback();
assert.equal(await count(), 9);

// Two that take the writer at once: one after the other, both whole.
const both = await Promise.all(
  [20, 30].map(async (base) => {
    const transaction = await db.transaction("write");
    const before = await count(transaction);
    for (const n of [0, 1, 2]) {
      await transaction.execute({ sql: "INSERT INTO t (n) VALUES (?)", args: [BigInt(base + n)] });
    }
    const after = await count(transaction);
    await transaction.commit();
    return after - before;
  }),
);
assert.deepEqual(both, [3, 3]);
assert.equal(await count(), 15);
