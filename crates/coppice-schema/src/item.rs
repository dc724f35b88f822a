//! Objects of a schema as the catalogue has them. Names are written as SQL
//! writes them: quoted where they have to be, and with their schema.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Bytes of a name with its schema, both quoted; PostgreSQL's have 63 each.
const NAME_LENGTH_MAX: usize = 1024;
/// What may be done with an object (PostgreSQL manual, "Privileges").
const PRIVILEGES: [&str; 15] = [
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "TRUNCATE",
    "REFERENCES",
    "TRIGGER",
    "CREATE",
    "CONNECT",
    "TEMPORARY",
    "EXECUTE",
    "USAGE",
    "SET",
    "ALTER SYSTEM",
    "MAINTAIN",
];
/// Attributes of a type; PostgreSQL's limit for the columns of a row (manual, appendix K).
const ATTRIBUTES_MAX: usize = 1664;
/// Options of a relation, of which PostgreSQL has some forty.
const OPTIONS_MAX: usize = 256;

/// An entry of `pg_depend`: class, oid, number of the column.
pub(crate) type Address = (u32, u32, i32);

// What a server says is compared by pairs, and names are repeated for each privilege: what no server
// has so much of is refused, whoever answers.

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name.len() > NAME_LENGTH_MAX { Err(D::Error::custom("a name is too long")) } else { Ok(name) }
}

fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let names = Option::<Vec<String>>::deserialize(deserializer)?;
    match names.iter().flatten().all(|name| name.len() <= NAME_LENGTH_MAX) {
        true => Ok(names),
        false => Err(D::Error::custom("a name is too long")),
    }
}

fn is_privilege(word: &str) -> bool {
    PRIVILEGES.contains(&word)
}

fn privileges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let words = Vec::<String>::deserialize(deserializer)?;
    match words.len() <= PRIVILEGES.len() && words.iter().all(|word| is_privilege(word)) {
        true => Ok(words),
        false => Err(D::Error::custom("privileges that no server has")),
    }
}

type Acl = Vec<(String, String, bool)>;

fn acl<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Acl>, D::Error> {
    let acl = Option::<Acl>::deserialize(deserializer)?;
    let is_known = |who: &str, word: &str| who.len() <= NAME_LENGTH_MAX && is_privilege(word);
    match acl.iter().flatten().all(|(who, word, _)| is_known(who, word)) {
        true => Ok(acl),
        false => Err(D::Error::custom("privileges that no server has")),
    }
}

fn at_most<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MAX: usize>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let found = Option::<Vec<T>>::deserialize(deserializer)?;
    match found.as_ref().is_none_or(|found| found.len() <= MAX) {
        true => Ok(found),
        false => Err(D::Error::custom("more of them than a server has")),
    }
}

/// A row of an answer.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Row {
    Schema(Object<Schema>),
    Extension(Object<Extension>),
    Type(Object<Type>),
    Sequence(Object<Sequence>),
    Table(Object<Table>),
    Column(Object<Column>),
    Default(Object<Default>),
    Routine(Object<Routine>),
    Constraint(Object<Constraint>),
    Index(Object<Index>),
    View(Object<View>),
    Rule(Object<Switched>),
    Trigger(Object<Switched>),
    Policy(Object<Policy>),
    Statistics(Object<Statistics>),
    DefaultPrivileges(Object<DefaultPrivileges>),
    Edge(Link),
    StandIn(Link),
    Server(Server),
    Privileges(Privileges),
    LeftOut(LeftOut),
}

#[derive(Deserialize)]
pub(crate) struct Object<T> {
    pub(crate) class: u32,
    pub(crate) oid: u32,
    #[serde(default)]
    pub(crate) sub: i32,
    #[serde(flatten)]
    pub(crate) common: Common,
    #[serde(flatten)]
    pub(crate) item: T,
}

/// What many kinds have.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(crate) struct Common {
    pub(crate) owner: Option<String>,
    pub(crate) comment: Option<String>,
    /// Who, what, whether they may pass it on; "" is everybody.
    #[serde(default, deserialize_with = "acl")]
    pub(crate) acl: Option<Vec<(String, String, bool)>>,
}

#[derive(Deserialize)]
pub(crate) struct Link {
    pub(crate) of: Address,
    pub(crate) is: Address,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Server {
    /// PostgreSQL's release.
    pub(crate) major: u32,
    /// Who owns the database.
    pub(crate) owner: String,
    pub(crate) roles: Vec<String>,
}

/// What a new object of a kind may be used for.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Privileges {
    pub(crate) letter: char,
    #[serde(deserialize_with = "privileges")]
    pub(crate) owner: Vec<String>,
    #[serde(deserialize_with = "privileges")]
    pub(crate) everybody: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LeftOut {
    pub(crate) what: String,
    pub(crate) many: u64,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Schema {
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Extension {
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    #[serde(deserialize_with = "name")]
    pub(crate) schema: String,
    #[serde(deserialize_with = "name")]
    pub(crate) version: String,
}

/// An enum, domain, composite type or range: the first of its fields that is there.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Type {
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    #[serde(deserialize_with = "name")]
    pub(crate) schema: String,
    #[serde(default, deserialize_with = "names")]
    pub(crate) labels: Option<Vec<String>>,
    pub(crate) base: Option<String>,
    pub(crate) default: Option<String>,
    pub(crate) not_null: bool,
    pub(crate) collation: Option<String>,
    /// Name, type, collation.
    #[serde(default, deserialize_with = "at_most::<_, _, ATTRIBUTES_MAX>")]
    pub(crate) attributes: Option<Vec<(String, String, Option<String>)>>,
    pub(crate) range: Option<Range>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) subtype: String,
    pub(crate) subtype_opclass: Option<String>,
    pub(crate) collation: Option<String>,
    pub(crate) canonical: Option<String>,
    pub(crate) subtype_diff: Option<String>,
    pub(crate) multirange_type_name: String,
}

/// The numbers of a sequence.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) start: i64,
    pub(crate) increment: i64,
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) cache: i64,
    pub(crate) cycle: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Sequence {
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    #[serde(deserialize_with = "name")]
    pub(crate) schema: String,
    #[serde(rename = "type")]
    pub(crate) of_type: String,
    #[serde(flatten)]
    pub(crate) numbers: Numbers,
    pub(crate) unlogged: bool,
    /// A relation and its column; made an object of its own when the schema is read.
    pub(crate) owned_by: Option<(String, String)>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Table {
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    #[serde(deserialize_with = "name")]
    pub(crate) schema: String,
    pub(crate) unlogged: bool,
    pub(crate) rls: bool,
    pub(crate) forced: bool,
    #[serde(default, deserialize_with = "at_most::<_, _, OPTIONS_MAX>")]
    pub(crate) options: Option<Vec<String>>,
    pub(crate) partition_key: Option<String>,
    /// Of a partition: what belongs into it.
    pub(crate) bound: Option<String>,
    #[serde(default, deserialize_with = "names")]
    pub(crate) parents: Option<Vec<String>>,
    /// What of an old row is in the write-ahead log, where that is not the usual.
    pub(crate) identity: Option<String>,
    pub(crate) method: Option<String>,
    pub(crate) of_type: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Column {
    #[serde(deserialize_with = "name")]
    pub(crate) on: String,
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    pub(crate) of_view: bool,
    pub(crate) local: bool,
    pub(crate) inherits: bool,
    #[serde(rename = "type")]
    pub(crate) of_type: String,
    pub(crate) collation: Option<String>,
    pub(crate) not_null: bool,
    pub(crate) identity: Option<Identity>,
    pub(crate) generated: Option<Generated>,
    pub(crate) storage: Option<String>,
    pub(crate) compression: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) always: bool,
    pub(crate) sequence: Option<Numbers>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Generated {
    #[serde(rename = "virtual")]
    pub(crate) is_virtual: bool,
    pub(crate) expression: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Default {
    #[serde(deserialize_with = "name")]
    pub(crate) on: String,
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    pub(crate) definition: String,
    pub(crate) local: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Routine {
    #[serde(deserialize_with = "name")]
    pub(crate) short: String,
    pub(crate) arguments: String,
    #[serde(deserialize_with = "name")]
    pub(crate) schema: String,
    pub(crate) procedure: bool,
    pub(crate) definition: String,
    pub(crate) result: String,
    pub(crate) names: Option<Vec<String>>,
    pub(crate) defaults: i32,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Constraint {
    #[serde(deserialize_with = "name")]
    pub(crate) on: String,
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    pub(crate) of_domain: bool,
    pub(crate) is_foreign: bool,
    pub(crate) definition: String,
    pub(crate) letter: char,
    /// What keeps it, which has a name among tables.
    pub(crate) index: Option<String>,
    /// The table that a foreign key leads to.
    pub(crate) target: Option<String>,
    pub(crate) inherits: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Index {
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    #[serde(deserialize_with = "name")]
    pub(crate) schema: String,
    #[serde(deserialize_with = "name")]
    pub(crate) on: String,
    #[serde(deserialize_with = "name")]
    pub(crate) short: String,
    pub(crate) is_unique: bool,
    pub(crate) definition: String,
    pub(crate) clustered: bool,
    pub(crate) inherits: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct View {
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    #[serde(deserialize_with = "name")]
    pub(crate) schema: String,
    pub(crate) materialized: bool,
    #[serde(default, deserialize_with = "at_most::<_, _, OPTIONS_MAX>")]
    pub(crate) options: Option<Vec<String>>,
    pub(crate) definition: String,
    pub(crate) populated: bool,
    #[serde(default, deserialize_with = "names")]
    pub(crate) columns: Option<Vec<String>>,
}

/// A trigger or rule.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Switched {
    #[serde(deserialize_with = "name")]
    pub(crate) on: String,
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    pub(crate) definition: String,
    /// How it is switched, as `ALTER TABLE` says it.
    pub(crate) enabled: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Policy {
    #[serde(deserialize_with = "name")]
    pub(crate) on: String,
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    pub(crate) permissive: bool,
    pub(crate) command: String,
    pub(crate) roles: Vec<String>,
    pub(crate) using: Option<String>,
    pub(crate) check: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Statistics {
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    #[serde(deserialize_with = "name")]
    pub(crate) schema: String,
    #[serde(deserialize_with = "name")]
    pub(crate) on: String,
    pub(crate) definition: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct DefaultPrivileges {
    pub(crate) schema: Option<String>,
    pub(crate) letter: char,
}

/// A sequence goes with a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    pub(crate) sequence: String,
    pub(crate) on: String,
    pub(crate) column: String,
}

/// Any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Schema(Schema),
    Extension(Extension),
    Type(Type),
    Sequence(Sequence),
    Ownership(Ownership),
    Table(Table),
    Column(Column),
    Default(Default),
    Routine(Routine),
    Constraint(Constraint),
    Index(Index),
    View(View),
    Rule(Switched),
    Trigger(Switched),
    Policy(Policy),
    Statistics(Statistics),
    DefaultPrivileges(DefaultPrivileges),
}
