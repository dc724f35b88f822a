//! What owners and their clients do.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::Utc;
use coppice_app::{
    Access, App, BranchChange, BranchOrigin, CustomBranch, NewBranchRequest, ResetTo, SpecChange,
};
use coppice_core::access::{AskedExpiry, Caller, CredentialId, Grant, Principal};
use coppice_core::branch::{BranchState, MANAGED_ROLE};
use coppice_core::operation::{
    CREATE_BRANCH, DELETE_BRANCH, Operation, PURGE_BRANCH, RESET_BRANCH, ROTATE_BRANCH_CREDENTIALS,
    UNDELETE_BRANCH, UPDATE_BRANCH,
};
use coppice_core::organization::{BillingStatus, Organization, Role, UsageTier};
use coppice_core::project::ScaleToZeroChange;
use coppice_core::target::{InBranch, InProject, InTrash};
use coppice_core::{
    ApiKeyId, BranchId, Error, ErrorCode, InstanceId, OrganizationId, ProjectId, Result, UserId,
};

use crate::answers;
use crate::metastore::start_of_time;
use crate::process::REGION;
use crate::world::{ProcessId, World};

/// A process, and the machine that it is on.
pub(crate) type Place = (ProcessId, usize);

/// The organization and the project of every history.
pub(crate) const ORGANIZATION: &str = "org_simulated";
pub(crate) const OWNER: &str = "usr_simulated";
pub(crate) const KEY: &str = "key_simulated";
pub(crate) const PROJECT: &str = "prj_simulated";
/// How long a client waits for a branch.
const CLIENT_PATIENCE: Duration = Duration::from_secs(50);
/// How often a client tries again.
const CLIENT_TRIES: u32 = 4;
/// How often an owner tries what may work later.
const OWNER_TRIES: u32 = 3;
/// How often a client looks whether it has to wait any longer.
const CLIENT_LOOK: Duration = Duration::from_millis(20);

/// One thing that somebody does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Create {
        name: String,
        inactivity_minutes: u32,
    },
    Child {
        parent: BranchId,
        name: String,
        /// It is deleted after so long.
        lasts: Option<Duration>,
    },
    Hibernate(BranchId),
    Wake(BranchId),
    Rotate(BranchId),
    /// Sets a parameter, and whether that takes a restart.
    Configure(BranchId, u32, bool),
    /// Gives it so many replicas.
    Replicate(BranchId, u32),
    /// Deletes it, and whether its data goes at once.
    Delete(BranchId, bool),
    Undelete(BranchId),
    /// Makes it what this branch is; without one, what it was itself before, or
    /// its parent is.
    Reset(BranchId, Option<BranchId>),
    Purge(BranchId),
    /// A client comes for so long.
    Connect(BranchId, Duration),
}

impl Action {
    /// Its kind, for people.
    fn name(&self) -> String {
        format!("{self:?}").chars().take_while(char::is_ascii_alphabetic).collect()
    }

    /// The branch that has to be there for it.
    fn branch(&self) -> Option<&BranchId> {
        match self {
            Self::Create { .. } => None,
            Self::Child { parent: branch, .. }
            | Self::Hibernate(branch)
            | Self::Wake(branch)
            | Self::Rotate(branch)
            | Self::Configure(branch, ..)
            | Self::Replicate(branch, _)
            | Self::Delete(branch, _)
            | Self::Undelete(branch)
            | Self::Reset(branch, _)
            | Self::Purge(branch)
            | Self::Connect(branch, _) => Some(branch),
        }
    }

    /// The operation of the API that does it.
    fn operation(&self) -> Option<&'static Operation> {
        match self {
            Self::Create { .. } | Self::Child { .. } => Some(&CREATE_BRANCH),
            Self::Hibernate(_) | Self::Wake(_) | Self::Configure(..) | Self::Replicate(..) => {
                Some(&UPDATE_BRANCH)
            }
            Self::Rotate(_) => Some(&ROTATE_BRANCH_CREDENTIALS),
            Self::Delete(..) => Some(&DELETE_BRANCH),
            Self::Undelete(_) => Some(&UNDELETE_BRANCH),
            Self::Reset(..) => Some(&RESET_BRANCH),
            Self::Purge(_) => Some(&PURGE_BRANCH),
            Self::Connect(..) => None,
        }
    }
}

/// Does it, and notes what came of it.
pub(crate) async fn carry_out(action: Action, app: App, world: World, place: Place) {
    let outcome = ask(&action, &app, &world, place).await;
    let mut state = world.lock();
    let at = state.requests.iter().position(|process| *process == place.0);
    at.map(|at| state.requests.remove(at));
    let text = match outcome {
        Ok(text) => {
            *state.done.entry(action.name()).or_default() += 1;
            text
        }
        Err(error) => format!("refused: {}", error.for_log()),
    };
    state.note(format!("{action:?} at process {}: {text}", place.0.0));
}

/// Asks for it, and again when the answer is that it may work later.
async fn ask(action: &Action, app: &App, world: &World, place: Place) -> Result<String> {
    let mut tries = OWNER_TRIES;
    loop {
        let outcome = match action {
            Action::Connect(branch, stay) => visit(app, world, place.0, branch, *stay).await,
            other => change(other, app, world, place.1).await,
        };
        let Err(error) = outcome else { return outcome };
        if !answers::is_documented(action.operation(), &error) {
            let why = format!("{action:?} is answered {}: {}", error.code(), error.for_log());
            world.lock().violation(why);
        }
        tries -= 1;
        let may_work_later =
            matches!(error, Error::NotReady { .. } | Error::Conflict { code: ErrorCode::BranchBusy, .. });
        match action.branch().filter(|_| may_work_later && tries > 0) {
            Some(branch) => {
                app.connections.wait_until_settled(branch, MANAGED_ROLE, CLIENT_PATIENCE).await?;
            }
            None => return Err(error),
        }
    }
}

async fn change(action: &Action, app: &App, world: &World, machine: usize) -> Result<String> {
    match action {
        Action::Create { name, inactivity_minutes } => {
            let minutes = Some(*inactivity_minutes);
            let sleep = ScaleToZeroChange { enabled: Some(true), inactivity_period_minutes: minutes };
            create(app, world, machine, name, sleep, None, custom()).await
        }
        Action::Child { parent, name, lasts } => {
            let rows = world.lock().next_row;
            let origin = BranchOrigin::Inherit {
                parent: parent.clone(),
                change: SpecChange::default(),
                version: None,
                moment: None,
            };
            let made =
                create(app, world, machine, name, ScaleToZeroChange::default(), *lasts, origin).await?;
            // What its parent had before it was asked for, it has too.
            let child = BranchId::from_trusted(made.clone());
            if let Some(found) = app.connections.find(&child, MANAGED_ROLE).await? {
                world.lock().promised.entry(found.branch.volume).or_insert(rows);
            }
            Ok(made)
        }
        Action::Hibernate(branch) => update(app, branch, |change| change.hibernate = Some(true)).await,
        Action::Wake(branch) => update(app, branch, |change| change.hibernate = Some(false)).await,
        Action::Configure(branch, value, needs_restart) => {
            let name = if *needs_restart { "max_connections" } else { "work_mem" };
            let value =
                if *needs_restart { (100 + value).to_string() } else { format!("{}kB", 5000 + value) };
            let parameters = BTreeMap::from([(name.to_owned(), value)]);
            update(app, branch, |change| change.spec.parameters = parameters).await
        }
        Action::Replicate(branch, count) => {
            update(app, branch, |change| change.spec.replicas = Some(*count)).await
        }
        Action::Rotate(branch) => {
            app.credentials.rotate(&access(at(branch)), MANAGED_ROLE).await?;
            Ok("done".to_owned())
        }
        Action::Delete(branch, purge) => {
            app.branches.delete(&access(at(branch)), *purge).await?;
            world.lock().deleted.insert(branch.clone());
            Ok("done".to_owned())
        }
        Action::Undelete(branch) => {
            let back = app.branches.undelete(&access(in_trash(branch)), None).await?;
            world.lock().deleted.remove(branch);
            Ok(back.state.title().to_owned())
        }
        Action::Purge(branch) => {
            app.branches.purge(&access(in_trash(branch))).await?;
            Ok("done".to_owned())
        }
        Action::Reset(branch, source) => reset(app, world, branch, source.as_ref()).await,
        Action::Connect(..) => unreachable!("clients don't change branches"),
    }
}

async fn create(
    app: &App,
    world: &World,
    machine: usize,
    name: &str,
    scale_to_zero: ScaleToZeroChange,
    lasts: Option<Duration>,
    origin: BranchOrigin,
) -> Result<String> {
    let expiry = lasts.map_or(AskedExpiry::Unsaid, |time| AskedExpiry::At(Utc::now() + time));
    let new = NewBranchRequest {
        name: name.to_owned(),
        description: String::new(),
        labels: Default::default(),
        scale_to_zero,
        expiry,
        backups: Default::default(),
        origin,
    };
    let made = app.branches.create(&access(project()), &new).await?;
    world.lock().known.push((made.id.clone(), machine));
    Ok(made.id.to_string())
}

async fn reset(app: &App, world: &World, branch: &BranchId, source: Option<&BranchId>) -> Result<String> {
    let rows = world.lock().next_row;
    let Some(before) = app.connections.find(branch, MANAGED_ROLE).await? else {
        return Ok("there is no such branch".to_owned());
    };
    let versions = app.branches.versions(&access(at(branch))).await?;
    let to = ResetTo {
        branch: source.cloned(),
        version: versions.into_iter().next().map(|version| version.volume).filter(|_| source.is_none()),
        moment: None,
    };
    let after = app.branches.reset(&access(at(branch)), &to).await?;
    // Another one than before was asked for after that was looked up.
    let volume = after.replacement.unwrap_or(after.volume);
    if volume != before.branch.volume && Some(&volume) != before.branch.replacement.as_ref() {
        world.lock().promised.entry(volume).or_insert(rows);
    }
    Ok(after.state.title().to_owned())
}

async fn update(app: &App, branch: &BranchId, set: impl FnOnce(&mut BranchChange)) -> Result<String> {
    let mut change = BranchChange::default();
    set(&mut change);
    let changed = app.branches.update(&access(at(branch)), change).await?;
    Ok(changed.state.title().to_owned())
}

/// A client signs in as the gateway lets it, writes a row and stays a while.
async fn visit(
    app: &App,
    world: &World,
    process: ProcessId,
    branch: &BranchId,
    stay: Duration,
) -> Result<String> {
    for _ in 0..CLIENT_TRIES {
        while world.lock().held.contains(branch) {
            tokio::time::sleep(CLIENT_LOOK).await;
        }
        let found = app.connections.find(branch, MANAGED_ROLE).await?;
        let Some(found) = found else { return Ok("there is no such branch".to_owned()) };
        match found.branch.state {
            BranchState::Ready => {
                world.lock().sessions.push((branch.clone(), process));
                let opened = app.connections.open_server(&InstanceId::primary(branch)).await.is_ok();
                if opened {
                    world.lock().write_row(branch);
                    tokio::time::sleep(stay).await;
                }
                let mut state = world.lock();
                let at = state.sessions.iter().position(|one| *one == (branch.clone(), process));
                at.map(|at| state.sessions.remove(at));
                if opened {
                    return Ok("was in".to_owned());
                }
            }
            BranchState::Hibernated => {
                let is_waking = app.sleep.wake_for_client(branch, "a client").await?;
                if !is_waking {
                    return Ok("may not wake it".to_owned());
                }
            }
            _ => {}
        }
        app.connections.wait_until_settled(branch, MANAGED_ROLE, CLIENT_PATIENCE).await?;
    }
    Ok("gave up".to_owned())
}

fn custom() -> BranchOrigin {
    BranchOrigin::Custom(CustomBranch {
        region: REGION.to_owned(),
        instance_type: "micro".to_owned(),
        image: "postgres:18".to_owned(),
        replicas: 0,
        storage_gib: 1,
        parameters: BTreeMap::new(),
        preload_libraries: None,
    })
}

fn project() -> InProject {
    InProject {
        organization: OrganizationId::from_trusted(ORGANIZATION),
        project: ProjectId::from_trusted(PROJECT),
    }
}

fn at(branch: &BranchId) -> InBranch {
    InBranch { within: project(), branch: branch.clone() }
}

fn in_trash(branch: &BranchId) -> InTrash {
    InTrash { within: project(), branch: branch.clone() }
}

/// What lets the owner do everything to it.
fn access<T>(target: T) -> Access<T> {
    let organization = OrganizationId::from_trusted(ORGANIZATION);
    let time = start_of_time();
    Access {
        caller: Caller {
            principal: Principal::User(UserId::from_trusted(OWNER)),
            credential: CredentialId::Key(ApiKeyId::from_trusted(KEY)),
            grant: Grant::everything(),
            expiry: None,
            is_stale: false,
        },
        organization: Organization {
            id: organization,
            name: String::new(),
            disabled_by_admin: false,
            billing_status: BillingStatus::Ok,
            usage_tier: UsageTier::T1,
            admin_reason: String::new(),
            billing_reason: String::new(),
            requires_second_factor: false,
            last_updated: time,
            created_at: time,
        },
        role: Some(Role::Owner),
        has_second_factor: true,
        second_factor_place: "".into(),
        target,
        operation: CREATE_BRANCH,
    }
}
