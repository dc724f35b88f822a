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

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ServerConfig;

/// ALPN name of the PostgreSQL protocol; clients that begin with TLS at once
/// have to send it.
pub(crate) const ALPN_POSTGRESQL: &[u8] = b"postgresql";

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
    #[error("{} is not valid PEM; move it and its counterpart away to have new ones made", path.display())]
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
    pub(crate) end_entity: CertificateDer<'static>,
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
        let end_entity = certificates.first().cloned().ok_or_else(no_certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|source| pem(key, source))?;

        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key)?;
        tls.alpn_protocols = vec![ALPN_POSTGRESQL.to_vec()];
        Ok(Self { tls: Arc::new(tls), end_entity })
    }

    /// Reads the certificate in `dir`, making a self-signed one first when
    /// there is none: `gateway.crt` and, readable by us alone, `gateway.key`.
    ///
    /// # Errors
    /// As [`Certificate::load`], and when `dir` can't be written.
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
        Self::load(&chain, &key)
    }
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
