//! Answers that are given again to repeated requests.

use sqlx::FromRow;

use crate::{Result, Store, Tx};

/// A request that may be a repetition.
#[derive(Clone, Copy, Debug)]
pub struct RepeatableRequest<'a> {
    /// Keyed hash of its credential.
    pub caller: &'a str,
    /// Its path.
    pub path: &'a str,
    /// Its `Idempotency-Key`.
    pub key: &'a str,
    /// Hash of its body.
    pub body_hash: &'a str,
}

/// How much is kept of one caller, where that is not promised.
#[derive(Clone, Copy, Debug)]
pub struct AnswerRoom {
    /// Bytes of all its answers.
    pub bytes: u32,
    /// Its requests.
    pub requests: u32,
}

/// What is known of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Repetition {
    /// It is the first of its kind; its answer is to be kept. What one like it did that ended without an answer is
    /// not to be done again.
    First(Option<String>),
    /// The first one is still running.
    Running,
    /// Another body came with the same key before.
    Mismatch,
    /// The first one's answer: status and sealed body.
    Answered(u16, Vec<u8>),
}

#[derive(FromRow)]
struct RequestRow {
    body_hash: String,
    status: Option<i32>,
    answer_sealed: Option<Vec<u8>>,
}

impl Store {
    /// Notes that a request begins, unless one like it was noted before. A
    /// running one is given up `patience_seconds` after it began: its process
    /// must have died. What it did by then is known of those with the same body only.
    pub async fn idempotency_begin(
        &self,
        request: RepeatableRequest<'_>,
        patience_seconds: u32,
    ) -> Result<Repetition> {
        let begun: Option<Option<String>> = sqlx::query_scalar(
            "insert into idempotent_requests as r (caller, path, key, body_hash) values ($1, $2, $3, $4)
             on conflict (caller, path, key) do update
                 set body_hash = excluded.body_hash, started_at = now(), status = null, answer_sealed = null,
                     effect = case when r.started_at >= now() - interval '1 day' then r.effect end
                 where r.started_at < now() - interval '1 day'
                    or (r.status is null and r.started_at < now() - make_interval(secs => $5)
                        and (r.effect is null or r.body_hash = excluded.body_hash))
             returning effect",
        )
        .bind(request.caller)
        .bind(request.path)
        .bind(request.key)
        .bind(request.body_hash)
        .bind(f64::from(patience_seconds))
        .fetch_optional(&self.pool)
        .await?;
        if let Some(effect) = begun {
            return Ok(Repetition::First(effect));
        }
        let row: Option<RequestRow> = sqlx::query_as(
            "select body_hash, status, answer_sealed from idempotent_requests
             where caller = $1 and path = $2 and key = $3",
        )
        .bind(request.caller)
        .bind(request.path)
        .bind(request.key)
        .fetch_optional(&self.pool)
        .await?;
        Ok(match row {
            Some(row) if row.body_hash != request.body_hash => Repetition::Mismatch,
            Some(RequestRow { status: Some(status), answer_sealed: Some(sealed), .. }) => {
                Repetition::Answered(u16::try_from(status).unwrap_or(500), sealed)
            }
            // Without a row the first one has just ended without an answer.
            Some(_) | None => Repetition::Running,
        })
    }

    /// Keeps the answer of a request that was begun; false where what is kept
    /// of its caller would take more than `room` then.
    pub async fn idempotency_finish(
        &self,
        request: RepeatableRequest<'_>,
        status: u16,
        answer_sealed: &[u8],
        room: Option<AnswerRoom>,
    ) -> Result<bool> {
        let kept = sqlx::query(
            "update idempotent_requests set status = $4, answer_sealed = $5
             where caller = $1 and path = $2 and key = $3 and ($6::bigint is null or (
                 select count(*) <= $7 and coalesce(sum(octet_length(answer_sealed)), 0) + octet_length($5) <= $6
                 from (select answer_sealed from idempotent_requests where caller = $1
                       limit $7::bigint + 1) as of_caller))",
        )
        .bind(request.caller)
        .bind(request.path)
        .bind(request.key)
        .bind(i32::from(status))
        .bind(answer_sealed)
        .bind(room.map(|room| i64::from(room.bytes)))
        .bind(room.map(|room| i64::from(room.requests)))
        .execute(&self.pool)
        .await?;
        Ok(kept.rows_affected() == 1)
    }

    /// Keeps the answer of a request that was begun together with what it did; false where one is kept, or nothing
    /// is known of the request: what it did is to be rolled back then.
    pub async fn idempotency_keep_in_tx(
        &self,
        tx: &mut Tx,
        request: RepeatableRequest<'_>,
        status: u16,
        answer_sealed: &[u8],
    ) -> Result<bool> {
        let kept = sqlx::query(
            "update idempotent_requests set status = $4, answer_sealed = $5
             where caller = $1 and path = $2 and key = $3 and status is null",
        )
        .bind(request.caller)
        .bind(request.path)
        .bind(request.key)
        .bind(i32::from(status))
        .bind(answer_sealed)
        .execute(&mut **tx)
        .await?;
        Ok(kept.rows_affected() == 1)
    }

    /// Notes what a request that was begun did, together with that; false where an answer is kept, something is noted,
    /// or nothing is known of the request: what it did is to be rolled back then.
    pub async fn idempotency_note_in_tx(
        &self,
        tx: &mut Tx,
        request: RepeatableRequest<'_>,
        effect: &str,
    ) -> Result<bool> {
        let noted = sqlx::query(
            "update idempotent_requests set effect = $4
             where caller = $1 and path = $2 and key = $3 and status is null and effect is null",
        )
        .bind(request.caller)
        .bind(request.path)
        .bind(request.key)
        .bind(effect)
        .execute(&mut **tx)
        .await?;
        Ok(noted.rows_affected() == 1)
    }

    /// Forgets a request that was begun, so that it can be tried again, unless its answer is kept, or it is known what
    /// it did.
    pub async fn idempotency_forget(&self, request: RepeatableRequest<'_>) -> Result<()> {
        sqlx::query(
            "delete from idempotent_requests
             where caller = $1 and path = $2 and key = $3 and status is null and effect is null",
        )
        .bind(request.caller)
        .bind(request.path)
        .bind(request.key)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Forgets answers that are older than a day.
    pub async fn idempotency_purge(&self) -> Result<u64> {
        let done = sqlx::query("delete from idempotent_requests where started_at < now() - interval '1 day'")
            .execute(&self.relaxed)
            .await?;
        Ok(done.rows_affected())
    }
}
