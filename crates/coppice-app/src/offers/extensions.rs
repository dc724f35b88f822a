//! Extensions that an image brings.

use coppice_core::error::excerpt;
use coppice_core::image::{ImageRequest, PostgresVersion};
use coppice_core::parameter::PRELOAD_LIBRARIES;
use coppice_core::{Error, ErrorCode, Result};
use coppice_engine::ImageContents;

use super::Offers;

/// What an extension is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionKind {
    /// Made in a database by `CREATE EXTENSION`.
    Extension,
    /// A library that is loaded, without objects in a database.
    Module,
}

/// An extension that the owner of a branch may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Its name.
    pub name: String,
    /// The version that is installed by default; empty for a module.
    pub version: String,
    /// What it does.
    pub description: String,
    /// Where it is documented; empty when unknown.
    pub docs: String,
    /// Whether it has to be among a branch's preload libraries.
    pub preload_required: bool,
    /// What it is.
    pub kind: ExtensionKind,
}

impl Offers {
    /// Extensions that the owner of a branch with this image may use, by name.
    ///
    /// # Errors
    /// `invalid_image`, `invalid_region`
    pub async fn extensions(&self, image: &str, region: Option<&str>) -> Result<Vec<Extension>> {
        // Every region offers the same images; an unknown region is refused.
        self.images(region).await?;
        let version = self.choose_image(image).await?;
        let contents = self.image_contents(version).await?;
        let created = contents.extensions.iter().filter(|file| file.is_trusted).map(|file| Extension {
            name: file.name.clone(),
            version: file.version.clone(),
            description: file.comment.clone(),
            docs: documentation(&file.name, version.major),
            preload_required: PRELOAD_LIBRARIES.contains(&file.name.as_str()),
            kind: ExtensionKind::Extension,
        });
        let mut extensions: Vec<_> = created.collect();
        let modules = preloadable(&contents);
        let is_module = |name: &String| !extensions.iter().any(|extension| extension.name == *name);
        let modules: Vec<_> = modules.into_iter().filter(is_module).collect();
        extensions.extend(modules.into_iter().map(|name| Extension {
            version: String::new(),
            description: module_description(&name).to_owned(),
            docs: documentation(&name, version.major),
            preload_required: true,
            kind: ExtensionKind::Module,
            name,
        }));
        extensions.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(extensions)
    }

    /// The release that an image's name means.
    pub(crate) async fn choose_image(&self, name: &str) -> Result<PostgresVersion> {
        let invalid = |why: &str| {
            Error::invalid(ErrorCode::InvalidImage, format!("invalid image {}: {why}", excerpt(name)))
        };
        let request = ImageRequest::parse(name)
            .ok_or_else(|| invalid("write postgres:<major> or postgres:<major>.<minor>"))?;
        let images = self.engine.images().await?;
        let offered: Vec<_> = images.into_iter().map(|image| image.version).collect();
        request.choose(&offered).ok_or_else(|| invalid("not offered in this region"))
    }

    /// What an image brings.
    pub(crate) async fn image_contents(
        &self,
        version: PostgresVersion,
    ) -> Result<std::sync::Arc<ImageContents>> {
        Ok(self.engine.image_contents(version).await?)
    }

    /// Libraries as the owner of a branch asked for them, or the usual ones.
    pub(crate) fn check_preload_libraries(
        &self,
        asked: Option<&[String]>,
        contents: &ImageContents,
    ) -> Result<Vec<String>> {
        let allowed = preloadable(contents);
        let Some(asked) = asked else {
            let usual =
                coppice_core::parameter::DEFAULT_PRELOAD_LIBRARIES.iter().map(|name| (*name).to_owned());
            return Ok(usual.filter(|name| allowed.contains(name)).collect());
        };
        let mut chosen: Vec<String> = Vec::with_capacity(asked.len());
        for name in asked {
            if !allowed.contains(name) {
                return Err(Error::invalid(
                    ErrorCode::InvalidPreloadLibrary,
                    format!("invalid preload library {}", excerpt(name)),
                ));
            }
            if !chosen.contains(name) {
                chosen.push(name.clone());
            }
        }
        Ok(chosen)
    }
}

fn preloadable(contents: &ImageContents) -> Vec<String> {
    let names = PRELOAD_LIBRARIES.iter().filter(|name| contents.libraries.contains(**name));
    names.map(|name| (*name).to_owned()).collect()
}

fn module_description(name: &str) -> &'static str {
    match name {
        "auth_delay" => "pauses before it reports a failed sign-in",
        "auto_explain" => "logs the plans of slow statements",
        "pg_prewarm" => "loads what was cached before a restart",
        _ => "",
    }
}

/// The page of the PostgreSQL manual; extensions of others have none there.
fn documentation(name: &str, major: u32) -> String {
    let page: String = match name {
        "plpgsql" => "plpgsql".to_owned(),
        "tsm_system_rows" => "tsm-system-rows".to_owned(),
        "tsm_system_time" => "tsm-system-time".to_owned(),
        "btree_gin" => "btree-gin".to_owned(),
        "btree_gist" => "btree-gist".to_owned(),
        "dict_int" => "dict-int".to_owned(),
        "dict_xsyn" => "dict-xsyn".to_owned(),
        "auth_delay" => "auth-delay".to_owned(),
        "auto_explain" => "auto-explain".to_owned(),
        "vector" => return String::new(),
        _ => name.replace(['_', '-'], ""),
    };
    format!("https://www.postgresql.org/docs/{major}/{page}.html")
}
