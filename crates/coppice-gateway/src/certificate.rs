//! The certificate shown to clients.
//!
//! It is an ECDSA one: clients bind the authentication to the certificate's
//! signature digest (`tls-server-end-point`), and an Ed25519 certificate has
//! none, which makes libpq give up.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ServerConfig;

/// ALPN name of the PostgreSQL protocol; clients that begin with TLS at once
/// have to send it.
pub(crate) const ALPN_POSTGRESQL: &[u8] = b"postgresql";
/// Those of HTTP, the better one first.
const ALPN_HTTP: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why there is no certificate to show.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file could not be read or written.
    #[error("can't use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} is no PEM file with what should be in it", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// A new certificate could not be made.
    #[error("can't make a certificate")]
    Make(#[from] rcgen::Error),
    /// Certificate and key can't be used together.
    #[error("the certificate and the key can't be used for TLS")]
    Tls(#[from] rustls::Error),
}

/// A certificate with its key, ready for TLS.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub(crate) tls: Arc<ServerConfig>,
    /// For clients of HTTP.
    pub(crate) http: Arc<ServerConfig>,
    /// What clients bind their authentication to; none when the kind of
    /// signature has no defined digest.
    pub(crate) digest: Option<Vec<u8>>,
    /// When it ends, in seconds of Unix time; none when that is not understood.
    pub(crate) expiry: Option<i64>,
}

impl Certificate {
    /// Reads the certificate chain and its key from PEM files.
    ///
    /// # Errors
    /// When a file can't be read or the two don't fit together.
    pub fn load(chain: &Path, key: &Path) -> Result<Self, CertificateError> {
        let pem = |path: &Path, source| CertificateError::Pem { path: path.to_owned(), source };
        let certificates = CertificateDer::pem_slice_iter(&read(chain)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| pem(chain, source))?;
        let no_certificate = || pem(chain, rustls::pki_types::pem::Error::NoItemsFound);
        let first = certificates.first().ok_or_else(no_certificate)?;
        let (digest, expiry) = (server_end_point(first), expiry(first));
        let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|source| pem(key, source))?;

        let tls = server_config(certificates.clone(), key.clone_key(), &[ALPN_POSTGRESQL])?;
        let http = server_config(certificates, key, &ALPN_HTTP)?;
        Ok(Self { tls, http, digest, expiry })
    }
}

/// Each protocol has its own, so that no session of one is resumed in another.
fn server_config(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Where a certificate chain and its key are, as PEM.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    chain: PathBuf,
    key: PathBuf,
    /// A digest of what was in them when they were last looked at.
    seen: Vec<u8>,
}

impl CertificateFiles {
    /// Those with these names.
    pub fn new(chain: PathBuf, key: PathBuf) -> Self {
        Self { chain, key, seen: vec![] }
    }

    /// Those in `dir`, `gateway.crt` and, readable by us alone, `gateway.key`;
    /// makes them self-signed when there are none.
    ///
    /// # Errors
    /// When `dir` can't be written.
    pub fn ensure(dir: &Path) -> Result<Self, CertificateError> {
        let (chain, key) = (dir.join("gateway.crt"), dir.join("gateway.key"));
        // The certificate is written last, so one that is there has its key.
        if !chain.exists() {
            let signing_key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()])?;
            params.distinguished_name.push(rcgen::DnType::CommonName, "Coppice gateway");
            let certificate = params.self_signed(&signing_key)?;
            write_durably(dir, &key, &signing_key.serialize_pem(), 0o600)?;
            coppice_failpoint::failpoint!("gateway.certificate_key_written");
            write_durably(dir, &chain, &certificate.pem(), 0o644)?;
        }
        Ok(Self::new(chain, key))
    }

    /// What is in them; none when that is what was in them the last time, good
    /// or bad.
    ///
    /// # Errors
    /// As [`Certificate::load`].
    pub fn load_changed(&mut self) -> Result<Option<Certificate>, CertificateError> {
        let mut seen = digest::Context::new(&digest::SHA256);
        for path in [&self.chain, &self.key] {
            match read(path) {
                Ok(text) => seen.update(&text),
                Err(error) => seen.update(error.to_string().as_bytes()),
            }
            seen.update(b"\0");
        }
        let seen = seen.finish().as_ref().to_vec();
        if self.seen == seen {
            return Ok(None);
        }
        self.seen = seen;
        Certificate::load(&self.chain, &self.key).map(Some)
    }
}

/// The `tls-server-end-point` of a certificate (RFC 5929): its digest by the
/// hash function of its signature, SHA-256 in place of weaker ones.
fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    // Certificate, tbsCertificate and then signatureAlgorithm, an OID first.
    let (_, content, _) = der_value(certificate)?;
    let (_, _, after_tbs) = der_value(content)?;
    let (_, algorithm, _) = der_value(after_tbs)?;
    let (_, oid, _) = der_value(algorithm)?;
    let function = match (oid.strip_prefix(RSA), oid.strip_prefix(ECDSA)) {
        (Some([0x04 | 0x05 | 0x0b]), _) | (_, Some([0x01] | [0x03, 0x02])) => &digest::SHA256,
        (Some([0x0c]), _) | (_, Some([0x03, 0x03])) => &digest::SHA384,
        (Some([0x0d]), _) | (_, Some([0x03, 0x04])) => &digest::SHA512,
        _ => return None,
    };
    Some(digest::digest(function, certificate).as_ref().to_vec())
}

/// When a certificate ends (`notAfter` of RFC 5280), in seconds of Unix time.
fn expiry(certificate: &[u8]) -> Option<i64> {
    const VERSION: u8 = 0xa0;
    const GENERALIZED_TIME: u8 = 0x18;
    let (_, content, _) = der_value(certificate)?;
    let (_, tbs, _) = der_value(content)?;
    // Version (which may be left out), serial number, signature, issuer, validity.
    let (tag, _, after_first) = der_value(tbs)?;
    let after_serial = if tag == VERSION { der_value(after_first)?.2 } else { after_first };
    let (_, _, after_signature) = der_value(after_serial)?;
    let (_, _, after_issuer) = der_value(after_signature)?;
    let (_, validity, _) = der_value(after_issuer)?;
    let (_, _, after_not_before) = der_value(validity)?;
    let (tag, text, _) = der_value(after_not_before)?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = text.split_at_checked(if tag == GENERALIZED_TIME { 4 } else { 2 })?;
    let year: i64 = year.parse().ok()?;
    let year = match tag {
        GENERALIZED_TIME => year,
        _ if year < 50 => 2000 + year,
        _ => 1900 + year,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let [month, day, hour, minute, second] = [part(0)?, part(2)?, part(4)?, part(6)?, part(8)?];
    Some(((days_since_epoch(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March have the leap day at their end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 719_469
}

/// Splits DER into the first value's tag and content, and what follows it.
fn der_value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = bytes.split_first_chunk()?;
    let (length, rest) = if length < 0x80 {
        (usize::from(length), rest)
    } else {
        let (digits, rest) =
            rest.split_at_checked(usize::from(length & 0x7f)).filter(|(d, _)| d.len() <= 4)?;
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|source| CertificateError::File { path: path.to_owned(), source })
}

/// Writes a file so that after a crash it is there whole or not at all.
fn write_durably(dir: &Path, path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let partial = path.with_extension("partial");
    let write = || {
        // An earlier attempt may have left it, with who knows which mode.
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|source| CertificateError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn made(dir: &Path) -> Certificate {
        CertificateFiles::ensure(dir).unwrap().load_changed().unwrap().expect("is new")
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_certificate_is_made_once_and_its_key_is_ours_alone() {
        let dir = tempfile::tempdir().unwrap();
        let digest = made(dir.path()).digest;
        assert_eq!(mode(&dir.path().join("gateway.key")), 0o600);

        assert_eq!(digest.as_ref().expect("can be bound to").len(), 32);
        assert_eq!(made(dir.path()).digest, digest);
    }

    #[test]
    fn a_key_whose_certificate_was_never_written_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("gateway.key"), "cut short").unwrap();
        made(dir.path());
        assert_eq!(mode(&dir.path().join("gateway.key")), 0o600);
    }

    #[test]
    fn files_are_read_again_when_they_change_and_only_as_a_pair() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let first = made(one.path()).digest;
        let other_digest = made(other.path()).digest;
        let mut files = CertificateFiles::ensure(one.path()).unwrap();
        assert_eq!(files.load_changed().unwrap().expect("is new").digest, first);
        assert!(files.load_changed().unwrap().is_none(), "nothing changed");

        let copy = |name: &str| fs::copy(other.path().join(name), one.path().join(name)).unwrap();
        copy("gateway.crt");
        assert!(matches!(files.load_changed(), Err(CertificateError::Tls(_))), "another's key");
        assert!(files.load_changed().unwrap().is_none(), "is said once");
        copy("gateway.key");
        assert_eq!(files.load_changed().unwrap().expect("is new").digest, other_digest);
        fs::remove_file(one.path().join("gateway.key")).unwrap();
        assert!(matches!(files.load_changed(), Err(CertificateError::File { .. })));
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_of_its_forms() {
        let expiry_at = |year, month, day| {
            let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
            let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, month, day);
            expiry(params.self_signed(&key).unwrap().der())
        };
        for (year, month, day, expected) in [
            (1970, 1, 1, 0),
            (2026, 11, 21, 1_795_219_200),
            (2028, 2, 29, 1_835_395_200),
            (2050, 3, 1, 2_529_705_600),
            (4096, 1, 1, 67_090_118_400),
        ] {
            assert_eq!(expiry_at(year, month, day), Some(expected), "{year}-{month}-{day}");
        }
        assert_eq!(expiry(b"\x30\x84\xff\xff\xff\xff"), None);
    }

    #[test]
    fn the_digest_follows_the_signature_and_an_ed25519_one_has_none() {
        let digest_length = |algorithm| {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let certificate = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap();
            server_end_point(certificate.der()).map(|digest| digest.len())
        };
        assert_eq!(digest_length(&rcgen::PKCS_ECDSA_P256_SHA256), Some(32));
        assert_eq!(digest_length(&rcgen::PKCS_ECDSA_P384_SHA384), Some(48));
        assert_eq!(digest_length(&rcgen::PKCS_ED25519), None);
        assert_eq!(server_end_point(b"\x30\x84\xff\xff\xff\xff"), None);
    }
}
