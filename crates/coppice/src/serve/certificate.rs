//! The gateway's certificate: which files it comes from, and that it follows
//! them, so that who renews it has nothing to restart.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use coppice_app::tasks::Tasks;
use coppice_core::Error;
use coppice_gateway::{Certificate, CertificateFiles, Gateway};
use parking_lot::Mutex;

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
pub(super) fn follow(tasks: &mut Tasks, gateway: Arc<Gateway>, files: CertificateFiles) {
    let state = (gateway, Arc::new(Mutex::new(files)));
    tasks.every("certificate", LOOK, &state, |(gateway, files)| async move {
        let looked = tokio::task::spawn_blocking(move || files.lock().load_changed()).await;
        let failed =
            |why: String| Error::internal(format!("the gateway keeps the certificate that it has: {why}"));
        let found = looked.map_err(|panic| failed(panic.to_string()))?;
        if let Some(certificate) =
            found.map_err(|error| failed(format!("{:#}", anyhow::Error::from(error))))?
        {
            gateway.set_certificate(certificate);
            tracing::info!("the gateway shows its new certificate");
        }
        Ok(())
    });
}
