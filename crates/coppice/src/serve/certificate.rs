//! The gateway's certificate: which files it comes from, and that it follows
//! them, so that who renews it has nothing to restart.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use coppice_gateway::{Certificate, CertificateFiles, Gateway};

use crate::config::Config;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// The files that were chosen, else those of the data directory, made at the first start.
pub(super) fn open(config: &Config) -> anyhow::Result<(CertificateFiles, Certificate)> {
    let mut files = match &config.certificate {
        Some((chain, key)) => CertificateFiles::new(chain.clone(), key.clone()),
        None => {
            let directory = config.data_dir.join("tls");
            std::fs::create_dir_all(&directory).context("making the directory of the certificate")?;
            CertificateFiles::ensure(&directory).context("making the gateway's certificate")?
        }
    };
    let certificate = files.load_changed().context("reading the gateway's certificate and its key")?;
    Ok((files, certificate.expect("nobody looked at them before")))
}

/// Shows clients what is in the files. A pair that can't be used changes nothing.
pub(super) async fn follow(gateway: Arc<Gateway>, mut files: CertificateFiles) {
    loop {
        tokio::time::sleep(LOOK).await;
        let looked = tokio::task::spawn_blocking(move || {
            let found = files.load_changed();
            (files, found)
        });
        let Ok((back, found)) = looked.await else { return };
        files = back;
        match found {
            Ok(None) => {}
            Ok(Some(certificate)) => {
                gateway.set_certificate(certificate);
                tracing::info!("the gateway shows its new certificate");
            }
            Err(error) => tracing::warn!(
                "the gateway keeps the certificate that it has: {:#}",
                anyhow::Error::from(error)
            ),
        }
    }
}
