// The node is killed and started again between two requests of a stream: what was committed is there, and a transaction that was open is reported lost
// by a code of its own, never silently begun anew.
//
// With `streams-stay` as the second argument the node that is killed is one that does not lead. Streams that were opened through it live on the leader
// and outlive it: the transactions go on, unless they have idled for too long by then, which is said by its own code.

import { ask, assert, connect, errorOf, single } from "./harness.mjs";

const streamsStay = process.argv[3] === "streams-stay";

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

let kept = "1";
if (streamsStay) {
  const inTime = async (action) => {
    try {
      return await action();
    } catch (error) {
      assert.equal(error.code, "TRANSACTION_TIMEOUT", error.message);
      assert.match(error.message, /idle|time|long/i);
      return undefined;
    }
  };
  const wrote = await inTime(async () => {
    const three = await open.execute("INSERT INTO t (n) VALUES (3)");
    await open.commit();
    return three;
  });
  console.error(`the transaction that was open ${wrote === undefined ? "idled for too long" : "went on"}`);
  if (wrote !== undefined) {
    assert.equal(wrote.rowsAffected, 1);
    kept = "1,2,3";
  }
  const read = await inTime(() => reading.execute("SELECT count(*) FROM t"));
  assert.ok(read === undefined || single(read) === 1, "a transaction that reads keeps the state it began with");
  await inTime(() => committing.commit());
} else {
  const lost = await errorOf(() => open.execute("INSERT INTO t (n) VALUES (3)"));
  assert.equal(lost.code, "STREAM_EXPIRED", lost.message);
  assert.match(lost.message, /transaction/i);
  assert.match(lost.message, /lost/i);
  assert.equal((await errorOf(() => reading.execute("SELECT 1"))).code, "STREAM_EXPIRED");
  assert.equal((await errorOf(() => committing.commit())).code, "STREAM_EXPIRED");
}

// Stateless requests go on as if nothing had happened.
assert.equal(single(await db.execute("SELECT group_concat(n) FROM t")), kept);
const anew = await db.transaction("write");
await anew.execute("INSERT INTO t (n) VALUES (4)");
await anew.commit();
assert.equal(single(await db.execute("SELECT group_concat(n) FROM t")), `${kept},4`);
