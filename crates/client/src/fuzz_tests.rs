//! Answers that no node gave.

use highwater_fuzz::fuzz;

use crate::answer::{Reading, read};

#[test]
fn fuzz_answers() {
    let samples: Vec<Vec<u8>> = [
        r#"{"results":[{"columns":["a"],"rows":[[1, null, "x", 1.5, {"base64": "AA"}]],"affected":0,"last_insert_rowid":3}],"position":"1:2:3"}"#,
        r#"{"error":{"code":"X","message":"m","outcome":"unknown","position":"1:2:3"}}"#,
        r#"{"error":{"code":"SQLITE_CONSTRAINT","message":"m","outcome":"failed","statement":1}}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    fuzz(
        &samples,
        |_| {},
        |input| {
            let readings = [200, 409, 503].map(|status| match read(status, input) {
                // Only an error that says so has failed: whatever else arrives says nothing of the outcome.
                Reading::Failed(failed) => {
                    assert!(status >= 300 && String::from_utf8_lossy(input).contains("failed"), "{failed:?}");
                    "failed"
                }
                Reading::Done { .. } | Reading::Unreadable { .. } => {
                    assert!(status < 300, "an error is never taken for done");
                    "done"
                }
                Reading::Unknown { .. } => "unknown",
                Reading::Foreign(_) => "foreign",
            });
            readings.join(" ")
        },
    );
}
