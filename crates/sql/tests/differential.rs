//! Random transactions over every table shape, executed on one database and applied to another from the log's bytes: both hold the same, also when the leader
//! is rewound at random points, when the follower is given pieces that end anywhere, and when the follower is killed and starts again.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{Bench, Log, of, quick, reign, soon, statement, transaction};
use highwater_partition::StateMachine;
use highwater_sql::{Database, Options};

/// A small generator: the same seed, the same run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

const SCHEMA: &[&str] = &[
    "CREATE TABLE plain(id INTEGER PRIMARY KEY, u UNIQUE, n INT CHECK (n IS NULL OR n <> 13), r REAL)",
    "CREATE TABLE auto(id INTEGER PRIMARY KEY AUTOINCREMENT, u UNIQUE)",
    "CREATE TABLE texts(k TEXT PRIMARY KEY, v)",
    "CREATE TABLE nokey(a, b)",
    "CREATE TABLE pair(a, b, c COLLATE NOCASE, PRIMARY KEY(b, a)) WITHOUT ROWID",
    "CREATE TABLE strict(id INTEGER PRIMARY KEY, t TEXT NOT NULL, a ANY) STRICT",
    "CREATE TABLE gen(v AS (a || '.') VIRTUAL, a, s AS (b + 1) STORED, b INT)",
    "CREATE TABLE child(id INTEGER PRIMARY KEY, p REFERENCES plain ON DELETE CASCADE ON UPDATE CASCADE, q REFERENCES plain(u) ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED)",
    "CREATE TABLE audit(what, a, b)",
    "CREATE TABLE failing(a UNIQUE ON CONFLICT FAIL, b)",
    "CREATE TRIGGER plain_in AFTER INSERT ON plain BEGIN INSERT INTO audit VALUES('in', new.id, random()); INSERT INTO auto(u) VALUES(new.u) ON CONFLICT DO NOTHING; END",
    "CREATE TRIGGER plain_up BEFORE UPDATE ON plain BEGIN UPDATE audit SET b = new.n WHERE a = old.id; END",
    "CREATE TRIGGER plain_out AFTER DELETE ON plain BEGIN DELETE FROM audit WHERE a = old.id AND what = 'in'; INSERT INTO nokey VALUES('gone', old.id); END",
    "CREATE TRIGGER failing_in BEFORE INSERT ON failing BEGIN INSERT INTO audit VALUES('failing', new.a, NULL); SELECT RAISE(FAIL, 'five') WHERE new.a = 5; SELECT RAISE(ROLLBACK, 'six') WHERE new.a = 6; SELECT RAISE(IGNORE) WHERE new.a = 4; END",
    "CREATE VIEW both AS SELECT id, u FROM plain",
    "CREATE TRIGGER both_in INSTEAD OF INSERT ON both BEGIN INSERT INTO plain(id, u) VALUES(new.id, new.u); END",
    "CREATE VIRTUAL TABLE words USING fts5(a, b)",
    "CREATE VIRTUAL TABLE boxes USING rtree(id, x0, x1)",
    "CREATE INDEX plain_n ON plain(n) WHERE n > 2",
];

fn value(random: &mut Random) -> String {
    match random.below(9) {
        0 => "NULL".to_string(),
        1 => format!("{}.5", random.below(9)),
        2 => format!("x'{:02x}{:02x}'", random.below(256), random.below(256)),
        3 => format!("'{}'", random.pick(&["a", "B", "b", "high water", "", "ü"])),
        4 => "random()".to_string(),
        _ => small(random),
    }
}

fn small(random: &mut Random) -> String {
    random.below(14).to_string()
}

fn change(random: &mut Random, extra: &mut BTreeSet<u64>) -> String {
    let or = random.pick(&["", "", "", " OR REPLACE", " OR IGNORE", " OR FAIL", " OR ABORT", " OR ROLLBACK"]);
    let (a, b, c) = (small(random), value(random), value(random));
    let d = small(random);
    match random.below(40) {
        0..=2 => format!("INSERT{or} INTO plain(id, u, n, r) VALUES({a}, {b}, {d}, {c}), ({d}, {c}, 1, 2)"),
        3 => format!("INSERT{or} INTO plain(u, n) SELECT a, {d} FROM nokey LIMIT 3"),
        4 => format!(
            "INSERT INTO plain(id, u, n) VALUES({a}, {b}, 1) ON CONFLICT(id) DO UPDATE SET n = coalesce(n, 0) + 1, u = excluded.u"
        ),
        5 => format!("UPDATE{or} plain SET n = {d}, r = {c} WHERE id > {a}"),
        6 => format!("UPDATE{or} plain SET id = {d} WHERE id = {a}"),
        7 => format!("UPDATE{or} plain SET u = {b} WHERE n >= {d}"),
        8 => format!("DELETE FROM plain WHERE id % 4 = {a} RETURNING id, u"),
        9 => format!("INSERT{or} INTO auto(u) VALUES({b}), ({c}) RETURNING id"),
        10 => format!("DELETE FROM auto WHERE id > {a}"),
        11 => "UPDATE sqlite_sequence SET seq = seq + 5".to_string(),
        12 => "DELETE FROM sqlite_sequence WHERE seq % 2".to_string(),
        13 => format!("INSERT{or} INTO texts VALUES({b}, {c}), (NULL, {d})"),
        14 => format!("UPDATE{or} texts SET k = {c}, v = {b} WHERE rowid % 3 = {a}"),
        15 => "DELETE FROM texts WHERE k IS NULL".to_string(),
        16 => format!("INSERT INTO nokey(rowid, a, b) VALUES(abs({d}) + 100, {b}, {c})"),
        17 => format!("INSERT INTO nokey VALUES({b}, {c}), ({c}, {a})"),
        18 => format!("UPDATE nokey SET rowid = rowid + 1000, a = {b} WHERE b = {a}"),
        19 => "DELETE FROM nokey".to_string(),
        20 => format!("INSERT{or} INTO pair VALUES({a}, {d}, {b}), ({d}, {a}, {c})"),
        21 => format!("UPDATE{or} pair SET a = a + {a}, c = {b} WHERE b > {d}"),
        22 => format!("DELETE FROM pair WHERE a = {a}"),
        23 => format!("INSERT{or} INTO strict VALUES({a}, {b}, {c})"),
        24 => format!("REPLACE INTO strict VALUES({a}, 'text', {c})"),
        25 => format!("INSERT INTO gen(a, b) VALUES({b}, {d})"),
        26 => format!("UPDATE gen SET a = {c}, b = {a} WHERE s > {d}"),
        27 => format!("INSERT{or} INTO child(p, q) VALUES({a}, (SELECT u FROM plain LIMIT 1)), (NULL, NULL)"),
        28 => format!("INSERT INTO child(q) VALUES({b})"),
        29 => format!("INSERT{or} INTO failing VALUES({a}, {b}), ({d}, 1), (5, 5), (1, 1)"),
        30 => "DELETE FROM failing".to_string(),
        31 => format!("INSERT INTO both VALUES({a}, {b})"),
        32 => format!("INSERT INTO words VALUES({b}, 'high {a} water {d}')"),
        33 => format!("UPDATE words SET b = 'low {a}' WHERE rowid % 2 = 0"),
        34 => format!("DELETE FROM words WHERE words MATCH 'high' AND rowid > {a}"),
        35 => format!("INSERT{or} INTO boxes VALUES({a}, {d}, {d} + 1)"),
        36 => format!("DELETE FROM boxes WHERE x0 > {a}"),
        37 => format!("UPDATE boxes SET x1 = x1 + {a}"),
        _ => schema(random, extra),
    }
}

fn schema(random: &mut Random, extra: &mut BTreeSet<u64>) -> String {
    let n = random.below(4);
    match random.below(12) {
        0 => {
            extra.insert(n);
            format!("CREATE TABLE extra{n}(a INTEGER PRIMARY KEY, b DEFAULT 7)")
        }
        1 => format!("CREATE TABLE extra{n} AS SELECT a, b, random() AS c FROM nokey"),
        2 => format!("DROP TABLE IF EXISTS extra{n}"),
        3 => format!("ALTER TABLE extra{n} ADD COLUMN c{} DEFAULT 'x'", random.below(3)),
        4 => format!("INSERT INTO extra{n}(b) VALUES({}), ('y')", value(random)),
        5 => format!("ALTER TABLE extra{n} DROP COLUMN c1"),
        6 => format!("CREATE INDEX IF NOT EXISTS extra_i ON extra{n}(b)"),
        7 => "ANALYZE".to_string(),
        8 => "REINDEX".to_string(),
        9 => format!("PRAGMA user_version = {n}"),
        10 => "INSERT INTO words(words) VALUES('optimize')".to_string(),
        _ => format!("ALTER TABLE extra{n} RENAME TO extra{}", random.below(4)),
    }
}

/// One transaction, one way or another. What fails may fail.
fn run_one(bench: &Bench, random: &mut Random, extra: &mut BTreeSet<u64>) {
    if random.one_in(25) {
        let _ = of(bench.database.transaction(&transaction(&["VACUUM"]), soon()));
        return;
    }
    let count = 1 + random.below(6);
    if random.one_in(2) {
        let texts: Vec<String> = (0..count).map(|_| change(random, extra)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let _ = of(bench.database.transaction(&transaction(&texts), soon()));
        return;
    }
    let session = bench.database.session();
    if random.one_in(6) {
        let _ = of(session.execute(&statement("PRAGMA foreign_keys=off")));
    }
    let _ = of(session.execute(&statement(random.pick(&["BEGIN IMMEDIATE", "BEGIN", "SAVEPOINT x", "SELECT 1"]))));
    for _ in 0..count + 2 {
        let text = match random.below(8) {
            0 => random.pick(&["SAVEPOINT x", "SAVEPOINT y"]).to_string(),
            1 => random.pick(&["ROLLBACK TO x", "ROLLBACK TO y", "RELEASE y"]).to_string(),
            _ => change(random, extra),
        };
        let _ = of(session.execute(&statement(&text)));
    }
    let end = random.pick(&["COMMIT", "COMMIT", "COMMIT", "ROLLBACK", "RELEASE x"]);
    let _ = of(session.execute(&statement(end)));
}

fn leader_options() -> Options {
    Options { wal_bytes_checkpoint: 600_000, batch_bytes: 2_000, ..quick() }
}

fn follower_options() -> Options {
    Options { wal_bytes_checkpoint: 400_000, ..quick() }
}

/// Starts from the image of a database's files as they are, as after a kill.
fn reopened(dir: &mut tempfile::TempDir, log: &Arc<Log>, options: &Options) -> Arc<Database> {
    let image = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), image.path().join(file.file_name())).unwrap();
    }
    let database = Database::open(image.path(), options.clone(), log.clone()).unwrap();
    *dir = image;
    database
}

/// The first table that differs, for people.
fn difference(a: &Database, b: &Database) -> String {
    let rows = |database: &Database, sql: &str| {
        of(database.transaction(&transaction(&[sql]), soon()))
            .map(|mut results| results.remove(0).rows)
            .unwrap_or_default()
    };
    let schema = "SELECT name, sql FROM sqlite_schema ORDER BY name";
    if rows(a, schema) != rows(b, schema) {
        return format!("schemas {:?} and {:?}", rows(a, schema), rows(b, schema));
    }
    for row in rows(a, "SELECT name FROM sqlite_schema WHERE type = 'table'") {
        let highwater_sql::Value::Text(table) = &row[0] else { continue };
        for columns in ["rowid, *", "*"] {
            let all = format!("SELECT {columns} FROM \"{table}\" ORDER BY 1, 2");
            let (a, b) = (rows(a, &all), rows(b, &all));
            if a != b {
                return format!("{table}: {a:?} and {b:?}");
            }
        }
    }
    "in something that no query shows".to_string()
}

fn run(seed: u64, transactions: u32) {
    let random = &mut Random(seed);
    let mut bench = Bench::leader_with(leader_options());
    bench.run(SCHEMA).unwrap();
    let mut follower = Bench::follower_with(follower_options());
    let (mut hw, mut number, mut received) = (bench.log.end(), 1, 0);
    let mut extra = BTreeSet::new();
    for _ in 0..transactions {
        run_one(&bench, random, &mut extra);
        if random.one_in(3) {
            // Transaction ends are batch ends here, but not the other way round: HW may lie within a transaction.
            let ends = bench.log.ends();
            let recent = ends.len() - 1 - random.below(3.min(ends.len() as u64)) as usize;
            hw = hw.max(ends[recent]);
            bench.database.publish(hw);
        }
        if random.one_in(8) {
            // Leadership is lost; what is not committed goes.
            let at = bench.database.rewind(hw).unwrap();
            assert!(at <= hw);
            bench.log.cut(hw);
            number += 1;
            let next = reign(number as u32, number);
            bench.database.apply(at, hw, &bench.log.read(at, hw), true).unwrap();
            bench.database.lead(next, hw).unwrap();
            bench.database.publish(hw);
        }
        if random.one_in(20) {
            // The leader is killed, and leads again after it has applied what was committed.
            bench.database = reopened(&mut bench.dir, &bench.log, &leader_options());
            let at = bench.database.applied();
            assert!(at <= hw, "{at} is applied after a start and {hw} was committed");
            bench.log.cut(hw);
            number += 1;
            bench.database.apply(at, hw, &bench.log.read(at, hw), true).unwrap();
            bench.database.lead(reign(number as u32, number), hw).unwrap();
            bench.database.publish(hw);
        }
        if random.one_in(3) && received < hw {
            let to = received + 1 + random.below(hw - received);
            follower.database.apply(received, to, &bench.log.read(received, to), true).unwrap();
            follower.database.publish(to);
            received = to;
        }
        if random.one_in(15) {
            follower.database = reopened(&mut follower.dir, &bench.log, &follower_options());
            received = follower.database.applied();
        }
    }
    let end = bench.log.end();
    bench.database.publish(end);
    follower.database.apply(received, end, &bench.log.read(received, end), true).unwrap();
    follower.database.publish(end);
    let (leader_at, leader_hash) = bench.database.content_hash().unwrap();
    let (follower_at, follower_hash) = follower.database.content_hash().unwrap();
    if leader_hash != follower_hash {
        panic!("seed {seed}: {}", difference(&bench.database, &follower.database));
    }
    // A leader has passed over what its predecessor left unfinished; a follower does so with the next epoch's first entry.
    assert!(follower_at <= leader_at && leader_at == end, "seed {seed}: {follower_at} {leader_at} {end}");
    common::assert_sound(&follower.dir.path().join("database.sqlite"));
    bench.assert_sound();
    assert!(end > 40, "seed {seed} did something");
}

#[test]
fn a_follower_holds_what_its_leader_holds() {
    let seeds = std::env::var("HIGHWATER_SQL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    let first = std::env::var("HIGHWATER_SQL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds {
        run(seed, 60);
    }
}
