// The node is killed and started again between two requests of a stream: what was committed is there, and a transaction that was open is reported lost
// by a code of its own, never silently begun anew.

import { ask, assert, connect, errorOf, single } from "./harness.mjs";

const db = connect();
await db.execute("CREATE TABLE t (n INTEGER)");
await db.execute("INSERT INTO t (n) VALUES (1)");

const open = await db.transaction("write");
await open.execute("INSERT INTO t (n) VALUES (2)");
const reading = await db.transaction("read");
assert.equal(single(await reading.execute("SELECT count(*) FROM t")), 1);
const committing = await db.transaction("deferred");
assert.equal(single(await committing.execute("SELECT count(*) FROM t")), 1);

await ask("restart");

const lost = await errorOf(() => open.execute("INSERT INTO t (n) VALUES (3)"));
assert.equal(lost.code, "STREAM_EXPIRED", lost.message);
assert.match(lost.message, /transaction/i);
assert.match(lost.message, /lost/i);
assert.equal((await errorOf(() => reading.execute("SELECT 1"))).code, "STREAM_EXPIRED");
assert.equal((await errorOf(() => committing.commit())).code, "STREAM_EXPIRED");

// Stateless requests go on as if nothing had happened.
assert.equal(single(await db.execute("SELECT group_concat(n) FROM t")), "1");
const anew = await db.transaction("write");
await anew.execute("INSERT INTO t (n) VALUES (4)");
await anew.commit();
assert.equal(single(await db.execute("SELECT group_concat(n) FROM t")), "1,4");
