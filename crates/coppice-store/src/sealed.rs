//! Everything in the metastore that is sealed under the master key, so that it
//! can be sealed anew under another one.
//!
//! A column of sealed bytes is named `…_sealed`; a test holds [`SEALED`]
//! against the schema.

use sqlx::AssertSqlSafe;

use crate::{Result, Store};

/// A column of sealed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedColumn {
    /// Its table.
    pub table: &'static str,
    /// Its name.
    pub column: &'static str,
    /// The owner that a value is sealed for, as SQL on its row.
    pub owner: &'static str,
}

/// Every such column.
pub const SEALED: &[SealedColumn] = &[
    SealedColumn { table: "branches", column: "password_sealed", owner: "id" },
    SealedColumn { table: "branches", column: "next_password_sealed", owner: "id" },
    SealedColumn { table: "branches", column: "verifiers_sealed", owner: "id" },
    SealedColumn { table: "branch_verifiers", column: "verifier_sealed", owner: "branch_id || ' ' || role" },
    SealedColumn {
        table: "idempotent_requests",
        column: "answer_sealed",
        owner: "caller || ' ' || path || ' ' || key",
    },
    SealedColumn { table: "invitations", column: "link_sealed", owner: "id" },
    SealedColumn { table: "logins", column: "password_sealed", owner: "branch_id || ' ' || key_id" },
    SealedColumn { table: "signing_keys", column: "private_sealed", owner: "id" },
    SealedColumn { table: "users", column: "totp_sealed", owner: "id" },
    SealedColumn { table: "vercel_installations", column: "access_token_sealed", owner: "id" },
    SealedColumn { table: "webhooks", column: "secret_sealed", owner: "id" },
    SealedColumn { table: "webhooks", column: "former_secret_sealed", owner: "id" },
];

/// One sealed value.
#[derive(Clone, Debug)]
pub struct SealedValue {
    /// Where its row is; good until the row changes.
    pub place: String,
    /// The owner that it is sealed for.
    pub owner: String,
    /// The value.
    pub sealed: Vec<u8>,
}

/// Values read at once.
const PAGE: i64 = 200;

impl Store {
    /// The values of a column behind `after`, a page of them.
    pub async fn sealed_page(&self, column: &SealedColumn, after: Option<&str>) -> Result<Vec<SealedValue>> {
        let SealedColumn { table, column, owner } = column;
        let sql = format!(
            "select ctid::text as place, {owner}, {column} from {table}
             where {column} is not null and ctid > $1::tid order by ctid limit $2"
        );
        let rows: Vec<(String, String, Vec<u8>)> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(after.unwrap_or("(0,0)"))
            .bind(PAGE)
            .fetch_all(&self.pool)
            .await?;
        let value = |(place, owner, sealed)| SealedValue { place, owner, sealed };
        Ok(rows.into_iter().map(value).collect())
    }

    /// Puts newly sealed values in place of those they were made from, all or
    /// none. A row that changed meanwhile is left alone.
    pub async fn sealed_replace(
        &self,
        column: &SealedColumn,
        replaced: &[(SealedValue, Vec<u8>)],
    ) -> Result<()> {
        let SealedColumn { table, column, .. } = column;
        let sql = format!("update {table} set {column} = $3 where ctid = $1::tid and {column} = $2");
        let mut tx = self.begin().await?;
        for (old, new) in replaced {
            sqlx::query(AssertSqlSafe(sql.clone()))
                .bind(&old.place)
                .bind(&old.sealed)
                .bind(new)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(())
    }
}
