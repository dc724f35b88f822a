//! Which extensions of an image the owner of a branch may create.
//!
//! A script of a trusted extension runs as a superuser (PostgreSQL manual,
//! section 38.17.1, "trusted"), in a schema that its creator may own. Whatever
//! it evaluates that the creator can make is a way to superuser. So beyond what
//! PostgreSQL trusts itself, only scripts that were read are marked, recognised
//! by their content; `docs/extensions.md` has what was found in them.

use std::fs;
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};

/// Scripts that were read: an extension, the version that it installs by
/// default, and the [`fingerprint`] of its control file and scripts.
const REVIEWED: &[(&str, &str, &str)] = &[
    ("bloom", "1.0", "166ea318c7f124787493b63ffa133f24ce0997caf027e4e371044c620f71bdec"),
    ("dict_xsyn", "1.0", "4b22f76c768105b8c0bcd0bb4c166d55fe9bcb8fd87da622c4a7fc11e6eb62e5"),
    ("pg_freespacemap", "1.2", "bb8b5d604aab85292af85fc175778d5893d8e4a01470787362b8348920673278"),
    ("pg_freespacemap", "1.3", "fa22883f13fe8251f74a17b9609635872e6ec29f228363cee5d2a8b5b2d6f7c7"),
    ("pg_stat_statements", "1.10", "35ed63250e4ca3ce82750aae0acea2a4ce1e3c57e0cfaacf47bac0776986240f"),
    ("pg_stat_statements", "1.11", "ddf4400482d04672e72704f315a1b66ff889189a6784d59012e9590f22a0095a"),
    ("pg_stat_statements", "1.12", "a37e59ccf0701007d8fd02723d72059377dd28853ff4b1cd3dd0ce250a39b717"),
    ("pg_visibility", "1.2", "1293f950b9ca55025932cdf14ee16eef994be328ab7b6ebb712176d72d66d423"),
    ("pgrowlocks", "1.2", "6d6b28a021ba94c116aa5dc2c79265d92f6df80ad630f848d1bd5d65c019879a"),
    ("pgstattuple", "1.5", "030d411085ff969b4b15ea047a1fbed906f1ef6472adfb704ceaca0567e05883"),
    ("vector", "0.8.5", "441ee00d950be9b50e84f264030a0f2dbc362bebb6b4590d31d7f6be03a6f5b9"),
];

/// Extensions that are never marked, whoever marked them.
const REFUSED: &[&str] = &[
    "adminpack",
    "amcheck",
    "autoinc",
    "dblink",
    "earthdistance",
    "file_fdw",
    "insert_username",
    "intagg",
    "moddatetime",
    "old_snapshot",
    "pageinspect",
    "pg_buffercache",
    "pg_logicalinspect",
    "pg_prewarm",
    "pg_surgery",
    "pg_walinspect",
    "postgres_fdw",
    "refint",
    "sslinfo",
    "xml2",
];

/// Begins what [`guarded`] adds to a script.
const GUARD_MARK: &str = "\n-- Coppice: an extension is made of its own objects in one schema.\n";

/// Fails the script where it has taken somebody else's object for one of the
/// extension's own: its creator can swap the schema, which a script knows by
/// name, between two of its statements. Only exact matches in `pg_catalog` are
/// used here, which no object of the creator's can shadow.
const GUARD: &str = r#"DO $coppice$
DECLARE
  stray text;
BEGIN
  SELECT pg_catalog.pg_describe_object(used.refclassid, used.refobjid, 0) INTO stray
  FROM pg_catalog.pg_extension AS made
  JOIN pg_catalog.pg_depend AS member
    ON member.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid
    AND member.refobjid = made.oid AND member.deptype = 'e'
  JOIN pg_catalog.pg_depend AS used ON used.classid = member.classid AND used.objid = member.objid
  WHERE made.extname = '{name}' AND used.deptype <> 'e'
    AND NOT (used.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass::pg_catalog.oid
      AND used.refobjid = made.extnamespace)
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS own
      WHERE own.classid = used.refclassid AND own.objid = used.refobjid AND own.deptype = 'e'
        AND own.refclassid = member.refclassid AND own.refobjid = made.oid)
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS part
      JOIN pg_catalog.pg_depend AS own ON own.classid = part.refclassid AND own.objid = part.refobjid
      WHERE part.classid = used.refclassid AND part.objid = used.refobjid AND part.deptype = 'i'
        AND own.refclassid = member.refclassid AND own.refobjid = made.oid AND own.deptype = 'e')
  LIMIT 1;
  IF stray IS NOT NULL THEN
    RAISE EXCEPTION 'extension "{name}" would depend on %, which is not its own', stray
      USING HINT = 'Its schema was renamed or replaced meanwhile. Try again.';
  END IF;
END
$coppice$;
"#;

/// A file and what it has to say.
type Change = (PathBuf, String);

/// Marks the extensions of a directory as they have to be. Safe to repeat, to interrupt
/// and to do while servers run: each file is replaced at once, and none of
/// which scripts are still to be guarded is marked before they are.
///
/// # Errors
/// When a file can't be read or written.
pub(super) fn mark_extensions(directory: &Path) -> Result<()> {
    let (mut unmarked, mut scripts, mut marked) = (vec![], vec![], vec![]);
    for (name, control) in controls(directory)? {
        let text = fs::read_to_string(&control)?;
        let is_trusted = is_trusted(directory, &name, &text)?;
        if is_trusted && needs_guard(&text) {
            scripts.extend(guarded(directory, &name)?);
        }
        let wanted = control_text(&text, is_trusted);
        if wanted != text {
            if is_trusted { &mut marked } else { &mut unmarked }.push((control, wanted));
        }
    }
    for changes in [unmarked, scripts, marked] {
        replace(directory, &changes)?;
    }
    Ok(())
}

/// The control files of a directory, by the names of their extensions. One
/// with a version in its name belongs to that version (section 38.17.1).
fn controls(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = vec![];
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(name) = name.strip_suffix(".control").filter(|name| !name.contains("--")) {
            found.push((name.to_owned(), path.clone()));
        }
    }
    Ok(found)
}

fn is_trusted(directory: &Path, name: &str, control: &str) -> Result<bool> {
    if REFUSED.contains(&name) {
        return Ok(false);
    }
    let mut reviews = REVIEWED.iter().filter(|(reviewed, ..)| *reviewed == name).peekable();
    if reviews.peek().is_none() {
        return Ok(value(control, "trusted") == Some("true"));
    }
    let found = fingerprint(directory, name)?;
    let is_reviewed = reviews.any(|(.., fingerprint)| *fingerprint == found);
    if !is_reviewed {
        let version = value(control, "default_version").unwrap_or_default();
        tracing::warn!(
            "the scripts of {name} {version} in {} are not those that were reviewed (SHA-256 {found}): \
             it is not offered",
            directory.display()
        );
    }
    Ok(is_reviewed)
}

/// A value of a control file (PostgreSQL manual, section 38.17.1).
pub(super) fn value<'a>(control: &'a str, wanted: &str) -> Option<&'a str> {
    control.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == wanted).then(|| value.trim().trim_matches('\''))
    })
}

fn without_mark(control: &str) -> impl Iterator<Item = &str> {
    control.lines().filter(|line| line.split('=').next().is_none_or(|key| key.trim() != "trusted"))
}

fn control_text(control: &str, is_trusted: bool) -> String {
    let mark = is_trusted.then_some("trusted = true");
    without_mark(control).chain(mark).map(|line| format!("{line}\n")).collect()
}

/// Identifies everything that decides what creating or updating an extension
/// does, but for what is added here: SHA-256 in hexadecimal of its control
/// file and the names and contents of its scripts.
fn fingerprint(directory: &Path, name: &str) -> Result<String> {
    let mut context = Context::new(&SHA256);
    let mut add = |part: &str| {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    };
    let control = fs::read_to_string(directory.join(format!("{name}.control")))?;
    without_mark(&control).for_each(&mut add);
    for script in scripts(directory, name)? {
        add(script.file_name().and_then(|name| name.to_str()).unwrap_or_default());
        add(unguarded(&fs::read_to_string(&script)?));
    }
    Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What belongs to an extension besides its control file: scripts, and control
/// files of single versions.
fn scripts(directory: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let prefix = format!("{name}--");
    let mut found = vec![];
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let file = entry.file_name();
        let file = file.to_str().ok_or_else(|| Error::from(ErrorKind::InvalidData))?;
        if file.starts_with(&prefix) && [".sql", ".control"].iter().any(|end| file.ends_with(end)) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Whether an extension consists of its own objects, wherever it is put.
fn needs_guard(control: &str) -> bool {
    value(control, "schema").is_none() && value(control, "requires").is_none()
}

fn unguarded(script: &str) -> &str {
    script.split_once(GUARD_MARK).map_or(script, |(own, _)| own)
}

/// The scripts of an extension that are not guarded yet.
fn guarded(directory: &Path, name: &str) -> Result<Vec<Change>> {
    let guard = GUARD.replace("{name}", name);
    let mut changes = vec![];
    for path in
        scripts(directory, name)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "sql"))
    {
        let text = fs::read_to_string(&path)?;
        let wanted = [unguarded(&text), GUARD_MARK, &guard].concat();
        if wanted != text {
            changes.push((path, wanted));
        }
    }
    Ok(changes)
}

/// Replaces files so that after a crash each is there whole, old or new.
fn replace(directory: &Path, changes: &[Change]) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let staged = |path: &Path| path.with_extension("new");
    for (path, text) in changes {
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o644).open(staged(path))?;
        file.set_permissions(fs::metadata(path)?.permissions())?;
        file.write_all(text.as_bytes())?;
    }
    let directory = fs::File::open(directory)?;
    rustix::fs::syncfs(&directory)?;
    for (path, _) in changes {
        fs::rename(staged(path), path)?;
    }
    rustix::fs::syncfs(&directory)?;
    Ok(())
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
