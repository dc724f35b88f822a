//! Budgets: what organizations may use in a month before their branches are put
//! to sleep.
//!
//! What is used comes from the meter, so deleted branches count, and nothing is
//! lost by a crash: the next look finds the same.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use coppice_core::amount::{Decimal, Whole};
use coppice_core::budget::{INSTANCE_HOURS, USED_UP, limit as read_limit, reached};
use coppice_core::mail::{BudgetNews, MailContent};
use coppice_core::price_list::{PriceList, cost, month_of, next_month};
use coppice_core::target::OnBudget;
use coppice_core::usage::Meter;
use coppice_core::{Error, ErrorCode, OrganizationId, Result};
use coppice_store::{Budget, BudgetPart, BudgetReach, Store, Tx};

use crate::Access;
use crate::mail::Mail;
use crate::reconciler::Reconciler;
use crate::rows::lock_in_tx;

/// How often budgets are looked at. What was used is known up to the meter's
/// last turn, so that this much and a turn may be used beyond a budget.
pub(crate) const LOOK: Duration = Duration::from_secs(15);
/// Most budgets of an organization.
const BUDGETS_MAX: u32 = 500;
/// Decimals of what is used.
const DECIMALS: u32 = 6;

/// A budget with what is used of it this month.
#[derive(Clone, Debug)]
pub struct BudgetLine {
    /// The budget.
    pub budget: Budget,
    /// How much is used; none when there are no prices in its currency.
    pub used: Option<Decimal>,
    /// The greatest part, in percent, that is reached; 0 when none is.
    pub reached: u32,
    /// When it begins anew.
    pub renews_at: DateTime<Utc>,
}

impl BudgetLine {
    fn reach(&self) -> BudgetReach {
        BudgetReach {
            subject: self.budget.subject.clone(),
            limit: self.budget.limit.clone(),
            unit: self.budget.unit.clone(),
            reached: self.reached,
            is_used_up: self.reached == USED_UP,
        }
    }
}

/// What organizations may use in a month.
#[derive(Clone)]
pub struct Budgets {
    store: Store,
    reconciler: Reconciler,
    mail: Mail,
    /// What is charged, if anybody is.
    prices: Option<PriceList>,
}

impl Budgets {
    pub(crate) fn new(store: Store, reconciler: Reconciler, mail: Mail, prices: Option<PriceList>) -> Self {
        Self { store, reconciler, mail, prices }
    }

    /// Budgets of an organization.
    pub async fn list(&self, access: &Access) -> Result<Vec<BudgetLine>> {
        Ok(self.read(&access.organization.id).await?.1)
    }

    /// Sets a budget. What follows from it is done when this returns.
    ///
    /// # Errors
    /// `subject_not_found`, `invalid_field`, `budget_limit_reached`
    pub async fn set(
        &self,
        access: &Access<OnBudget>,
        limit: &str,
        unit: Option<&str>,
    ) -> Result<BudgetLine> {
        let (organization, subject) = (&access.organization.id, &access.target.subject);
        let limit = read_limit(limit).ok_or_else(|| Error::invalid_field("limit", "must be a decimal"))?;
        let unit = self.unit(unit)?;
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let text = limit.to_plain_string();
        if !self.store.budget_set_in_tx(&mut tx, organization, subject, (&text, unit)).await? {
            return Err(no_subject(subject));
        }
        if self.store.budget_count_in_tx(&mut tx, organization).await? > BUDGETS_MAX {
            let public = format!("no more than {BUDGETS_MAX} budgets are allowed");
            return Err(Error::invalid(ErrorCode::BudgetLimitReached, public));
        }
        tx.commit().await?;
        let lines = self.apply(organization).await?;
        lines.into_iter().find(|line| line.budget.subject == *subject).ok_or_else(|| no_budget(subject))
    }

    /// Removes a budget.
    ///
    /// # Errors
    /// `budget_not_found`
    pub async fn delete(&self, access: &Access<OnBudget>) -> Result<()> {
        let (organization, subject) = (&access.organization.id, &access.target.subject);
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let woken = self.store.budget_delete_in_tx(&mut tx, organization, subject).await?;
        let woken = woken.ok_or_else(|| no_budget(subject))?;
        tx.commit().await?;
        woken.into_iter().for_each(|branch| self.reconciler.nudge(branch));
        Ok(())
    }

    /// Looks at every budget. One organization's trouble is not another's.
    pub(crate) async fn look(&self) -> Result<()> {
        let mut outcome = Ok(());
        for organization in self.store.budget_organizations().await? {
            if let Err(error) = self.apply(&organization).await {
                tracing::warn!("looking at the budgets of {organization}: {}", error.for_log());
                outcome = Err(error);
            }
        }
        outcome
    }

    /// What was told of budgets long ago is forgotten.
    pub(crate) async fn purge(&self) -> Result<()> {
        Ok(self.store.budget_purge().await?)
    }

    /// Does what follows from how much of an organization's budgets is used.
    async fn apply(&self, organization: &OrganizationId) -> Result<Vec<BudgetLine>> {
        let (now, lines) = self.read(organization).await?;
        let month = month_of(now).date_naive();
        let is_news = |line: &BudgetLine| {
            let Budget { exhausted_in, told, .. } = &line.budget;
            line.reached > *told || exhausted_in.is_some() || line.reached == USED_UP
        };
        if !lines.iter().any(is_news) {
            return Ok(lines);
        }
        let mut tx = self.store.begin().await?;
        if self.store.organization_lock_in_tx(&mut tx, organization).await?.is_none() {
            return Ok(lines);
        }
        let reaches: Vec<_> = lines.iter().map(BudgetLine::reach).collect();
        let outcome = self.store.budget_apply_in_tx(&mut tx, organization, month, &reaches).await?;
        for (subject, threshold) in &outcome.told {
            let line = lines.iter().find(|line| line.budget.subject == *subject);
            let budget = line.map(|line| &line.budget).ok_or_else(|| no_budget(subject))?;
            self.mail_admins_in_tx(&mut tx, organization, budget, (month, *threshold)).await?;
        }
        tx.commit().await?;
        if !outcome.told.is_empty() {
            self.mail.nudge().notify_one();
        }
        for branch in outcome.changed {
            tracing::info!(%branch, "branch {branch} sleeps or wakes for a budget");
            self.reconciler.nudge(branch);
        }
        Ok(lines)
    }

    /// Promises a letter to everybody who can raise a budget.
    async fn mail_admins_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        budget: &Budget,
        (month, threshold): (NaiveDate, u32),
    ) -> Result<()> {
        for to in self.store.member_list_admins_in_tx(tx, organization).await? {
            let news = BudgetNews {
                to,
                organization: organization.clone(),
                subject: budget.subject.clone(),
                covers: budget.covers,
                limit: budget.limit.clone(),
                unit: budget.unit.clone(),
                threshold,
                month: month.format("%Y-%m").to_string(),
            };
            self.mail.promise_in_tx(tx, &MailContent::BudgetReached(news)).await?;
        }
        Ok(())
    }

    async fn read(&self, organization: &OrganizationId) -> Result<(DateTime<Utc>, Vec<BudgetLine>)> {
        let (now, budgets) = self.store.budget_list(organization).await?;
        if budgets.is_empty() {
            return Ok((now, vec![]));
        }
        let (from, renews_at) = (month_of(now), next_month(now));
        let prices = self.prices.as_ref();
        let boundaries = prices.map_or_else(|| vec![from], |prices| prices.boundaries(from, renews_at));
        let parts = self.store.budget_parts(organization, (from, renews_at), &boundaries).await?;
        let line = |budget: Budget| {
            let of_it = parts.iter().filter(|part| part.subject == budget.subject);
            let used = used(of_it, &budget.unit, prices, &boundaries)?;
            let limit: Decimal = budget.limit.parse().map_err(Error::internal)?;
            let reached = used.as_ref().map_or(0, |used| reached(used, &limit));
            Ok(BudgetLine { budget, used, reached, renews_at })
        };
        Ok((now, budgets.into_iter().map(line).collect::<Result<_>>()?))
    }

    /// What a new budget counts in.
    fn unit<'a>(&'a self, asked: Option<&str>) -> Result<&'a str> {
        let currency = self.prices.as_ref().map(|prices| prices.currency.as_str());
        match asked {
            None => Ok(currency.unwrap_or(INSTANCE_HOURS)),
            Some(INSTANCE_HOURS) => Ok(INSTANCE_HOURS),
            Some(asked) => currency.filter(|currency| *currency == asked).ok_or_else(|| {
                let currency = currency.map(|currency| format!("{currency} or ")).unwrap_or_default();
                Error::invalid_field("unit", format_args!("must be {currency}{INSTANCE_HOURS}"))
            }),
        }
    }
}

/// What parts add up to; none when there are no prices in that currency.
fn used<'a>(
    parts: impl Iterator<Item = &'a BudgetPart>,
    unit: &str,
    prices: Option<&PriceList>,
    boundaries: &[DateTime<Utc>],
) -> Result<Option<Decimal>> {
    let whole = |part: &BudgetPart| part.quantity.parse::<Whole>().map_err(Error::internal);
    if unit == INSTANCE_HOURS {
        let mut awake = Whole::from(0);
        for part in parts.filter(|part| part.meter == Meter::Awake) {
            awake += whole(part)?;
        }
        return Ok(Some(Meter::Awake.shown(&awake)));
    }
    let Some(prices) = prices.filter(|prices| prices.currency == unit) else { return Ok(None) };
    let mut sum = Decimal::new(0.into(), i64::from(DECIMALS));
    for part in parts {
        let index = part.period.saturating_sub(1);
        let at = boundaries.get(index).copied().unwrap_or_default();
        if let Some(price) = prices.unit_price(part.meter, &part.instance_type, at) {
            sum += cost(&whole(part)?, price, part.meter, at, DECIMALS);
        }
    }
    Ok(Some(sum))
}

fn no_budget(subject: &str) -> Error {
    let public = format!("{subject} has no budget");
    Error::NotFound { code: ErrorCode::BudgetNotFound, public }
}

fn no_subject(subject: &str) -> Error {
    let public = format!(
        "{subject} is not the organization, nor a project, a branch or a key of it: a budget is of one of those"
    );
    Error::NotFound { code: ErrorCode::SubjectNotFound, public }
}
