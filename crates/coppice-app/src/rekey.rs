//! Sealing everything anew under another key.

use coppice_core::{Error, Result};
use coppice_failpoint::failpoint;
use coppice_store::{SEALED, SealedColumn, SealedValue, Store};

use crate::MasterKey;

/// Seals everything anew that the present key does not open; returns how many
/// values that were. Repeatable, and of no consequence where it is interrupted.
///
/// # Errors
/// When the metastore fails, or neither key opens a value.
pub async fn seal_anew(store: &Store, key: &MasterKey) -> Result<u64> {
    let mut total = 0;
    for column in SEALED {
        // Ends with a pass that finds nothing: what another process sealed
        // meanwhile is found by the next one.
        loop {
            let done = pass(store, key, column).await?;
            total += done;
            if done == 0 {
                break;
            }
        }
    }
    Ok(total)
}

async fn pass(store: &Store, key: &MasterKey, column: &SealedColumn) -> Result<u64> {
    let (mut done, mut after) = (0, None);
    loop {
        let page = store.sealed_page(column, after.as_deref()).await?;
        let Some(last) = page.last() else { return Ok(done) };
        after = Some(last.place.clone());
        let mut replaced = vec![];
        for value in page {
            if !key.is_sealed_now(&value.owner, &value.sealed) {
                let anew = reseal(key, column, &value)?;
                replaced.push((value, anew));
            }
        }
        if !replaced.is_empty() {
            done += replaced.len() as u64;
            store.sealed_replace(column, &replaced).await?;
            failpoint!("rekey.page_sealed");
        }
    }
}

fn reseal(key: &MasterKey, column: &SealedColumn, value: &SealedValue) -> Result<Vec<u8>> {
    let SealedColumn { table, column, .. } = column;
    let text = key.open(&value.owner, &value.sealed).map_err(|_| {
        Error::internal(format!("{column} of {} in {table} opens with none of the keys", value.owner))
    })?;
    Ok(key.seal(&value.owner, &text))
}
