//! `coppice org …`, as far as it is about people: members and invitations.

use clap::{Subcommand, ValueEnum};
use coppice_wire::{
    AcceptInvitation, AcceptedInvitation, AssignableRole, CreateInvitation, Invitation, InvitationList,
    InvitationStatus, Member, MemberList, MemberRole, RoleList, SetMemberRole,
};
use reqwest::Method;

use super::http::Client;
use super::key;
use super::output::{self, day};
use crate::refusal::Refused;

/// A role as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleName {
    /// Everything but deleting the organization
    Admin,
    /// Projects, branches and their credentials
    Editor,
    /// Looking only
    Viewer,
}

impl From<RoleName> for AssignableRole {
    fn from(role: RoleName) -> Self {
        match role {
            RoleName::Admin => Self::Admin,
            RoleName::Editor => Self::Editor,
            RoleName::Viewer => Self::Viewer,
        }
    }
}

/// What to do with the people of the chosen organization.
#[derive(Subcommand, Debug)]
pub(crate) enum PeopleCommand {
    /// List the members
    #[command(alias = "member", after_help = "Example: coppice org members")]
    Members,
    /// Remove a member; their access ends at once
    #[command(after_help = "Example: coppice org remove-member ada@example.com --yes")]
    RemoveMember {
        /// Address or id
        member: String,
        /// Don't ask
        #[arg(long)]
        yes: bool,
    },
    /// Give a member another role
    #[command(after_help = "Example: coppice org set-role ada@example.com viewer")]
    SetRole {
        /// Address or id
        member: String,
        /// What they may do from now on
        role: RoleName,
    },
    /// List the roles that can be given to members
    #[command(after_help = "Example: coppice org roles")]
    Roles,
    /// Invite somebody, and print the link for them
    #[command(after_help = "Example: coppice org invite ada@example.com --role viewer")]
    Invite {
        /// Their address
        email: String,
        /// What they may do then
        #[arg(long, default_value = "editor")]
        role: RoleName,
    },
    /// List the invitations that nobody has accepted yet
    #[command(after_help = "Example: coppice org invitations --search example.com")]
    Invitations {
        /// Only for addresses and names that contain this
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
    },
    /// Send an invitation again, with a new link
    #[command(alias = "resend-invitation", after_help = "Example: coppice org resend ada@example.com")]
    Resend {
        /// Address or id
        invitation: String,
    },
    /// Withdraw an invitation; its link stops working
    #[command(alias = "delete-invitation", after_help = "Example: coppice org uninvite ada@example.com")]
    Uninvite {
        /// Address or id
        invitation: String,
    },
    /// Accept an invitation to an organization as yourself
    #[command(after_help = "Example: coppice org accept https://db.example.com/invitations/accept?token=…")]
    Accept {
        /// The link, or the secret in it; - reads it from standard input
        link: String,
    },
}

/// Runs one of the commands.
pub(super) async fn run(command: PeopleCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        PeopleCommand::Members => members(client, as_json).await,
        PeopleCommand::RemoveMember { member, yes } => {
            let member = member_named(client, &member).await?;
            output::confirm(&format!("Remove {} from the organization?", member.email), yes)?;
            client.delete(&client.here(&format!("/members/{}", member.id))).await?;
            output::done(as_json, format!("removed {}", member.email));
            if !as_json {
                key::print_made_by(client, &member.id).await;
            }
            Ok(())
        }
        PeopleCommand::SetRole { member, role } => {
            let member = member_named(client, &member).await?;
            let path = client.here(&format!("/members/{}/role", member.id));
            let body = SetMemberRole { role: role.into() };
            client.send_only(Method::PUT, &path, Some(&body)).await?;
            output::done(as_json, format!("{} is {} now", member.email, body.role.as_str()));
            if !as_json {
                key::print_made_by(client, &member.id).await;
            }
            Ok(())
        }
        PeopleCommand::Roles => roles(client, as_json).await,
        PeopleCommand::Invite { email, role } => {
            let body = CreateInvitation { email, role: Some(role.into()) };
            let made: Invitation = client.post(&client.here("/invitations"), &body).await?;
            show_link(&made, "invited", as_json)
        }
        PeopleCommand::Invitations { search } => invitations(client, search.as_deref(), as_json).await,
        PeopleCommand::Resend { invitation } => {
            let found = invitation_named(client, &invitation).await?;
            let path = client.here(&format!("/invitations/{}", found.id));
            client.send_only(Method::POST, &format!("{path}/resend"), None::<&()>).await?;
            show_link(&client.get(&path).await?, "invited again:", as_json)
        }
        PeopleCommand::Uninvite { invitation } => {
            let found = invitation_named(client, &invitation).await?;
            client.delete(&client.here(&format!("/invitations/{}", found.id))).await?;
            output::done(as_json, format!("withdrew the invitation of {}", found.email));
            Ok(())
        }
        PeopleCommand::Accept { link } => accept(client, link, as_json).await,
    }
}

async fn members(client: &Client, as_json: bool) -> anyhow::Result<()> {
    let list: MemberList = client.get(&client.here("/members")).await?;
    if as_json {
        return output::json(&list);
    }
    let row = |member: &Member| {
        let role = match member.role {
            MemberRole::Owner => "owner",
            MemberRole::Admin => "admin",
            MemberRole::Editor => "editor",
            MemberRole::Viewer => "viewer",
        };
        let since = day(&member.joined_at);
        vec![member.id.clone(), member.email.clone(), member.name.clone(), role.to_owned(), since]
    };
    let header = ["ID", "EMAIL", "NAME", "ROLE", "SINCE"];
    output::table_sparing(&["ID", "SINCE"], &header, list.members.iter().map(row).collect());
    Ok(())
}

async fn roles(client: &Client, as_json: bool) -> anyhow::Result<()> {
    let list: RoleList = client.get(&client.here("/roles")).await?;
    if as_json {
        return output::json(&list);
    }
    let rows = list.roles.iter().map(|role| vec![role.id.as_str().to_owned(), role.description.clone()]);
    output::table(&["ROLE", "FOR"], rows.collect());
    Ok(())
}

async fn invitations(client: &Client, search: Option<&str>, as_json: bool) -> anyhow::Result<()> {
    let list = InvitationList { invitations: all_invitations(client, search).await? };
    if as_json {
        return output::json(&list);
    }
    let row = |invitation: &Invitation| {
        let status = match invitation.status {
            InvitationStatus::Pending => "pending",
            InvitationStatus::Expired => "expired",
        };
        let role = invitation.role.as_str().to_owned();
        let ends = day(&invitation.expires_at);
        let account = if invitation.has_unverified_account { ", unverified account" } else { "" };
        vec![invitation.id.clone(), invitation.email.clone(), role, format!("{status}{account}"), ends]
    };
    let rows = list.invitations.iter().map(row).collect();
    output::table_sparing(&["ID"], &["ID", "EMAIL", "ROLE", "STATUS", "EXPIRES"], rows);
    Ok(())
}

/// Every invitation, however many answers that takes.
async fn all_invitations(client: &Client, search: Option<&str>) -> anyhow::Result<Vec<Invitation>> {
    let mut all: Vec<Invitation> = vec![];
    loop {
        let mut path = client.here(&format!("/invitations?first={}", all.len()));
        if let Some(text) = search {
            path += &format!("&search={}", in_query(text));
        }
        let page: InvitationList = client.get(&path).await?;
        if page.invitations.is_empty() {
            return Ok(all);
        }
        all.extend(page.invitations);
    }
}

async fn member_named(client: &Client, named: &str) -> anyhow::Result<Member> {
    let list: MemberList = client.get(&client.here("/members")).await?;
    let mut members = list.members.into_iter();
    let found = members.find(|member| member.id == named || member.email.eq_ignore_ascii_case(named));
    found.ok_or_else(|| Refused::not_found(format!("{named} is no member: see `coppice org members`")).into())
}

async fn invitation_named(client: &Client, named: &str) -> anyhow::Result<Invitation> {
    let mut all = all_invitations(client, None).await?.into_iter();
    let found = all.find(|one| one.id == named || one.email.eq_ignore_ascii_case(named));
    let missing = || format!("{named} is not invited: see `coppice org invitations`");
    found.ok_or_else(|| Refused::not_found(missing()).into())
}

fn show_link(invitation: &Invitation, done: &str, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(invitation);
    }
    let (role, ends) = (invitation.role.as_str(), day(&invitation.expires_at));
    note!("{done} {} as {role}, until {ends}", invitation.email);
    if invitation.has_unverified_account {
        note!("there is an account at that address, and nobody has shown that the address is theirs:");
        note!(
            "the link in the letter gives it to its owner; a link that you hand over lets in whoever made it"
        );
    }
    if let Some(link) = &invitation.invite_link {
        say!("{link}");
    }
    Ok(())
}

async fn accept(client: &Client, link: String, as_json: bool) -> anyhow::Result<()> {
    let link = match link.as_str() {
        "-" => std::io::read_to_string(std::io::stdin())?,
        _ => link,
    };
    let token = link.trim().rsplit("token=").next().unwrap_or_default().to_owned();
    let accepted: AcceptedInvitation =
        client.post("/invitations/accept", &AcceptInvitation { token }).await?;
    if as_json {
        return output::json(&accepted);
    }
    note!("you are a member of {} now; see `coppice org list`", accepted.organization_id);
    Ok(())
}

/// A text as it stands in the query of a URL (RFC 3986, section 2.1).
pub(super) fn in_query(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => (byte as char).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_can_stand_in_a_query() {
        assert_eq!(in_query("a&b=c d+\u{e9}%~"), "a%26b%3Dc%20d%2B%C3%A9%25~");
    }
}
