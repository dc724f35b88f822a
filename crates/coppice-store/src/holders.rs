//! Who answers for organizations, and whose turn is next in queues that all
//! of them share.
//!
//! One person may own many organizations, so what comes by turns does so by
//! holder (`holder_of`), and a holder's by their organizations. Accounts of
//! guests ([`NewUser`](crate::NewUser)) that one holder let in have one holder.

use coppice_core::OrganizationId;
use coppice_core::organization::Holder;

use crate::{Result, Store, Tx};

/// The order of what is `next`, see [`holder_turns`].
pub(crate) const IN_TURN: &str = "place, had_at nulls first, since nulls first";

/// How much there is room for of what is due.
#[derive(Clone, Debug)]
pub struct Room {
    /// So much.
    pub count: u32,
    /// Of one holder no more than this, with what is being done.
    pub each: u32,
    /// Whose are being done: the holder of each.
    pub busy: Vec<Holder>,
}

impl Room {
    pub(crate) fn holders(&self) -> Vec<&str> {
        self.busy.iter().map(Holder::as_str).collect()
    }
}

/// The beginning of a statement that takes what is due in a queue. `due` selects that, with
/// columns `organization_id`, `part` (of what its holder has) and `since`. Then `next` is what
/// there is room for: first of holders who have least, among these of whoever had a turn longest
/// ago; of a holder's parts by turns. Bound are the fields of a [`Room`]: $1 `busy`, $2 `each`
/// and $3 `count`.
pub(crate) fn holder_turns(queue: &str, due: &str) -> String {
    format!(
        "with due as materialized ({due}),
         held as materialized (
             select organization_id, holder_of(organization_id) as holder
             from (select distinct organization_id from due) o),
         parted as (
             select due.*, holder, row_number() over (partition by holder, part order by since nulls first) as nth
             from due join held using (organization_id)),
         placed as (
             select parted.*, t.had_at, coalesce(b.count, 0)
                    + row_number() over (partition by parted.holder order by nth, since nulls first) as place
             from parted
             left join (select holder, count(*) from unnest($1::text[]) u (holder) group by holder) b
                 on b.holder = parted.holder
             left join holder_turns t on t.queue = '{queue}' and t.holder = parted.holder),
         next as (select * from placed where place <= $2 order by {IN_TURN} limit $3)"
    )
}

impl Store {
    /// Notes that holders have a turn in a queue.
    pub(crate) async fn holder_turn_note(&self, queue: &str, holders: impl Iterator<Item = &str>) {
        let holders: Vec<&str> = holders.collect();
        let noted = sqlx::query(
            "insert into holder_turns (queue, holder, had_at)
             select $1, holder, now() from (select distinct unnest($2::text[]) as holder order by holder) had
             on conflict (queue, holder) do update set had_at = excluded.had_at",
        );
        // Whose turn is next matters less than what was taken.
        drop(noted.bind(queue).bind(&holders).execute(&self.relaxed).await);
    }

    /// Counts an invitation for the holder of an organization, unless all organizations of theirs
    /// had `max` made within the last hour, also those that are deleted: then the seconds until
    /// the next one may be made are returned. Served by index `holder_invitations_holder`.
    pub async fn holder_invitation_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        max: u32,
    ) -> Result<Option<u32>> {
        let wait: Option<f64> = sqlx::query_scalar(
            "select extract(epoch from made_at + interval '1 hour' - now())::float8 from holder_invitations
             where holder = (select holder_of($1)) and made_at > now() - interval '1 hour'
             order by made_at desc offset greatest($2 - 1, 0) limit 1",
        )
        .bind(organization.as_str())
        .bind(i64::from(max))
        .fetch_optional(&mut **tx)
        .await?;
        if let Some(wait) = wait {
            return Ok(Some(wait.ceil().max(1.0) as u32));
        }
        sqlx::query("insert into holder_invitations (holder) values (holder_of($1))")
            .bind(organization.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(None)
    }

    /// Forgets turns and invitations of the day before.
    pub async fn holder_purge(&self) -> Result<()> {
        for past in [
            "delete from holder_turns where had_at < now() - interval '1 day'",
            "delete from holder_invitations where made_at < now() - interval '1 day'",
        ] {
            sqlx::query(past).execute(&self.relaxed).await?;
        }
        Ok(())
    }
}
