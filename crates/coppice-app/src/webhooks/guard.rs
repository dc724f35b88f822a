//! Where deliveries may go: nothing a tenant names leads inside.
//!
//! A name is resolved once for each attempt, and the connection goes to one of
//! the addresses that were looked at: a name that leads elsewhere a moment
//! later has no use of that. No redirect is followed and no proxy is asked.
//! Addresses of this machine are refused whatever they are: what listens there
//! may be kept from the internet by a firewall, which is not asked here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use coppice_core::organization::Holder;
use coppice_core::reach::Reachable;
use coppice_core::{Error, Result};
use coppice_turns::{Turns, do_holding};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

/// How long an attempt may take.
const PATIENCE: Duration = Duration::from_secs(15);
const URL_LENGTH_MAX: usize = 2000;
/// Names that are looked up at the same time: of all holders, and of one.
const LOOKUPS_MAX: usize = 16;
const LOOKUPS_PER_HOLDER_MAX: usize = 2;
/// Addresses for documentation, which no machine has.
const NOBODYS_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const NOBODYS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// A port like any other.
const DISCARD: u16 = 9;

/// Says that a name leads to no address that may be connected to. It does not say whether it leads to another one: which
/// names a resolver inside knows is not for those who make webhooks.
#[derive(Debug, thiserror::Error)]
#[error("it leads to no address of the internet")]
pub(super) struct Refused;

tokio::task_local! {
    /// Who answers for the webhook that a request goes to.
    static HOLDER: Holder;
}

/// Turns at looking up names. One that nobody answers for blocks a thread until the resolver gives
/// it up, which is longer than an attempt takes.
#[derive(Clone, Debug)]
pub(super) struct Lookups(Turns<Option<Holder>>);

impl Default for Lookups {
    fn default() -> Self {
        Self(Turns::new(LOOKUPS_MAX, LOOKUPS_PER_HOLDER_MAX))
    }
}

/// Has a request count as whose the webhook is that it goes to.
pub(super) async fn for_holder<T>(holder: &Holder, request: impl Future<Output = T>) -> T {
    HOLDER.scope(holder.clone(), request).await
}

/// Finds addresses of names, and keeps quiet about those that are not admitted.
#[derive(Clone)]
struct Guarded {
    reachable: Reachable,
    only_exceptions: bool,
    lookups: Lookups,
}

impl Guarded {
    fn admits(&self, address: IpAddr) -> bool {
        match self.only_exceptions {
            true => self.reachable.is_exception(address),
            false => admits(&self.reachable, address),
        }
    }
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, holder) = (self.clone(), HOLDER.try_with(Holder::clone).ok());
        Box::pin(async move {
            let turn = guard.lookups.0.take(&holder).await;
            let admitted = do_holding(turn, move || -> std::io::Result<Vec<SocketAddr>> {
                let found = (name.as_str(), 0).to_socket_addrs()?;
                Ok(found.filter(|address| guard.admits(address.ip())).collect())
            });
            let admitted = admitted.await?.unwrap_or_else(|error| {
                tracing::debug!("a name of a webhook is not found: {error}");
                vec![]
            });
            match admitted.is_empty() {
                true => Err(Refused.into()),
                false => Ok(Box::new(admitted.into_iter()) as Addrs),
            }
        })
    }
}

/// What requests are sent with: whatever its URL, none goes where it may not.
pub(super) struct Clients {
    reachable: Reachable,
    https: Client,
    /// Goes to the operator's exceptions alone.
    http: Client,
}

impl Clients {
    /// # Errors
    /// `internal_error` when this machine trusts no authority.
    pub(super) fn new(reachable: &Reachable, lookups: &Lookups) -> Result<Self> {
        let client = |only_exceptions| {
            let (reachable, lookups) = (reachable.clone(), lookups.clone());
            Client::builder()
                .dns_resolver(Guarded { reachable, only_exceptions, lookups })
                .redirect(Policy::none())
                .no_proxy()
                .timeout(PATIENCE)
                .pool_max_idle_per_host(0)
                .user_agent(concat!("coppice/", env!("CARGO_PKG_VERSION")))
                .build()
                .map_err(Error::internal)
        };
        Ok(Self { reachable: reachable.clone(), https: client(false)?, http: client(true)? })
    }

    /// The client for a URL, if anything may be sent there.
    pub(super) fn client(&self, url: &Url) -> Option<&Client> {
        is_allowed(url, &self.reachable)
            .then(|| if url.scheme() == "http" { &self.http } else { &self.https })
    }
}

/// Whether something may be sent to an address.
fn admits(reachable: &Reachable, address: IpAddr) -> bool {
    reachable.is_exception(address) || (reachable.admits(address) && !is_of_this_machine(address))
}

/// Whether an address is one of this machine's. Only those can be listened on,
/// except where the kernel is told otherwise (`ip_nonlocal_bind`): there, what goes
/// to one of them also comes from it. Nothing is sent.
fn is_of_this_machine(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let listen = |address: IpAddr| UdpSocket::bind((address, 0));
    let (any, nobodys): (IpAddr, IpAddr) = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), NOBODYS_V4.into()),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), NOBODYS_V6.into()),
    };
    let comes_from = || -> std::io::Result<IpAddr> {
        let socket = listen(any)?;
        socket.connect((address, DISCARD))?;
        Ok(socket.local_addr()?.ip())
    };
    listen(address).is_ok() && (listen(nobodys).is_err() || comes_from().is_ok_and(|from| from == address))
}

/// The address that a URL has in the place of a name: no resolver is asked for it.
fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn is_allowed(url: &Url, reachable: &Reachable) -> bool {
    match (url.scheme(), literal(url)) {
        ("https", address) => address.is_none_or(|address| admits(reachable, address)),
        ("http", Some(address)) => reachable.is_exception(address),
        ("http", None) => reachable.has_exceptions(),
        _ => false,
    }
}

/// A URL that something may be sent to, as far as it says so itself.
///
/// # Errors
/// `invalid_field`
pub(super) fn checked_url(text: &str, reachable: &Reachable) -> Result<String> {
    let invalid = |why: &str| Error::invalid_field("url", why);
    let url = Url::parse(text).map_err(|_| invalid("must be a URL like https://example.com/hook"))?;
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(invalid("must have no user, password or fragment"));
    }
    if url.as_str().len() > URL_LENGTH_MAX {
        return Err(invalid("must have at most 2000 characters"));
    }
    match is_allowed(&url, reachable) {
        true => Ok(url.into()),
        false if url.scheme() != "https" => Err(invalid("must begin with https://")),
        false => Err(invalid("must lead to an address of the internet")),
    }
}

/// Where a URL leads, without what may be a secret of its receiver.
pub(super) fn without_path(url: &str) -> String {
    let origin = Url::parse(url).map(|url| url.origin().ascii_serialization());
    origin.map_or_else(|_| String::new(), |origin| format!("{origin}/…"))
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    #[test]
    fn of_a_url_its_origin_is_left() {
        for (url, left) in [
            ("https://chat.example/services/T0/B0/secret", "https://chat.example/…"),
            ("https://[2606:4700::1111]:8443?token=secret", "https://[2606:4700::1111]:8443/…"),
            ("none", ""),
        ] {
            assert_eq!(without_path(url), left);
        }
    }

    #[test]
    fn only_https_to_the_internet_is_taken() {
        let nowhere = Reachable::default();
        for good in [
            "https://example.com/hook?x=1",
            "https://1.1.1.1:8443/",
            "https://[2606:4700::1111]/",
            "https://localhost/",
        ] {
            assert!(checked_url(good, &nowhere).is_ok(), "{good}");
        }
        for bad in [
            "",
            "example.com",
            "http://example.com/",
            "ftp://example.com/",
            "https://a@example.com/",
            "https://a:b@example.com/",
            "https://example.com/#x",
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://0177.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:7f00:1]/",
            "https://169.254.169.254/latest/",
            "https://10.0.0.1/",
            "https://100.64.1.1/",
            "https://[64:ff9b::7f00:1]/",
            "https://[2002:7f00:1::]/",
            "https://①②⑦.0.0.1/",
            "file:///etc/passwd",
        ] {
            assert!(checked_url(bad, &nowhere).is_err(), "{bad}");
        }
        let long = format!("https://example.com/{}", "x".repeat(2000));
        assert!(checked_url(&long, &nowhere).is_err());
    }

    #[test]
    fn the_operator_may_allow_inner_addresses_also_without_tls() {
        let here = Reachable::parse(&["127.0.0.0/8"]).expect("ranges");
        for good in
            ["http://127.0.0.1:1/", "https://127.0.0.1/", "http://inside.example/", "https://1.1.1.1/"]
        {
            assert!(checked_url(good, &here).is_ok(), "{good}");
        }
        for bad in ["http://10.0.0.1/", "https://10.0.0.1/", "http://1.1.1.1/", "http://[::1]/"] {
            assert!(checked_url(bad, &here).is_err(), "{bad}");
        }
    }

    #[test]
    fn this_machine_is_known_by_its_addresses() {
        // The address that this machine goes out by, if it has a network.
        let routed = UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
        let own = routed.connect(("192.0.2.1", 9)).and_then(|()| routed.local_addr());
        for own in own.iter().map(SocketAddr::ip).chain([IpAddr::from([127, 0, 0, 1])]) {
            assert!(is_of_this_machine(own), "{own}");
        }
        let mapped = "::ffff:127.0.0.1".parse().expect("an address");
        assert!(is_of_this_machine(mapped));
        for other in ["192.0.2.1", "2001:db8::1"] {
            assert!(!is_of_this_machine(other.parse().expect("an address")), "{other}");
        }
    }

    #[tokio::test]
    async fn a_name_leads_to_admitted_addresses_only() {
        let resolve = async |name: &str, ranges: &[&str], only_exceptions| {
            let reachable = Reachable::parse(ranges).expect("ranges");
            let guard = Guarded { reachable, only_exceptions, lookups: Lookups::default() };
            let found = guard.resolve(Name::from_str(name).expect("a name")).await;
            found.map(|addresses| addresses.map(|address| address.ip()).collect::<Vec<_>>())
        };
        // A label has at most 63 letters, so no resolver is asked for the second.
        for (name, why) in [
            ("localhost", "this machine is none of the internet"),
            ("x".repeat(64).as_str(), "nothing has it"),
        ] {
            let refused = resolve(name, &[], false).await.expect_err(why);
            assert!(refused.is::<Refused>(), "{name}: {refused}");
        }
        assert!(resolve("localhost", &["10.0.0.0/8"], true).await.is_err());
        let found = resolve("localhost", &["127.0.0.0/8"], true).await.expect("an exception");
        assert!(!found.is_empty() && found.iter().all(|address| address.is_ipv4()), "{found:?}");
    }

    #[tokio::test]
    async fn a_request_reaches_nothing_inside_by_a_name_or_an_address() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let clients = Clients::new(&Reachable::default(), &Lookups::default()).expect("clients");
        let inner = Url::parse(&format!("https://127.0.0.1:{port}/")).expect("a URL");
        assert!(clients.client(&inner).is_none());
        let named = Url::parse(&format!("https://localhost:{port}/")).expect("a URL");
        let sent = clients.client(&named).expect("a client").post(named).send().await;
        assert!(sent.expect_err("refused").is_connect());
        let accepted = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(accepted.is_err(), "nobody has connected");
    }
    #[tokio::test]
    async fn who_has_names_looked_up_that_nobody_answers_for_waits_and_others_do_not() {
        let lookups = Lookups::default();
        let clients = Clients::new(&Reachable::default(), &lookups).expect("clients");
        let url = Url::parse("https://localhost/").expect("a URL");
        let client = clients.client(&url).expect("a client");
        let send = async |holder| {
            let sent = for_holder(&Holder::from_trusted(holder), client.post(url.clone()).send()).await;
            sent.expect_err("it leads to this machine").is_connect()
        };
        let one = Some(Holder::from_trusted("one"));
        let held = [lookups.0.take(&one).await, lookups.0.take(&one).await];
        let mut waiting = Box::pin(send("one"));
        let others = async {
            for _ in 0..3 {
                assert!(send("other").await);
            }
        };
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("the lookups of its holder go on"),
            () = others => {}
        }
        drop(held);
        assert!(waiting.await);
    }
}
