//! Budgets: what organizations may use in a month before branches are put to sleep.

use coppice_app::{Access, App, BudgetLine};
use coppice_core::Result;
use coppice_core::budget::BudgetCovers;
use coppice_core::operation::{DELETE_BUDGET, LIST_BUDGETS, SET_BUDGET};
use coppice_core::target::OnBudget;
use coppice_wire as wire;

use crate::endpoint::{Body, Done, Endpoint, Shown, Waiting, delete, get, put};
use crate::{context, progress};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Billing";
    vec![
        get("/budgets", &LIST_BUDGETS)
            .says(AREA, "List the budgets of an organization", "With what is used of each this month.")
            .answers("Its budgets.")
            .runs(list_budgets),
        put("", &SET_BUDGET)
            .says(AREA, "Set a budget", "Of the organization, or of a project, a branch or a key of it; the budget of a key counts what the branches use that were made with it, also when they are deleted.\n\nAt 50, 80 and 100 percent the event `budget.reached` tells of it. At 100 percent the branches that it covers are put to sleep, and nothing wakes them before there is more, it is deleted, or the month ends. One that leaves room again lets them wake at once.")
            .answers("The budget with what is used of it.")
            .refuses(400, "The unit is none that is counted here, or there are too many budgets.")
            .runs(set_budget),
        delete("", &DELETE_BUDGET)
            .says(AREA, "Delete a budget", "Branches that no other budget keeps asleep may wake.")
            .answers("Deleted.")
            .runs(delete_budget),
    ]
}

async fn list_budgets(
    app: App,
    access: Access,
    Waiting((), call): Waiting<()>,
) -> Result<Shown<wire::BudgetList>> {
    let budgets = progress::report(app.budgets.list(&access)).await?;
    let _: Access = call.authorize(&app, &LIST_BUDGETS).await?;
    Ok(Shown(wire::BudgetList { budgets: budgets.into_iter().map(to_wire).collect() }))
}

async fn set_budget(
    app: App,
    access: Access<OnBudget>,
    Body(asked): Body<wire::SetBudget>,
) -> Result<Shown<wire::Budget>> {
    note(&access);
    let line = app.budgets.set(&access, &asked.limit, asked.unit.as_deref()).await?;
    Ok(Shown(to_wire(line)))
}

async fn delete_budget(app: App, access: Access<OnBudget>) -> Result<Done> {
    note(&access);
    app.budgets.delete(&access).await?;
    Ok(Done)
}

/// The audit log says whose budget was changed.
fn note(access: &Access<OnBudget>) {
    context::audit_notes(|notes| notes.targets(vec![access.target.subject.clone()]));
}

fn to_wire(line: BudgetLine) -> wire::Budget {
    let BudgetLine { budget, used, reached, renews_at } = line;
    wire::Budget {
        covers: match budget.covers {
            BudgetCovers::Organization => wire::BudgetCovers::Organization,
            BudgetCovers::Project => wire::BudgetCovers::Project,
            BudgetCovers::Branch => wire::BudgetCovers::Branch,
            BudgetCovers::Key => wire::BudgetCovers::Key,
        },
        subject_id: budget.subject,
        name: budget.name,
        project_id: budget.project.map(|id| id.to_string()),
        limit: budget.limit,
        unit: budget.unit,
        used: used.map(|used| used.to_plain_string()),
        reached,
        renews_at: wire::Timestamp(renews_at),
        updated_at: wire::Timestamp(budget.updated_at),
    }
}
