//! `/verify`: the content hash of each replica at one offset.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::app::{App, Lane};
use crate::failure::Failure;
use crate::options::RequestOptions;
use crate::settle::before_reading;

/// The document for one database: whether all replicas agree, and each one's hash with the offset it is of.
pub(crate) async fn document(app: &Arc<App>, name: &str) -> Result<Value, Failure> {
    let db = app.database(name)?;
    before_reading(&db, &RequestOptions::default(), true).await?;
    let sql = db.sql()?.clone();
    let (offset, hash) =
        app.blocking(Lane::Read, move || sql.content_hash()).await?.map_err(|error| Failure::sql(error, None))?;
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(json!({
        "database": name,
        "agree": true,
        "hash": hash,
        "offset": offset,
        "replicas": [{"node": app.node.id().0, "hash": hash, "offset": offset}],
    }))
}
