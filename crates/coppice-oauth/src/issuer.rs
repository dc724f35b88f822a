//! Names under which the platform issues tokens.
//!
//! Each realm is the same issuer under another name, for clients with a realm
//! built in. The first one is ours. The site itself is one, too, the realm without
//! a name: for clients that know nothing but where the site is.

/// Name of a realm that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realm(String);

/// Every issuer.
#[derive(Clone, Debug)]
pub struct Issuers {
    public_url: String,
    realms: Vec<Realm>,
    site: Realm,
}

/// A realm's name can't be this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` can't be the name of a realm: use letters, digits, - and _")]
pub struct InvalidRealm(pub String);

impl Issuers {
    /// With a URL without a slash at its end, and the names of realms.
    ///
    /// # Errors
    /// When a name has characters that a path has not.
    pub fn new(public_url: &str, realms: &[String]) -> Result<Self, InvalidRealm> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let mut checked = Vec::new();
        for name in realms {
            if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
                return Err(InvalidRealm(name.clone()));
            }
            checked.push(Realm(name.clone()));
        }
        if checked.is_empty() {
            checked.push(Realm("main".to_owned()));
        }
        Ok(Self { public_url: public_url.to_owned(), realms: checked, site: Realm(String::new()) })
    }

    /// The realm with this name; without a name, the site.
    pub fn realm(&self, name: Option<&str>) -> Option<&Realm> {
        match name {
            Some(name) => self.realms.iter().find(|realm| realm.0 == name),
            None => Some(&self.site),
        }
    }

    /// What tokens of a realm say who made them.
    pub fn issuer(&self, realm: &Realm) -> String {
        match *realm == self.site {
            true => self.public_url.clone(),
            false => format!("{}/realms/{}", self.public_url, realm.0),
        }
    }

    /// The one that we tell.
    pub fn first(&self) -> String {
        self.realms.first().map(|realm| self.issuer(realm)).unwrap_or_default()
    }

    /// Where an endpoint of a realm is: for the site at `path`, for others
    /// `below` them.
    pub fn endpoint(&self, realm: &Realm, path: &str, below: &str) -> String {
        match *realm == self.site {
            true => format!("{}/oauth/{path}", self.public_url),
            false => format!("{}/protocol/openid-connect/{below}", self.issuer(realm)),
        }
    }

    /// Every name that tokens of ours may carry.
    pub fn all(&self) -> Vec<String> {
        self.realms.iter().chain([&self.site]).map(|realm| self.issuer(realm)).collect()
    }

    /// The authorization endpoint of the first realm.
    pub fn auth_url(&self) -> String {
        format!("{}/protocol/openid-connect/auth", self.first())
    }

    /// What URLs of the platform begin with; no slash at its end.
    pub fn public_url(&self) -> &str {
        &self.public_url
    }

    /// Whether people reach the platform over TLS.
    pub fn is_https(&self) -> bool {
        self.public_url.starts_with("https://")
    }

    /// The path of the public URL: empty, or beginning with a slash.
    pub fn base_path(&self) -> &str {
        let after_scheme = self.public_url.find("://").map_or(0, |at| at + 3);
        let rest = &self.public_url[after_scheme..];
        rest.find('/').map_or("", |at| &rest[at..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuers(public_url: &str, realms: &[&str]) -> Result<Issuers, InvalidRealm> {
        Issuers::new(public_url, &realms.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn each_realm_is_an_issuer_and_the_first_is_ours() {
        let issuers = issuers("https://db.example.com", &["main", "other"]).expect("names");
        assert_eq!(
            issuers.all(),
            [
                "https://db.example.com/realms/main",
                "https://db.example.com/realms/other",
                "https://db.example.com"
            ]
        );
        assert_eq!(issuers.auth_url(), "https://db.example.com/realms/main/protocol/openid-connect/auth");
        let site = issuers.realm(None).expect("the site");
        assert_eq!(issuers.issuer(site), "https://db.example.com");
        assert_eq!(issuers.endpoint(site, "jwks", "certs"), "https://db.example.com/oauth/jwks");
        assert_eq!(issuers.realm(Some("")), None);
        assert_eq!(issuers.realm(Some("third")), None);
    }

    #[test]
    fn a_realm_is_one_part_of_a_path() {
        for name in ["", "a/b", "..", "a b", "a?b"] {
            assert!(issuers("https://x", &[name]).is_err(), "{name}");
        }
    }

    #[test]
    fn a_platform_may_be_below_a_path() {
        assert_eq!(issuers("https://x/coppice", &[]).expect("names").base_path(), "/coppice");
        assert_eq!(issuers("http://[::1]:7070", &[]).expect("names").base_path(), "");
    }
}
