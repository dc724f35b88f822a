//! `coppice mcp`

use clap::{Args, ValueEnum};
use serde_json::json;

use super::http::Client;
use super::output;

/// Programs that agents run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    /// A command for Claude Code
    ClaudeCode,
    /// For .cursor/mcp.json
    Cursor,
    /// For .vscode/mcp.json
    VsCode,
}

/// Which program is to be connected.
#[derive(Args, Debug)]
pub(crate) struct McpArgs {
    /// The program that the agent runs in [default: all of them]
    #[arg(long)]
    client: Option<Program>,
}

impl Program {
    /// Where what is printed belongs.
    fn place(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code, in a terminal",
            Self::Cursor => "Cursor, in .cursor/mcp.json",
            Self::VsCode => "VS Code, in .vscode/mcp.json",
        }
    }

    fn configuration(self, url: &str) -> String {
        let settings = match self {
            Self::ClaudeCode => return format!("claude mcp add --transport http coppice {url}"),
            Self::Cursor => json!({ "mcpServers": { "coppice": { "url": url } } }),
            Self::VsCode => json!({ "servers": { "coppice": { "type": "http", "url": url } } }),
        };
        format!("{settings:#}")
    }
}

/// Prints what connects an agent.
pub(super) fn run(args: &McpArgs, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let url = format!("{}/mcp", client.url());
    if as_json {
        return output::json(&json!({ "url": url }));
    }
    match args.client {
        Some(program) => say!("{}", program.configuration(&url)),
        None => {
            for program in Program::value_variants() {
                say!("# {}\n{}\n", program.place(), program.configuration(&url));
            }
            say!("# Any other client: Streamable HTTP\n{url}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn each_program_is_told_the_address_in_its_own_way() {
        for program in Program::value_variants() {
            let said = program.configuration("https://db.example.com/mcp");
            assert!(said.contains("https://db.example.com/mcp"), "{said}");
            assert!(
                *program == Program::ClaudeCode || serde_json::from_str::<Value>(&said).is_ok(),
                "{said}"
            );
        }
    }
}
