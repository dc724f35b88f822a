//! `coppice psql` and `coppice connection-string`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use coppice_wire::BranchCredentials;

use super::http::Client;
use super::{BranchTarget, output};

async fn credentials(target: &BranchTarget, client: &Client) -> anyhow::Result<BranchCredentials> {
    let (project, branch) = client.branch(target).await?;
    let path = client.here(&format!("/projects/{}/branches/{}/credentials", project.id, branch.id));
    client.get(&path).await
}

/// Prints the connection string.
pub(super) async fn connection_string(
    target: &BranchTarget,
    client: &Client,
    as_json: bool,
) -> anyhow::Result<()> {
    let credentials = credentials(target, client).await?;
    if as_json {
        return output::json(&credentials);
    }
    println!("{}", credentials.connection_string);
    Ok(())
}

/// Becomes psql. The password goes by environment, which only its owner and
/// root can read, and not by arguments, which everybody can.
pub(super) async fn run(target: &BranchTarget, client: &Client, arguments: &[String]) -> anyhow::Result<()> {
    let credentials = credentials(target, client).await?;
    let error = Command::new("psql")
        .env("PGHOST", &credentials.hostname)
        .env("PGPORT", credentials.port.to_string())
        .env("PGUSER", &credentials.username)
        .env("PGPASSWORD", &credentials.password)
        .env("PGDATABASE", &credentials.dbname)
        .args(arguments)
        .exec();
    Err(error).context("running psql: install it first (Debian: apt install postgresql-client)")
}
