//! What the projects and branches that a key is limited to are called.

use coppice_core::access::Principal;
use sqlx::FromRow;

use crate::{Result, Store};

/// A project that a credential reaches.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct ReachedProject {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// A branch that a credential reaches.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct ReachedBranch {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The id of its project.
    pub project_id: String,
}

impl Store {
    /// Those of the projects that are there and belong to an organization of
    /// `of`, and those that the branches are in. Served by primary keys.
    pub async fn reached_projects(
        &self,
        of: &Principal,
        projects: &[String],
        branches: &[String],
    ) -> Result<Vec<ReachedProject>> {
        let (user, organization) = crate::keys::owner(of);
        let query = sqlx::query(
            "select p.id, p.name from projects p
             where p.deleted_at is null
               and (p.id = any($3) or p.id in (select project_id from branches where id = any($4)
                                               and deleted_at is null))
               and (p.organization_id = $2 or exists (select from members m
                    where m.organization_id = p.organization_id and m.user_id = $1))
             order by p.created_at, p.id",
        );
        self.reads.all(query.bind(user).bind(organization).bind(projects).bind(branches)).await
    }

    /// As [`Store::reached_projects`], the branches.
    pub async fn reached_branches(&self, of: &Principal, branches: &[String]) -> Result<Vec<ReachedBranch>> {
        let (user, organization) = crate::keys::owner(of);
        let query = sqlx::query(
            "select b.id, b.name, b.project_id from branches b join projects p on p.id = b.project_id
             where b.deleted_at is null and b.id = any($3)
               and (p.organization_id = $2 or exists (select from members m
                    where m.organization_id = p.organization_id and m.user_id = $1))
             order by b.created_at, b.id",
        );
        self.reads.all(query.bind(user).bind(organization).bind(branches)).await
    }
}
