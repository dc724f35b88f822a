//! `coppice region|instance-type|image|extension list`

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use coppice_wire::{ExtensionKind, ExtensionList, ImageList, InstanceTypeList, RegionList, RegionProvider};

use super::http::Client;
use super::people::in_query;
use super::{complete, output};

/// Regions.
#[derive(Subcommand, Debug)]
pub(crate) enum RegionCommand {
    /// List them
    #[command(alias = "ls", after_help = "Example: coppice region list")]
    List,
}

/// Sizes of instances.
#[derive(Subcommand, Debug)]
pub(crate) enum InstanceTypeCommand {
    /// List them
    #[command(alias = "ls", after_help = "Example: coppice instance-type list")]
    List,
}

/// Releases of PostgreSQL.
#[derive(Subcommand, Debug)]
pub(crate) enum ImageCommand {
    /// List them
    #[command(alias = "ls", after_help = "Example: coppice image list")]
    List,
}

/// Extensions of an image.
#[derive(Subcommand, Debug)]
pub(crate) enum ExtensionCommand {
    /// List the extensions of an image
    #[command(alias = "ls", after_help = "Example: coppice extension list postgres:17")]
    List {
        /// For example postgres:17
        #[arg(add = ArgValueCandidates::new(complete::images))]
        image: String,
    },
}

fn yes_or_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// `coppice region list`
pub(super) async fn regions(client: &Client, as_json: bool) -> anyhow::Result<()> {
    let list: RegionList = client.get(&client.here("/regions")).await?;
    if as_json {
        return output::json(&list);
    }
    let rows = list.regions.into_iter().map(|region| {
        let provider = match region.provider {
            RegionProvider::Aws => "aws",
            RegionProvider::Gcp => "gcp",
            RegionProvider::Custom => "custom",
        };
        let (public, backups) = (yes_or_no(region.public_access), yes_or_no(region.backups_enabled));
        vec![region.id, provider.to_owned(), public, backups]
    });
    output::table(&["ID", "PROVIDER", "PUBLIC", "BACKUPS"], rows.collect());
    Ok(())
}

/// `coppice instance-type list`
pub(super) async fn instance_types(client: &Client, as_json: bool) -> anyhow::Result<()> {
    let list: InstanceTypeList = client.get(&client.here("/instanceTypes")).await?;
    if as_json {
        return output::json(&list);
    }
    let has_prices =
        list.instance_types.iter().any(|kind| kind.hourly_rate > 0.0 || kind.storage_monthly_rate > 0.0);
    let mut header = vec!["REGION", "NAME", "VCPUS", "RAM GIB"];
    header.extend(["PER HOUR", "PER GIB MONTH"].into_iter().filter(|_| has_prices));
    let rows = list.instance_types.into_iter().map(|kind| {
        let prices = [kind.hourly_rate, kind.storage_monthly_rate].map(|price| price.to_string());
        let mut row = vec![kind.region, kind.name, kind.vcpus.to_string(), kind.ram.to_string()];
        row.extend(prices.into_iter().filter(|_| has_prices));
        row
    });
    output::table(&header, rows.collect());
    Ok(())
}

/// `coppice image list`
pub(super) async fn images(client: &Client, as_json: bool) -> anyhow::Result<()> {
    let list: ImageList = client.get(&client.here("/images")).await?;
    if as_json {
        return output::json(&list);
    }
    let rows = list.images.into_iter().map(|image| vec![image.name, image.region.join(", ")]);
    output::table(&["NAME", "REGIONS"], rows.collect());
    Ok(())
}

/// `coppice extension list`
pub(super) async fn extensions(
    command: ExtensionCommand,
    client: &Client,
    as_json: bool,
) -> anyhow::Result<()> {
    let ExtensionCommand::List { image } = command;
    let list: ExtensionList =
        client.get(&client.here(&format!("/extensions?image={}", in_query(&image)))).await?;
    if as_json {
        return output::json(&list);
    }
    let rows = list.extensions.into_iter().map(|extension| {
        let kind = match extension.kind {
            ExtensionKind::Extension => "extension",
            ExtensionKind::Plugin => "plugin",
            ExtensionKind::Module => "module",
        };
        let preload = yes_or_no(extension.preload_required);
        vec![extension.name, extension.version, kind.to_owned(), preload, extension.description]
    });
    output::table(&["NAME", "VERSION", "KIND", "PRELOAD", "WHAT IT DOES"], rows.collect());
    Ok(())
}
